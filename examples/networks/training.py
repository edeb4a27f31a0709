"""A whole training as one compiled program, for any seed, rate and decay.

Batch normalization is scored with statistics of training rows under the final parameters.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

import jaxnorm as jn
from examples.networks.earlier import WARM_UP
from examples.networks.methods import Prepared, has_input_means, optimizer
from examples.networks.statistics import ROWS, at_once, settled


class Arrays(NamedTuple):
    """The rows, on the device.

    Attributes:
        x: images, uint8, or standardized float32.
        y: labels, one per image or per pixel.
    """

    x: jax.Array
    y: jax.Array


class Split(NamedTuple):
    """Rows to train on, to choose by, to report; and the scale of the pixels.

    Attributes:
        train, held_out, test: the rows.
        mean, std: of the pixels of the rows to train on, per channel.
    """

    train: Arrays
    held_out: Arrays
    test: Arrays
    mean: jax.Array
    std: jax.Array


class Plan(NamedTuple):
    """Settings that are fixed within a program.

    Attributes:
        method: one of METHODS.
        optimizer: "sgd", "adamw", "adamw relative", "muon" or "muon relative".
        steps: updates.
        batch: rows per update.
        refresh: updates between two measurements of the input means; 0 for none.
        momentum: the share of the old input means that stays at a measurement.
        augment: whether images are shifted by up to an eighth of their side, and mirrored.
        bfloat16: whether the network computes in bfloat16.
        mapped: whether many runs are mapped at once.
        classes: the number of classes.
        warm_up: the share of the updates in which the rate rises.
    """

    method: str
    optimizer: str
    steps: int
    batch: int
    refresh: int
    momentum: float
    augment: bool
    bfloat16: bool
    mapped: bool
    classes: int
    warm_up: float = WARM_UP


Outcome = dict[str, jax.Array]


def standardized(x: jax.Array, split: Split) -> jax.Array:
    """Returns pixels of mean 0 and variance 1 per channel."""
    return (x.astype(jnp.float32) - split.mean) / split.std


def order(seed: Any, rows: int, steps: int, batch: int) -> jax.Array:
    """Returns the rows of each batch, epoch by epoch, (steps, batch)."""
    per_epoch = rows // batch
    epochs = -(-steps // per_epoch)
    keys = jax.random.split(jax.random.fold_in(jax.random.key(7), seed), epochs)
    rows_of = jax.vmap(lambda key: jax.random.permutation(key, rows)[: per_epoch * batch])(keys)
    return rows_of.reshape(-1, batch)[:steps]


def augmented(key: jax.Array, x: jax.Array) -> jax.Array:
    """Returns images shifted by up to an eighth of their side, and half of them mirrored."""
    flip, place = jax.random.split(key)
    n, side = x.shape[:2]
    margin = side // 8
    mirrored = jnp.where(jax.random.bernoulli(flip, shape=(n, 1, 1, 1)), x[:, :, ::-1], x)
    padded = jnp.pad(mirrored, ((0, 0), (margin, margin), (margin, margin), (0, 0)))
    starts = jax.random.randint(place, (n, 2), 0, 2 * margin + 1)
    rows = starts[:, :1] + jnp.arange(side)
    columns = starts[:, 1:] + jnp.arange(side)
    return padded[jnp.arange(n)[:, None, None], rows[:, :, None], columns[:, None, :]]


def make_run(prepared: Prepared, plan: Plan) -> Callable[..., Outcome]:
    """Returns ``run(split, seed, rate, decay)``, one training with its evaluation."""
    built = prepared.built
    if plan.mapped and plan.bfloat16:
        raise ValueError("mapped trainings are in float32: leave out --lanes or --bfloat16.")
    # A CPU's convolutions are slow inside of loops, its products of matrices are not.
    as_products = plan.mapped or jax.default_backend() == "cpu"
    form = built.narrow if plan.bfloat16 else built.fast if as_products else built.usual
    apply = form.apply
    in_training = _in_training(apply, prepared)

    def run(split: Split, seed: Any, rate: Any, decay: Any) -> Outcome:
        clips = prepared.clips_layers
        base = optimizer(plan.optimizer, rate, decay, plan.steps, clips, plan.warm_up)
        raw, tx = prepared.start(seed, base)

        def loss_of(raw: Any, state: Any, key: Any, x: Any, y: Any) -> Any:
            logits, state = in_training(key, raw, state, x)
            return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean(), state

        def step(carry: Any, inputs: Any) -> Any:
            raw, state, opt_state = carry
            index, rows = inputs
            x, y = standardized(split.train.x[rows], split), split.train.y[rows]
            if plan.augment:
                x = augmented(_key_of(11, seed, index), x)
            if plan.refresh and has_input_means(plan.method):
                opt_state = _refreshed(built.logits, plan, index, opt_state, raw, x)
            (value, state), gradient = jax.value_and_grad(loss_of, has_aux=True)(
                raw, state, _key_of(13, seed, index), x, y
            )
            updates, opt_state = tx.update(gradient, opt_state, raw)
            return (optax.apply_updates(raw, updates), state, opt_state), value

        rows = order(seed, len(split.train.x), plan.steps, plan.batch)
        carry = (raw, built.state, tx.init(raw))
        (raw, state, _), losses = jax.lax.scan(step, carry, (jnp.arange(plan.steps), rows))
        plain = prepared.plain(raw)
        sample = standardized(split.train.x[:ROWS], split), split.train.y[:ROWS]
        state = settled(*form, plain, state, sample, plan.batch)

        def logits_of(x: jax.Array) -> jax.Array:
            return apply(plain, state, standardized(x, split), train=False)[0]

        last = losses[-max(1, plan.steps // 20) :]
        return {
            "initial_loss": losses[0],
            "training_loss": last.mean(),
            "finite": jnp.isfinite(losses).all(),
            "held_out": 100 * score(logits_of, split.held_out, plan.classes),
            "test": 100 * score(logits_of, split.test, plan.classes),
        }

    return run


def _key_of(purpose: int, seed: Any, index: Any) -> jax.Array:
    """Returns the key of an update of a training, one for each purpose."""
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(purpose), seed), index)


def _in_training(apply: Callable[..., Any], prepared: Prepared) -> Callable[..., Any]:
    """Returns ``applied(key, raw, state, x) -> (logits, state)``, with the method's noise."""
    plain_of = prepared.plain
    if prepared.in_loss is not None:
        in_loss = prepared.in_loss(apply)
        return lambda key, raw, state, x: (in_loss(raw, x), state)
    if not prepared.noise:
        return lambda key, raw, state, x: apply(plain_of(raw), state, x, train=True)
    layout = jn.exclude(prepared.noiseless)

    def applied(key: Any, raw: Any, state: Any, x: Any) -> Any:
        # Without batch normalization the state does not change.
        plain = lambda params, x: apply(params, state, x, train=True)[0]  # noqa: E731
        noisy = jn.with_scale_noise(plain, prepared.noise, layout=layout)
        return noisy(key, plain_of(raw), x), state

    return applied


