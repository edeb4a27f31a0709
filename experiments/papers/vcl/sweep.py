"""All seeds of a small network at once: one program for many data sets."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int, PyTree, UInt

from experiments.config import Config
from experiments.methods.constrained import ClippedByLayer
from experiments.methods.method import Method
from experiments.methods.normalizers import Dropout, Normalized
from experiments.methods.optimizer import make_optimizer
from experiments.methods.variance_constancy import VarianceConstancy
from experiments.papers.vcl.padded import Padded, Part, Sizes
from experiments.training.ahead_of_time import AheadOfTime
from experiments.training.state import Batch, TrainState, epoch_keys, row_keys
from experiments.training.step import make_step
from experiments.training.trainer import make_context, make_init, network_of

Apply = Callable[..., tuple[Array, PyTree]]

#: Parts that a sweep can train: they edit no kernels and do nothing between steps.
PARTS = (ClippedByLayer, Dropout, Normalized, VarianceConstancy)

#: The number of rows evaluated at once.
CHUNK = 256


class Curve(NamedTuple):
    """Measures after each epoch, errors as fractions.

    Attributes:
        train_loss: the mean over the epoch's steps, each before its update.
        validation_error: the error after the epoch, in evaluation mode.
        test_error: the error after the epoch, in evaluation mode.
    """

    train_loss: Float[Any, "*runs epochs"]
    validation_error: Float[Any, "*runs epochs"]
    test_error: Float[Any, "*runs epochs"]


def make_sweep(method: Method, config: Config, capacity: Sizes) -> AheadOfTime:
    """Makes a function ``(data, seeds) -> Curve`` of shape (seeds, epochs), compiled once.

    The numbers of rows, features and classes are arguments of the program. Initial weights, batches
    and losses do not depend on the padding.

    Args:
        method: a method whose parts are among `PARTS`.
        config: the configuration of an mlp.
        capacity: the sizes of the arrays.
    """
    if other := [part for part in method.parts if not isinstance(part, PARTS)]:
        raise ValueError(
            f"a sweep trains plain kernels without work between steps, and {method.name} has "
            f"{other[0]}; use make_trainer."
        )
    by_seed: Any = (0, 0, 0, None)
    return AheadOfTime(jax.vmap(make_run(method, config, capacity), (Padded(*by_seed), 0)))


def make_run(method: Method, config: Config, capacity: Sizes) -> Callable[[Padded, Array], Curve]:
    """Makes one run of `make_sweep`: ``(data, seed) -> Curve``."""
    network = partial(network_of, method, config, (capacity.features,), capacity.classes)
    model = nnx.eval_shape(lambda: network(jax.random.key(0)))
    context = make_context(method, model, config, (capacity.features,))
    apply = context.functional.apply

    def run(data: Padded, seed: UInt[Array, ""]) -> Curve:
        steps = data.sizes.train // config.batch_size
        optimizer = make_optimizer(method, config, steps * config.epochs, context)
        masked_apply = partial(_masked, apply, data.sizes.classes)
        masked = context._replace(functional=context.functional._replace(apply=masked_apply))
        step = make_step(method, masked, optimizer)
        init = make_init(method, context, network, lambda seed: optimizer)
        state = as_unpadded(init(seed, data.train.X), seed, data.sizes)

        def epoch(state: TrainState, _: None) -> tuple[TrainState, Curve]:
            order = padded_order(state, len(data.train.y), data.sizes.train)

            def body(index: Int[Array, ""], carry: tuple[TrainState, Array]) -> Any:
                state, loss = carry
                first = index * config.batch_size
                rows = jax.lax.dynamic_slice(order, (first,), (config.batch_size,))
                keys = row_keys(state, index, len(rows))
                state, metrics = step(state, Batch(data.train.X[rows], data.train.y[rows], keys))
                return state, loss + metrics.loss

            state, loss = jax.lax.fori_loop(0, steps, body, (state, jnp.float32(0)))
            state = state._replace(epoch=state.epoch + 1)
            validation = error(method, masked_apply, state, data.validation, data.sizes.validation)
            test = error(method, masked_apply, state, data.test, data.sizes.test)
            return state, Curve(loss / steps.astype(jnp.float32), validation, test)

        return jax.lax.scan(epoch, state, length=config.epochs)[1]

    return run


def padded_order(state: TrainState, capacity: int, rows: Int[Array, ""]) -> Int[Array, " capacity"]:
    """Draws the coming epoch's order of the data's rows, independently of the padding."""
    draws = jax.random.uniform(epoch_keys(state)[0], (capacity,))
    return jnp.argsort(jnp.where(jnp.arange(capacity) < rows, draws, jnp.inf))


def as_unpadded(state: TrainState, seed: UInt[Array, ""], sizes: Sizes) -> TrainState:
    """Replaces the initial weights by those of a network of the data's own sizes.

    The first kernel gets the scale of the data's fan-in. The classifier's kernel is drawn class by
    class, so that the data's classes get the same draws whatever the padding.
    """
    params = dict(state.params)
    first, head = params["blocks"][0], params["head"]
    kernel = first["linear"]["kernel"]
    factor = jnp.sqrt(kernel.shape[0] / sizes.features.astype(jnp.float32))
    linear = first["linear"] | {"kernel": kernel * factor}
    params["blocks"] = params["blocks"] | {0: first | {"linear": linear}}
    classwise = nnx.initializers.lecun_normal(in_axis=-1, out_axis=-2)
    drawn = classwise(jax.random.fold_in(jax.random.key(seed), 1), head["kernel"].shape[::-1])
    params["head"] = head | {"kernel": drawn.T}
    return state._replace(params=params)


def error(
    method: Method, apply: Apply, state: TrainState, part: Part, rows: Int[Array, ""]
) -> Float[Array, ""]:
    """Returns the fraction of the leading rows that are classified wrongly, or not finite."""
    weights = method.weights(state.params, state.method_state)

    def body(index: Int[Array, ""], wrong: Int[Array, ""]) -> Int[Array, ""]:
        at = index * CHUNK + jnp.arange(CHUNK)
        taken = jnp.minimum(at, rows - 1)
        logits, _ = apply(weights, state.model_state, part.X[taken], train=False)
        is_right = (logits.argmax(-1) == part.y[taken]) & jnp.isfinite(logits).all(-1)
        return wrong + jnp.sum(~is_right & (at < rows))

    wrong = jax.lax.fori_loop(0, (rows + CHUNK - 1) // CHUNK, body, jnp.int32(0))
    return wrong.astype(jnp.float32) / rows.astype(jnp.float32)


def _masked(
    apply: Apply, classes: Int[Array, ""], params: PyTree, state: PyTree, X: Array, *, train: bool
) -> tuple[Array, PyTree]:
    """Applies the network, and sets the logits of padded classes to the lowest number."""
    logits, state = apply(params, state, X, train=train)
    present = jnp.arange(logits.shape[-1]) < classes
    return jnp.where(present[None], logits, jnp.finfo(logits.dtype).min), state
