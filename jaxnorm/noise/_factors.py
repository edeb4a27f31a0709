"""1 + n for a layer's product: one draw a sample and unit, a position, or a step."""

import zlib
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from jaxnorm._trees._paths import Path

#: What shares a draw: ``sample``, all positions of a unit in a sample; ``position``, nothing;
#: ``step``, all samples and positions of a unit.
Per = Literal["sample", "position", "step"]


def layer_keys(keys: Key[Array, "*rows"], path: Path, *numbers: Any) -> Key[Array, "*rows"]:
    """A layer's own keys, by its path and its numbers.

    These are how often its kernel was used before, and its place in a stack of layers.
    """
    for number in (zlib.crc32(str(path).encode()), *numbers):
        keys = _fold_in(keys, number)
    return keys


def threefry(keys: Key[Array, "*rows"]) -> Key[Array, "*rows"]:
    """Keys of the one generator whose draws do not depend on sharding or vmap."""
    if str(jax.random.key_impl(keys)) == "threefry2x32":
        return keys
    words = jax.random.key_data(keys)
    made: Key[Array, "*rows"] = jax.random.wrap_key_data(words[..., :2], impl="threefry2x32")
    for number in range(2, words.shape[-1]):
        made = _fold_in(made, words[..., number])
    return made


def noise_factor(
    keys: Key[Array, "*rows"],
    stddev: Float[Array, ""],
    shape: tuple[int, ...],
    sample_axis: int | None,
) -> Float[Array, "..."]:
    """1 + n, of the rank of ``shape``.

    Args:
        keys: one for each index of the sample axis; one alone without such an axis.
        stddev: sigma, in the type of the result.
        shape: the sizes of the draws; 1 along axes that share one.
        sample_axis: where the samples are; None if all share their draws.
    """
    if sample_axis is None:
        return 1 + stddev * jax.random.normal(keys, shape, stddev.dtype)
    own = shape[:sample_axis] + shape[sample_axis + 1 :]
    draws = jax.vmap(lambda key: jax.random.normal(key, own, stddev.dtype))(keys)
    return 1 + stddev * jnp.moveaxis(draws, 0, sample_axis)


def _fold_in(keys: Key[Array, "*rows"], number: Any) -> Key[Array, "*rows"]:
    numbers = jnp.broadcast_to(jnp.asarray(number, jnp.uint32), keys.shape)
    fold_in = jax.random.fold_in if keys.ndim == 0 else jax.vmap(jax.random.fold_in)
    folded: Key[Array, "*rows"] = fold_in(keys, numbers)
    return folded