def _refreshed(logits: Any, plan: Plan, index: Any, opt_state: Any, raw: Any, x: Any) -> Any:
    """Returns the optimizer's state, with input means renewed every ``plan.refresh`` updates."""

    def renewed(opt_state: Any) -> Any:
        return jn.refresh_input_means(
            jn.read(logits, jn.effective(raw), x), opt_state, decay=plan.momentum
        )

    if plan.refresh == 1:
        return renewed(opt_state)
    # The index is the same in all mapped runs, so that the branch stays a branch.
    return jax.lax.cond(index % plan.refresh == 0, renewed, lambda state: state, opt_state)


def score(logits_of: Callable[..., jax.Array], rows: Arrays, classes: int) -> jax.Array:
    """Returns the accuracy, or for labels per pixel the mean intersection over union."""
    size = next(size for size in range(at_once(rows.y), 0, -1) if len(rows.x) % size == 0)
    x, y = (part.reshape(-1, size, *part.shape[1:]) for part in rows)

    def counted(parts: Any) -> jax.Array:
        predicted, label = logits_of(parts[0]).argmax(-1), parts[1]
        one = lambda labels: jax.nn.one_hot(labels.reshape(-1), classes)  # noqa: E731
        return jnp.einsum("na,nb->ab", one(label), one(predicted), precision="highest")

    table = jax.lax.map(counted, (x, y)).sum(0)
    hits = jnp.diagonal(table)
    if y.ndim == 2:
        return hits.sum() / table.sum()
    union = table.sum(0) + table.sum(1) - hits
    return (hits / jnp.maximum(union, 1)).sum() / (union > 0).sum(dtype=jnp.float32)
