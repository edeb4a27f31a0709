"""Optimizers in coordinates in which the scale of each unit is apart from its direction."""

from collections.abc import Hashable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from jaxnorm._checks import check_no_functions, check_params
from jaxnorm._input_means import (
    ByPath,
    Pairs,
    averaged,
    check_finite_statistics,
    check_same_tree,
    pairs_of,
    positions,
    product_gradients,
)
from jaxnorm._layout import Layout
from jaxnorm._node import Axes
from jaxnorm._numerics import nonzero, promote, wide_dtype
from jaxnorm._paths import Path, is_absent, map_entries, named_entries
from jaxnorm._phases import unit_sum
from jaxnorm._sphere import squared_norm
from jaxnorm._trace.interpret import Program, compiled
from jaxnorm._trace.reading import Reading, of_reading
from jaxnorm._trace.replay import Layer

Values = Float[Array, "..."]


class DecoupledScalesState(NamedTuple):
    """State of `decoupled_scales`.

    Attributes:
        slopes: the parameters' structure with S of each kernel, of its shape, in float32 or wider:
            the derivative of half the variance of a channel's pre-activations by its weights, which
            is their covariance with its inputs; MaskedNode elsewhere.
        sizes: the same with the norm of each unit when the optimizer was made, its fan-in axes as
            axes of size 1 (each tap of a phase has the value of its phase).
        inner_state: the state of the wrapped optimizer.
    """

    slopes: PyTree
    sizes: PyTree
    inner_state: Any


@of_reading
def decoupled_scales(
    net: Reading,
    optimizer: optax.GradientTransformation,
    *,
    layout: Layout | None = None,
) -> optax.GradientTransformationExtraArgs:
    """Wraps an optimizer: its steps change a unit's variance by its scale alone.

    With S = cov(x, w'x), the slope of half a unit's variance by its weights w, and k the norm of
    the unit at the start, the optimizer sees v = w / k and

        g_v = k (g + (w'g) d),    u_w = k (u_v + (d'u_v) w),    d = w / ||w||^2 - S / (w'S).

    The steps that are orthogonal to w keep the variance of the pre-activations to first order
    (S'u_w = 0), those along w scale it, and w is measured by the size that it starts with. So the
    first step of gradient descent is that of batch normalization with scale 1 and weights of norm
    1, together with `centered_inputs` (which brings the means): the statistics are constants
    between two refreshes, and the forward pass does not change.

    Args:
        net: the model, as `read` returns it, at plain parameters with the start fitted (units of
            norm 0 are measured by 1), and at the minibatch on which the first S are measured.
        optimizer: any optax transformation. It clips and decays v.
        layout: the kernels, if they have a bias of their own; None for the reading's.

    Returns:
        A transformation that needs ``params``. `refresh_input_means` renews S, too.

    Under jit, pmap and shard_map with replicated parameters every device does the same, with no
    collective. A step costs three passes over each kernel's update.

    Source: the gradient of batch normalization (Ioffe and Szegedy 2015, section 3) by a layer's
    weights, with fixed statistics; scale and direction are those of Salimans and Kingma 2016.
    """
    pairs = pairs_of(net, layout)

    def slopes(params: PyTree, *inputs: Any) -> ByPath:
        return measured_slopes(net.at(params, inputs).running(pairs), pairs)

    first = compiled(slopes, net.params, net.inputs)
    check_finite_statistics(first, "decoupled_scales")
    sizes = {
        path: nonzero(jnp.sqrt(squared_norm(promote(w), pairs[path].fan_in)))
        for path, w in named_entries(net.params)
        if path in pairs
    }
    inner = optax.with_extra_args_support(optimizer)

    def of(values: ByPath, tree: PyTree) -> PyTree:
        present = {path for path, x in named_entries(tree) if not is_absent(x)} & values.keys()
        return map_entries(
            # The state's own: donated, it would take the optimizer's array with it.
            lambda path, _: jnp.copy(values[path]) if path in present else optax.MaskedNode(),
            tree,
        )

    def init(params: PyTree) -> DecoupledScalesState:
        check_same_tree(pairs, params, "init of decoupled_scales")
        slopes, norms = of(first, params), of(sizes, params)
        return DecoupledScalesState(slopes, norms, inner.init(_relative(params, norms)))

    def update(
        updates: PyTree, state: DecoupledScalesState, params: PyTree | None = None, **extra: Any
    ) -> tuple[PyTree, DecoupledScalesState]:
        check_params(params, "decoupled_scales")
        check_no_functions(extra, "decoupled_scales")
        gradients = covectors(updates, state, params, pairs)
        steps, inner_state = inner.update(
            gradients, state.inner_state, _relative(params, state.sizes), **extra
        )
        return _vectors(steps, state, params, pairs), state._replace(inner_state=inner_state)

    return optax.GradientTransformationExtraArgs(init, update)


