"""ResNet-18 for small images: with batch normalization, with its replacement, or with neither.

    python examples/resnet18.py --data photographs --norm replaced --out runs/replaced

One file to copy: data-parallel training in bfloat16 or float32, accumulation of gradients, an
average of the parameters, a cosine schedule, label smoothing, checkpoints, evaluation, and export
of a plain network. The same command goes on where a run was interrupted. The data are a folder with
a subfolder of images per class, perhaps inside folders `train` and `test`, or an .npz file with
`x_train`, `y_train`, `x_test` and `y_test`, or with `X` and `y`. Batch normalization is scored and
exported with statistics of training rows under the final weights, and under their average, not
with running ones. Exit status: 0 done, 1 the loss is not finite or the exported network differs,
2 wrong options.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
from flax import nnx
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import jaxnorm as jn

Tree = Any
BRANCHES = {"bn": "loud", "replaced": "quiet", "none": "loud"}  # unless --branches is given
COLUMNS = ("update", "loss", "relative_update", "accuracy", "average_accuracy")
STATISTICS = 2048, 512  # training rows for batch normalization's statistics, and rows at once
SMALL = 64  # batches of fewer rows: statistics of such batches may suit the network better


# --- The model, in Flax NNX


class Block(nnx.Module):
    """Two convolutions and a shortcut, as in He et al. 2016."""

    def __init__(self, inputs: int, outputs: int, stride: int, dtype: Any, rngs: nnx.Rngs):
        conv = partial(nnx.Conv, use_bias=False, dtype=dtype, rngs=rngs)
        norm = partial(nnx.BatchNorm, momentum=0.9, dtype=dtype, rngs=rngs)
        self.conv1, self.bn1 = conv(inputs, outputs, (3, 3), stride), norm(outputs)
        self.conv2, self.bn2 = conv(outputs, outputs, (3, 3)), norm(outputs)
        self.projects = inputs != outputs
        if self.projects:
            self.conv3, self.bn3 = conv(inputs, outputs, (1, 1), stride), norm(outputs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns the activations of the next block."""
        y = nnx.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return nnx.relu(y + (self.bn3(self.conv3(x)) if self.projects else x))


