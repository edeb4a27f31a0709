"""Batch normalization taken out of a ResNet-18: initial loss and test accuracy by method.

    python examples/taken_out.py --seeds 3 --rates 0.1 0.3

Ten classes of noisy 16 x 16 prototypes, 1,024 training and 256 test rows. A ResNet-18 with a first
stage of 4 channels is trained for 48 updates of 64 rows by SGD with momentum 0.9, with warm-up,
cosine, clipping per layer at 1, a decay of 1e-3 on kernels and label smoothing. Batch normalization
is scored with the statistics of all training rows under the last weights, not with running ones.
The script prints a table in Markdown: mean and standard deviation over seeds. It compares many
trainings, each of them one compiled function; the file to copy is resnet18.py beside it.
"""

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from resnet18 import ResNet, kernels

import jaxnorm as jn

CLASSES, SIZE, BATCH, TRAINING, TEST = 10, 16, 64, 1024, 256
NOISE = 2.0


class Rows(NamedTuple):
    """Images and labels of training and test."""

    train: tuple[jax.Array, jax.Array]
    test: tuple[jax.Array, jax.Array]


def prototypes(seed: int) -> Rows:
    """Returns images that are a prototype of their class plus noise."""
    rng = np.random.default_rng(seed)
    coarse = rng.normal(size=(CLASSES, SIZE // 4, SIZE // 4, 3))
    of_class = coarse.repeat(4, axis=1).repeat(4, axis=2)

    def rows(number: int) -> tuple[jax.Array, jax.Array]:
        y = rng.integers(CLASSES, size=number)
        x = of_class[y] + NOISE * rng.normal(size=(number, SIZE, SIZE, 3))
        return jnp.asarray(x / np.hypot(1, NOISE), jnp.float32), jnp.asarray(y)

    return Rows(rows(TRAINING), rows(TEST))


class Network(NamedTuple):
    """Functions, initial parameters, state, and the transformation of its updates."""

    apply: Callable[..., Any]
    settled: Callable[..., Any]  # (params, state, training rows) -> state that is scored
    raw: Any
    state: Any
    constrained: Callable[[optax.GradientTransformation], optax.GradientTransformation]


def network(method: str, seed: int, x: jax.Array, width: int) -> Network:
    """Returns the ResNet-18 with batch normalization, or without it by a method."""
    model: nnx.Module = ResNet(x.shape[-1], CLASSES, nnx.Rngs(seed), width=width)
    method, *quiet = method.split(", ")
    if method != "batch normalization":
        model = jn.nnx.replace_batch_norm(model, x[:1])
    apply, params, state = jn.nnx.functionalize(model)
    settled: Callable[..., Any] = lambda params, state, x: state  # noqa: E731
    if method == "batch normalization":
        settled = partial(jn.nnx.estimate_statistics, model)

    def logits(params: Any, x: jax.Array) -> jax.Array:
        result: jax.Array = apply(params, state, x, train=True)[0]
        return result

    layout = jn.exclude("^head/", layout=jn.traced_layout(jn.read(logits, params, x[:1])))
    raw: Any = params
    constrained: Callable[..., Any] = lambda tx: tx  # noqa: E731
    if method == "constrain":
        raw, _ = jn.constrain(params, optax.identity(), layout=layout)
        constrained = lambda tx: jn.constrain(params, tx, layout=layout)[1]  # noqa: E731
    if method == "linearly_constrain":
        raw, _ = jn.linearly_constrain(params, optax.identity(), layout=layout)
        raw = jn.variance_preserving_init(jn.read(logits, raw, x[:256]), layout=layout)
        constrained = lambda tx: jn.linearly_constrain(params, tx, layout=layout)[1]  # noqa: E731
    if quiet:
        raw = jn.scale_branches(raw, jn.residual_factors(jn.read(logits, params, x[:1])))
    return Network(apply, settled, raw, state, constrained)


def trainer(network: Network, steps: int) -> Callable[..., Any]:
    """Returns the compiled training: initial loss and test accuracy by rate, rows and order."""

    def run(raw: Any, state: Any, rate: Any, rows: Rows, key: Any) -> Any:
        schedule = optax.warmup_cosine_decay_schedule(0.0, 1.0, steps // 10, steps)
        tx = network.constrained(
            optax.chain(
                jn.clip_by_layer_norm(1.0),
                optax.add_decayed_weights(1e-3, mask=kernels),
                optax.sgd(lambda count: rate * schedule(count), momentum=0.9),
            )
        )

        def step(carry: Any, at: jax.Array) -> Any:
            raw, state, opt_state = carry
            x, y = (array[at] for array in rows.train)
            smooth = optax.smooth_labels(jax.nn.one_hot(y, CLASSES), 0.1)

            def loss(raw: Any) -> Any:
                logits, after = network.apply(jn.effective(raw), state, x, train=True)
                plain = optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()
                return optax.softmax_cross_entropy(logits, smooth).mean(), (after, plain)

            gradient, (state, plain) = jax.grad(loss, has_aux=True)(raw)
            updates, opt_state = tx.update(gradient, opt_state, raw)
            return (optax.apply_updates(raw, updates), state, opt_state), plain

        epochs = -(-steps * BATCH // TRAINING)
        orders = [jax.random.permutation(k, TRAINING) for k in jax.random.split(key, epochs)]
        batches = jnp.concatenate(orders)[: steps * BATCH].reshape(steps, BATCH)
        (raw, state, _), losses = jax.lax.scan(step, (raw, state, tx.init(raw)), batches)
        params = jn.effective(raw)
        state = network.settled(params, state, rows.train[0])
        x, y = rows.test
        logits, _ = network.apply(params, state, x, train=False)
        return losses[0], (logits.argmax(-1) == y).mean()

    compiled: Callable[..., Any] = jax.jit(run)
    return compiled


METHODS = (
    "batch normalization",
    "deleted",
    "deleted, quiet branches",
    "constrain",
    "constrain, quiet branches",
    "linearly_constrain",
    "linearly_constrain, quiet branches",
)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rates", type=float, nargs="+", default=[0.1, 0.3])
    parser.add_argument("--steps", type=int, default=48)
    parser.add_argument("--width", type=int, default=4)
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=METHODS)
    options = parser.parse_args()
    print(f"| method | initial loss | {' | '.join(f'rate {r:g}' for r in options.rates)} |")
    print(f"|---|---:|{'---:|' * len(options.rates)}")
    data = [prototypes(seed) for seed in range(options.seeds)]
    for method in options.methods:
        start, accuracies, train = [], [], None
        for seed, rows in enumerate(data):
            net = network(method, seed, rows.train[0], options.width)
            train = train or trainer(net, options.steps)
            found = [
                train(net.raw, net.state, r, rows, jax.random.key(seed)) for r in options.rates
            ]
            start.append(float(found[0][0]))
            accuracies.append([100 * float(accuracy) for _, accuracy in found])
        columns = [spread(column, 1) for column in zip(*accuracies, strict=True)]
        print(f"| {method} | {spread(start, 2)} | {' | '.join(columns)} |", flush=True)


def spread(values: Any, digits: int) -> str:
    """Returns mean and standard deviation."""
    deviation = np.std(values, ddof=1) if len(values) > 1 else 0.0
    return f"{np.mean(values):.{digits}f} ± {deviation:.{digits}f}"


if __name__ == "__main__":
    main()