def renewed_slopes(
    opt_state: PyTree,
    program: Program,
    pairs: Pairs,
    decay: float | Float[Array, ""],
    axis_name: Hashable | None = None,
) -> PyTree:
    """Returns a state whose S moved towards those of a program's minibatch; momentum stays."""
    states = [x for x in jax.tree.leaves(opt_state, is_leaf=_is_state) if _is_state(x)]
    if not states:
        return opt_state
    kept = {path for x in states for path, s in named_entries(x.slopes) if not is_absent(s)}
    pairs = {path: pair for path, pair in pairs.items() if path in kept}
    values = measured_slopes(program, pairs, axis_name)

    def renewed(x: Any) -> Any:
        return x._replace(slopes=averaged(x.slopes, values, decay)) if _is_state(x) else x

    return jax.tree.map(renewed, opt_state, is_leaf=_is_state)


def _is_state(x: Any) -> bool:
    return isinstance(x, DecoupledScalesState)


def measured_slopes(program: Program, pairs: Pairs, axis_name: Hashable | None = None) -> ByPath:
    """Returns S of these kernels by path: gradients of half the variances of their channels."""

    def half_variance(layer: Layer, operands: list[Any], result: Values) -> Values:
        z = promote(result)
        axes = positions(layer, z)
        mean = jax.lax.stop_gradient(z.mean(axes, keepdims=True))
        if axis_name is not None:
            mean = jax.lax.pmean(mean, axis_name)
        return jnp.square(z - mean).mean(axes).sum() / 2

    gradients = product_gradients(program, pairs, half_variance)
    slopes = {path: gradients[path] / pair.uses for path, pair in pairs.items()}
    return slopes if axis_name is None else jax.lax.pmean(slopes, axis_name)


def covectors(
    gradients: PyTree, state: DecoupledScalesState, params: PyTree, pairs: Pairs
) -> PyTree:
    """Returns gradients by v: k (g + (w'g) d)."""

    def edited(g: Values, w: Values, slope: Values, size: Values, axes: Axes) -> Values:
        along = unit_sum(w * g, axes)
        return size * (g + along * _shear(w, slope, axes))

    return _edited(edited, gradients, state, params, pairs)


def _vectors(steps: PyTree, state: DecoupledScalesState, params: PyTree, pairs: Pairs) -> PyTree:
    """Returns steps of w: k (u + (d'u) w)."""

    def edited(u: Values, w: Values, slope: Values, size: Values, axes: Axes) -> Values:
        along = unit_sum(_shear(w, slope, axes) * u, axes)
        return size * (u + along * w)

    return _edited(edited, steps, state, params, pairs)


def _edited(
    edit: Any,
    tree: PyTree,
    state: DecoupledScalesState,
    params: PyTree,
    pairs: Pairs,
) -> PyTree:
    weights, slopes, sizes = (
        dict(named_entries(each)) for each in (params, state.slopes, state.sizes)
    )

    def edited(path: Path, x: Any) -> Any:
        if path not in slopes or is_absent(slopes[path]) or is_absent(x):
            return x
        wide = wide_dtype(x.dtype, weights[path].dtype)
        several = [each[path].astype(wide) for each in (weights, slopes, sizes)]
        return edit(x.astype(wide), *several, pairs[path].fan_in).astype(x.dtype)

    return map_entries(edited, tree)


def _shear(w: Values, slope: Values, axes: Axes) -> Values:
    """Returns d = w / ||w||^2 - S / (w'S); 0 for units without weights or variance."""
    square, variance = squared_norm(w, axes), unit_sum(w * slope, axes)
    is_flat = (square <= 0) | (variance <= 0)
    difference = w / nonzero(square, is_flat) - slope / nonzero(variance, is_flat)
    return jnp.where(is_flat, 0, difference)


def _relative(params: PyTree, sizes: PyTree) -> PyTree:
    """Returns parameters with v = w / k in the place of w."""
    norms = dict(named_entries(sizes))

    def edited(path: Path, w: Any) -> Any:
        if path not in norms or is_absent(norms[path]) or is_absent(w):
            return w
        return (promote(w) / norms[path]).astype(w.dtype)

    return map_entries(edited, params)