class ResNet(nnx.Module):
    """Stages of blocks: each stage but the first doubles the channels and halves the sides."""

    def __init__(
        self,
        channels: int,
        classes: int,
        rngs: nnx.Rngs,
        blocks: Sequence[int] = (2, 2, 2, 2),
        width: int = 64,
        dtype: Any = jnp.float32,
    ):
        self.stem = nnx.Conv(channels, width, (3, 3), use_bias=False, dtype=dtype, rngs=rngs)
        self.bn = nnx.BatchNorm(width, momentum=0.9, dtype=dtype, rngs=rngs)
        self.blocks: nnx.List[Block] = nnx.List([])
        inputs = width
        for stage, number in enumerate(blocks):
            for first in [True] + [False] * (number - 1):
                stride, outputs = 2 if stage and first else 1, width * 2**stage
                self.blocks.append(Block(inputs, outputs, stride, dtype, rngs))
                inputs = outputs
        self.head = nnx.Linear(inputs, classes, rngs=rngs)  # in float32

    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns logits."""
        x = nnx.relu(self.bn(self.stem(x)))
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((1, 2), dtype=jnp.float32))


# --- The network that is trained: the model with batch normalization, its replacement, or neither


class Network(NamedTuple):
    """Initial parameters and state, the optimizer, and the model as functions of them."""

    model: nnx.Module  # computes in float32, as evaluation and export do
    train: Callable[..., Any]  # (params, state, x, train=...) -> (logits, state)
    evaluate: Callable[..., Any]
    raw: Tree
    state: Tree
    tx: optax.MultiSteps
    layout: jn.Layout


def network(options: argparse.Namespace, x: jax.Array, classes: int) -> Network:
    """Builds the network on a few images, which fix the initial scales."""

    def model(dtype: Any) -> nnx.Module:
        rngs = nnx.Rngs(options.seed)
        with_bn = ResNet(x.shape[-1], classes, rngs, options.blocks, options.width, dtype)
        return with_bn if options.norm == "bn" else jn.nnx.replace_batch_norm(with_bn, x[:1])

    # Parameters are float32 in both; `dtype` is the type that the layers compute in.
    train, *_ = jn.nnx.functionalize(model(jnp.bfloat16 if options.bfloat16 else jnp.float32))
    evaluate, params, state = jn.nnx.functionalize(plain := model(jnp.float32))

    def logits(params: Tree, x: jax.Array) -> Any:
        return evaluate(params, state, x, train=True)[0]

    def predicted(params: Tree, x: jax.Array) -> Any:
        return evaluate(params, state, x, train=False)[0]

    # In evaluation: traced_layout warns of statistics that batch normalization takes in training.
    layout = jn.exclude("^head/", layout=jn.traced_layout(jn.read(predicted, params, x[:1])))
    raw, tx = params, optimizer(options)
    if options.norm == "replaced" and options.constraint == "sphere":
        raw, tx = jn.constrain(params, tx, layout=layout)
    elif options.norm == "replaced":
        raw, tx = jn.linearly_constrain(params, tx, layout=layout)
        start = partial(jn.variance_preserving_init, jn.read(logits, raw, x), layout=layout)
        raw = jax.jit(start)(raw, x)
    if (options.branches or BRANCHES[options.norm]) == "quiet":
        raw = jn.scale_branches(raw, jn.residual_factors(jn.read(logits, params, x[:1])))
    # Accumulation is outermost: the projection edits the update of all microbatches together.
    tx = optax.MultiSteps(tx, options.accumulate)
    return Network(plain, train, evaluate, raw, state, tx, layout)


def optimizer(options: argparse.Namespace) -> optax.GradientTransformation:
    """Returns SGD with momentum; its schedule counts updates, not microbatches."""
    warmup, updates = options.updates // 10, options.updates
    rate = optax.warmup_cosine_decay_schedule(0.0, options.rate, warmup, updates)
    return optax.chain(
        jn.clip_by_layer_norm(1.0),
        optax.add_decayed_weights(options.decay, mask=kernels),
        optax.sgd(rate, momentum=0.9),
    )


def kernels(tree: Tree) -> Tree:
    """Returns True for kernels, False for scales and biases."""
    return jax.tree_util.tree_map_with_path(lambda path, _: name(path).endswith("kernel"), tree)


def name(path: Any) -> str:
    """Returns a name such as ``blocks/0/conv1/kernel``."""
    return jax.tree_util.keystr(path, simple=True, separator="/")


# --- Data


class Rows(NamedTuple):
    """Images of shape (rows, height, width, channels), and labels from 0."""

    x: np.ndarray
    y: np.ndarray

    def at(self, rows: np.ndarray) -> "Rows":
        """Returns some of the rows."""
        return Rows(self.x[rows], self.y[rows])

    def microbatch(self, step: int, size: int, seed: int) -> "Rows":
        """Returns the rows of a step: each epoch has an order of its own."""
        epoch, place = divmod(step, len(self.y) // size)
        order = np.random.default_rng((seed, epoch)).permutation(len(self.y))
        return self.at(order[place * size : (place + 1) * size])


def load(options: argparse.Namespace) -> tuple[Rows, Rows]:
    """Returns the rows to train on and the rows to evaluate on."""
    test = None
    if options.smoke:
        train, test = prototypes(512, seed=1), prototypes(256, seed=2)
    elif options.data.is_dir():
        parts = [options.data / part for part in ("train", "test")]
        train, *others = [paths(part) for part in parts if part.is_dir()] or [paths(options.data)]
        test = others[0] if others else None
    else:
        with np.load(options.data) as file:
            arrays = {key.lower(): file[key] for key in file.files}
        end = "_train" if "x_train" in arrays else ""
        train = Rows(arrays["x" + end], arrays["y" + end].ravel())
        test = Rows(arrays["x_test"], arrays["y_test"].ravel()) if "x_test" in arrays else None
    # One order for all seeds: a seed changes the initial weights and the minibatches.
    shuffled = np.random.default_rng(0).permutation(len(train.y))
    held_out = options.held_out or (0 if test else len(shuffled) // 5)
    test = train.at(shuffled[:held_out]) if held_out or test is None else test
    train = train.at(shuffled[held_out:][: options.rows])
    test = test.at(np.random.default_rng(0).permutation(len(test.y))[: options.test_rows])
    return decoded(train, options.size), decoded(test, options.size)


def paths(folder: Path) -> Rows:
    """Returns the paths of the images in a folder with a subfolder per class."""
    classes = sorted(path for path in folder.iterdir() if path.is_dir())
    files = [(str(path), y) for y, of in enumerate(classes) for path in sorted(of.glob("[!.]*"))]
    return Rows(*map(np.array, zip(*files, strict=True)))


def decoded(rows: Rows, size: int) -> Rows:
    """Reads the images, if the rows are paths, and adds an axis of channels to grey ones."""
    x = rows.x
    if x.dtype.kind == "U":
        from PIL import Image

        read = lambda path: Image.open(path).convert("RGB").resize((size, size))  # noqa: E731
        x = np.stack([np.asarray(read(path)) for path in x])
    return Rows(x if x.ndim == 4 else x[..., None], rows.y.astype(np.int32))


def prototypes(number: int, seed: int) -> Rows:
    """Draws images of 16 x 16 pixels that are a coarse prototype of their class plus noise."""
    coarse = np.random.default_rng(0).normal(size=(10, 4, 4, 3))
    rng = np.random.default_rng(seed)
    y = rng.integers(10, size=number)
    x = coarse.repeat(4, axis=1).repeat(4, axis=2)[y]
    return Rows((x + 2 * rng.normal(size=x.shape)).astype(np.float32), y)


def standardized(x: Any, statistics: tuple[np.ndarray, np.ndarray]) -> jax.Array:
    """Returns images of zero mean and unit variance per channel; bytes become float32 here."""
    return (jnp.asarray(x, jnp.float32) - statistics[0]) / statistics[1]


def augment(key: jax.Array, x: jax.Array, options: argparse.Namespace) -> jax.Array:
    """Mirrors half of the images, and moves each by a few pixels."""
    for_mirror, for_shift = jax.random.split(key)
    if options.mirror:
        mirrored = jax.random.bernoulli(for_mirror, shape=(len(x), 1, 1, 1))
        x = jnp.where(mirrored, x[:, :, ::-1], x)
    if shift := options.shift:
        corners = jax.random.randint(for_shift, (len(x), 2), 0, 2 * shift + 1)
        wide = jnp.pad(x, ((0, 0), (shift, shift), (shift, shift), (0, 0)))
        cut = lambda image, at: jax.lax.dynamic_slice(image, (*at, 0), x.shape[1:])  # noqa: E731
        x = jax.vmap(cut)(wide, corners)
    return x


# --- Training


class Job(NamedTuple):
    """Network, data and compiled functions of one training."""

    options: argparse.Namespace
    network: Network
    training: Rows
    test: Rows
    statistics: tuple[np.ndarray, np.ndarray]  # mean and deviation of each channel of the images
    step: Callable[..., Any]
    predict: Callable[..., Any]
    estimate: Callable[..., Any]
    whole: NamedSharding  # on every device
    split: NamedSharding  # rows over the devices


def prepare(options: argparse.Namespace) -> Job:
    """Reads the data, and builds the network and its compiled functions."""
    training, test = load(options)
    if len(training.y) < options.batch:
        raise ValueError(f"{len(training.y)} rows to train on are fewer than --batch.")
    mean = training.x.mean((0, 1, 2), np.float64, keepdims=True).astype(np.float32)
    deviation = training.x.std((0, 1, 2), np.float64, keepdims=True).astype(np.float32)
    statistics = mean, deviation
    mesh = jax.make_mesh((jax.device_count(),), ("data",), axis_types=(AxisType.Auto,))
    whole, split = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("data"))
    net = network(options, standardized(training.x[:256], statistics), 1 + int(training.y.max()))

    def step(run: dict[str, Tree], key: jax.Array, x: jax.Array, y: jax.Array) -> Any:
        x = augment(jax.random.fold_in(key, run["step"]), standardized(x, statistics), options)

        def loss(raw: Tree) -> Any:
            logits, state = net.train(jn.effective(raw), run["state"], x, train=True)
            labels = optax.smooth_labels(jax.nn.one_hot(y, logits.shape[-1]), options.smoothing)
            return optax.softmax_cross_entropy(logits, labels).mean(), state

        (value, state), gradients = jax.value_and_grad(loss, has_aux=True)(run["raw"])
        updates, opt_state = net.tx.update(gradients, run["opt_state"], run["raw"])
        raw = optax.apply_updates(run["raw"], updates)
        # The average moves once per update, not once per microbatch: its weight is 0 otherwise.
        decay, count = options.average, jnp.maximum(opt_state.gradient_step, 1)
        weight = jnp.where(net.tx.has_updated(opt_state), (1 - decay) / (1 - decay**count), 0.0)
        average = optax.incremental_update(raw, run["average"], weight)
        # Likewise the relative update is 0 where a gradient is only accumulated.
        watched = jn.metrics(raw, updates, layout=net.layout)["total/relative_update"]
        after = {"step": run["step"] + 1, "raw": raw, "state": state}
        return after | {"opt_state": opt_state, "average": average}, value, watched

    def predict(raw: Tree, state: Tree, x: jax.Array) -> Any:
        x = standardized(x, statistics)
        return net.evaluate(jn.effective(raw), state, x, train=False)[0]

    def estimate(raw: Tree, x: jax.Array, size: int) -> Tree:
        model, params, x = net.model, jn.effective(raw), standardized(x, statistics)
        return jn.nnx.estimate_statistics(model, params, net.state, x, batch_size=size)

    # Parameters are whole on each device, rows are split: the compiler averages the gradients.
    compiled = jax.jit(step, donate_argnums=0, out_shardings=whole), jax.jit(predict)
    compiled += (jax.jit(estimate, static_argnums=2, out_shardings=whole),)
    return Job(options, net, training, test, statistics, *compiled, whole, split)


def begin(job: Job) -> dict[str, Tree]:
    """Returns all that changes in a training, in one tree: steps take it, checkpoints store it."""
    raw, state = job.network.raw, job.network.state
    run = {"step": jnp.int32(0), "raw": raw, "state": state, "average": raw}
    run["opt_state"] = job.network.tx.init(raw)
    run = jax.tree.map(jnp.copy, run)  # a step may overwrite its arguments
    placed: dict[str, Tree] = jax.device_put(run, job.whole)
    return placed


def train(job: Job, out: Path) -> tuple[dict[str, Tree], np.ndarray]:
    """Trains, from the newest checkpoint in the folder if there is one."""
    options, every = job.options, job.options.evaluate_every
    key = jax.random.key(options.seed)
    history = np.full((-(-options.updates // every), len(COLUMNS)), np.nan, np.float32)
    saved: Tree = {"run": begin(job), "history": history}
    keep = ocp.CheckpointManagerOptions(max_to_keep=2, enable_async_checkpointing=False)
    with ocp.CheckpointManager((out / "checkpoints").absolute(), options=keep) as checkpoints:
        if (newest := checkpoints.latest_step()) is not None:
            like = jax.tree.map(ocp.utils.to_shape_dtype_struct, saved)
            saved = checkpoints.restore(newest, args=ocp.args.StandardRestore(like))
        run, history, losses = saved["run"], saved["history"], []
        for step in range(int(run["step"]), options.updates * options.accumulate):
            rows = job.training.microbatch(step, options.batch // options.accumulate, options.seed)
            run, loss, relative_update = job.step(run, key, *jax.device_put(rows, job.split))
            losses.append(loss)
            update, rest = divmod(step + 1, options.accumulate)
            if rest or (update % every and update < options.updates):
                continue
            accuracies = accuracy(job, run["raw"]), accuracy(job, averaged(job, run))
            row = (update, np.mean(jax.device_get(losses)), relative_update, *accuracies)
            print("  ".join(f"{c} {v:.4g}" for c, v in zip(COLUMNS, row, strict=True)), flush=True)
            if not np.isfinite(row[1]):
                raise FloatingPointError(f"the loss is {row[1]} before update {update}.")
            history[(update - 1) // every], losses = row, []
            saved = {"run": run, "history": history}
            checkpoints.save(update, args=ocp.args.StandardSave(saved))
    return run, history


def averaged(job: Job, run: dict[str, Tree]) -> Tree:
    """Returns the average of the parameters."""
    raw = run["average"]
    if job.options.norm == "replaced" and job.options.constraint == "sphere":
        raw = jn.project(raw, layout=job.network.layout)  # averages lie inside of the sphere
    return raw  # averages of zero-sum weights sum to zero


def settled(job: Job, raw: Tree) -> Tree:
    """Returns the state that parameters are scored with: statistics of training rows under them.

    Statistics of small batches compete with those of a large one, on rows that neither has seen.
    """
    if job.options.norm != "bn":
        return job.network.state
    number, at_once = (min(limit, len(job.training.y)) for limit in STATISTICS)
    rows = job.training.at(np.arange(number))
    together = job.options.batch // job.options.accumulate
    if together >= SMALL or number < 2 * together:
        return job.estimate(raw, rows.x, at_once)
    kept = number - number // 4
    held_out = rows.at(np.arange(kept, number))
    states = [job.estimate(raw, rows.x[:kept], size) for size in (min(at_once, kept), together)]
    return min(states, key=lambda state: loss_of(job, raw, state, held_out))


def loss_of(job: Job, raw: Tree, state: Tree, rows: Rows) -> float:
    """Returns the mean loss of rows in evaluation."""
    logits = logits_of(job, partial(job.predict, raw, state), rows)
    return float(optax.softmax_cross_entropy_with_integer_labels(logits, rows.y).mean())


def accuracy(job: Job, raw: Tree) -> float:
    """Returns the share of test rows that are classified correctly, in per cent."""
    logits = logits_of(job, partial(job.predict, raw, settled(job, raw)), job.test)
    return 100 * float((logits.argmax(-1) == job.test.y).mean())


def logits_of(job: Job, predict: Callable[..., Any], rows: Rows) -> np.ndarray:
    """Returns the logits of rows."""
    batch, number, logits = job.options.batch, len(rows.y), []
    for first in range(0, number, batch):  # the last batch repeats the last row
        x = rows.x[np.minimum(np.arange(first, first + batch), number - 1)]
        logits.append(np.asarray(predict(jax.device_put(x, job.split))))
    return np.concatenate(logits)[:number]


def export(job: Job, run: dict[str, Tree], file: Path) -> float:
    """Writes the averaged weights of the plain network; returns the largest change of a logit.

    Its layers are the same whether it had batch normalization: convolutions with a bias.
    """
    raw = averaged(job, run)
    scored = settled(job, raw)
    model = nnx.merge(*nnx.split(job.network.model))
    nnx.update(model, jn.effective(raw), scored)  # with the statistics
    model.eval()
    x = standardized(job.test.x[:1], job.statistics)
    if job.options.norm == "bn":
        model, remaining = jn.nnx.fold_batch_norm(model, x)
        assert remaining == []
    apply, weights, state = jn.nnx.functionalize(model)
    arrays = {name(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(weights)}
    np.savez(file, mean=job.statistics[0], deviation=job.statistics[1], **arrays)

    with np.load(file) as arrays:  # as in inference
        statistics = arrays["mean"], arrays["deviation"]
        weights = jax.tree_util.tree_map_with_path(lambda path, _: arrays[name(path)], weights)
    plain = jax.jit(lambda x: apply(weights, state, standardized(x, statistics), train=False)[0])
    trained = partial(job.predict, raw, scored)
    with jax.default_matmul_precision("float32"):  # accelerators round products to fewer bits
        change = logits_of(job, plain, job.test) - logits_of(job, trained, job.test)
    return float(np.abs(change).max())


# --- The command line


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Reads and checks the options."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--data", type=Path, help="folder of images, or .npz file")
    add("--smoke", action="store_true", help="noisy prototypes in the place of data")
    add("--out", type=Path, required=True, help="folder for checkpoints, history and weights")
    add("--norm", choices=("bn", "replaced", "none"), default="replaced")
    add("--constraint", choices=("zero-sum", "sphere"), default="zero-sum", help="of `replaced`")
    add("--branches", choices=("quiet", "loud"), help="at the start; else quiet if replaced")
    add("--blocks", type=int, nargs="+", default=(2, 2, 2, 2), help="blocks of each stage")
    add("--width", type=int, default=64, help="channels of the first stage")
    add("--bfloat16", action="store_true", help="layers compute in bfloat16")
    add("--updates", type=int, default=10_000)
    add("--batch", type=int, default=128, help="rows per update")
    add("--accumulate", type=int, default=1, help="microbatches per update")
    add("--rate", type=float, default=0.1, help="highest learning rate")
    add("--decay", type=float, default=1e-3, help="weight decay of the kernels")
    add("--smoothing", type=float, default=0.1, help="of labels")
    add("--average", type=float, default=0.999, help="decay of the average of the parameters")
    add("--mirror", action=argparse.BooleanOptionalAction, default=True, help="half of the images")
    add("--shift", type=int, default=4, help="largest shift of a training image, in pixels")
    add("--size", type=int, default=32, help="pixels per side of images from a folder")
    add("--rows", type=int, help="train on this many rows only")
    add("--test-rows", type=int, help="evaluate on this many rows only")
    add("--held-out", type=int, default=0, help="evaluate on this many training rows instead")
    add("--evaluate-every", type=int, default=500, help="updates between checkpoints")
    add("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    if options.smoke == (options.data is not None):
        parser.error("pass either --data or --smoke.")
    if options.data and not options.data.exists():
        parser.error(f"--data {options.data} does not exist.")
    share = options.accumulate * jax.device_count()
    if options.batch % share:
        parser.error(f"--batch {options.batch} is no multiple of {share}, microbatches x devices.")
    options.out.mkdir(parents=True, exist_ok=True)
    known = vars(options) | {"statistics": "estimated anew"}  # of batch normalization
    record, text = options.out / "options.json", json.dumps(known, default=str, indent=1)
    if record.exists() and record.read_text() != text:
        parser.error(f"{options.out} has a training with other options: see {record}.")
    record.write_text(text)
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Trains, and exports the plain network. Returns the exit status."""
    options = parse(arguments)
    job = prepare(options)
    try:
        run, history = train(job, options.out)
    except FloatingPointError as error:
        print(error, file=sys.stderr)
        return 1
    header = ",".join(COLUMNS)
    np.savetxt(options.out / "history.csv", history, "%g", ",", header=header, comments="")
    change = export(job, run, options.out / "weights.npz")
    print(f"exported {options.out / 'weights.npz'}: logits change by at most {change:.1e}")
    return int(change > 1e-3)


if __name__ == "__main__":
    sys.exit(main())
