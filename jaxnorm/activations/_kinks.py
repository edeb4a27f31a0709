"""Where the slope of an activation jumps, as a function of its traced parameters."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxnorm.activations._evaluate import Activation, slope, traced_columns

Columns = Float[Array, "_ channels"]

#: So many panels are looked into: those in which the slope jumps most, and the one with 0 in it.
PLACES = 9
#: Each is narrowed so often to one of so many parts: to 2^-16 of its width.
ROUNDS, PARTS = 4, 16
#: A jump of fewer roundings than this is none.
ROUNDINGS = 64


def chosen_panels(
    activation: Activation, edges: Float[Array, " edges"]
) -> tuple[Int[Array, "places channels"], Columns]:
    """The panels in which the slope jumps most, and by how much it changes from edge to edge.

    A jump is a change that the neighbours do not share, as they share that of a smooth function.
    The panel with 0 in it is always one of them: at the slope 1 a PReLU has no kink, and its
    derivative has.
    """
    change = jnp.abs(jnp.diff(traced_columns(slope(activation), edges[:, None]), axis=0))
    padded = jnp.pad(change, ((1, 1), (0, 0)), mode="edge")
    jump = jax.lax.stop_gradient(change - (padded[:-2] + padded[2:]) / 2)
    has_zero = (edges[:-1] < 0) & (edges[1:] > 0)
    jump = jnp.where(has_zero[:, None], jnp.inf, jump)
    chosen = jax.lax.top_k(jump.T, PLACES)[1].T
    return chosen, jnp.take_along_axis(change, chosen, axis=0)


def kinks(activation: Activation, left: Columns, right: Columns, change: Columns) -> Columns:
    """The place of the kink in each panel; where there is none, that which is nearest to 0.

    Both sides are continued as straight lines from a narrow interval around it, and meet at it: so
    its derivative is known although no comparison of numbers has one. Where they do not meet, the
    activation itself jumps, at a place whose derivative is not to be had.
    """
    low, high = _narrowed(activation, left, right)
    values, slopes = jax.jvp(
        lambda x: traced_columns(activation, x),
        (jnp.concatenate([low, high]),),
        (jnp.ones((2 * low.shape[0], low.shape[1]), low.dtype),),
    )
    (f_low, f_high), (s_low, s_high) = jnp.split(values, 2), jnp.split(slopes, 2)
    middle, jump = (low + high) / 2, s_high - s_low
    gap = (f_high - s_high * (high - middle)) - (f_low + s_low * (middle - low))

    eps = float(jnp.finfo(low.dtype).eps)
    steepest = jnp.maximum(jnp.abs(s_low), jnp.abs(s_high))
    rounding = 16 * eps * (jnp.abs(f_low) + jnp.abs(f_high))
    is_kink = (jnp.abs(jump) > jnp.maximum(ROUNDINGS * eps * steepest, change / 4)) & (
        jnp.abs(gap) <= jnp.abs(jump) * (high - low) + rounding
    )
    move = -gap / jnp.where(is_kink, jump, 1)
    place = jax.lax.stop_gradient(jnp.clip(middle + move, low, high))
    moving = place + (move - jax.lax.stop_gradient(move))
    return jnp.where(is_kink, moving, jnp.clip(jnp.zeros_like(left), left, right))


def _narrowed(activation: Activation, left: Columns, right: Columns) -> tuple[Columns, Columns]:
    """The part of each panel in which the slope changes most, and of that part the part, ..."""
    fractions = jnp.arange(PARTS + 1, dtype=left.dtype)[:, None, None] / PARTS
    for _ in range(ROUNDS):
        points = left[None] + fractions * (right - left)[None]
        flat = points.reshape(-1, left.shape[1])
        slopes = traced_columns(slope(activation), flat).reshape(points.shape)
        best = jnp.argmax(jnp.abs(jnp.diff(slopes, axis=0)), axis=0)[None]
        left, right = (jnp.take_along_axis(points, best + end, axis=0)[0] for end in (0, 1))
    return left, right
