"""The constraint as an edit of the update: params + update lands on the sphere."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import optax
from jaxtyping import PyTree

from jaxnorm._constraints._project import kernels_of
from jaxnorm._constraints._unit import center, near_sphere, squared_norm
from jaxnorm._numerics import promote
from jaxnorm._trees._constrained import Setting, map_constrained, setting_per_leaf
from jaxnorm._trees._layout import Layout, flax_layout
from jaxnorm._trees._node import Axes
from jaxnorm._trees._paths import flat_leaves, is_absent, rebuild


class OwnNormsState(NamedTuple):
    """State of a `sphere_projection` without a radius: each storage rounding would move the norms.

    Attributes:
        squared_norms: the parameters' structure with ||w||^2 of each unit of a constrained kernel,
            in float32 or wider with the fan-in axes as axes of size 1; MaskedNode elsewhere.
    """

    squared_norms: PyTree


def sphere_projection(
    *,
    layout: Layout = flax_layout,
    squared_radius: Setting = 2.0,
    centered: Setting = True,
    tangent: bool = False,
) -> optax.GradientTransformation:
    """Edits the update so that params + update is on {w : ||w||^2 = c, and 1'w = 0 if centered}.

    The edit is the exact Euclidean projection of params + update, unit by unit, whatever optimizer
    made the update. **Put it last in the chain**: what comes after it moves the weights off the
    set. The first update also lands on the set from parameters that are not on it.

    Before it, `centered_gradient` is redundant for a linear optimizer (SGD, momentum, weight
    decay): both leave the same weights, and this alone saves a pass. Under Adam they differ.

    Args:
        layout: which leaves are kernels, and their fan-in axes.
        squared_radius: c; a positive number, a pytree prefix of numbers (the paper's c per layer)
            and of arrays with one value a unit, or None: each unit keeps the norm that it had at
            ``init``.
        centered: whether the units are also zero-mean; a bool, or a pytree prefix of them.
        tangent: whether the update is first projected onto the tangent space at the old weights,
            u <- u - (w'u / ||w||^2) w, with u and w centered if the units are: a step of Riemannian
            optimization with the projection as its retraction. What the optimizer would do to the
            norm (weight decay, the radial part of Adam's step) then does not change the length of
            the step on the sphere.

    Returns:
        A transformation whose ``update`` needs ``params``; stateless, unless units keep their own
        norms, which are then the state: one number a unit. Where the centered point is zero the
        projection is not unique, and the unit keeps its old weights. An update is in the type of
        the parameters, or its own if that is wider. Where squares overflow it is NaN.

    Raises:
        ValueError: in ``init``, if the layout constrains nothing, if a centered unit has a single
            weight, if c is not positive, or if a kernel that is to keep its norms is all zero; in
            ``update``, without ``params``.
        TypeError: in ``init``, for `LinearlyConstrained` kernels: ``centered`` keeps the sums of
            plain ones at zero.

    It is a function of one parameter at a time, so it means the same under jit, pmap and shard_map
    with replicated parameters; kernels sharded along their fan-in need jit, which adds two
    all-reduces a kernel. In float32 the drift stays below 1e-5 for thousands of steps. In bfloat16
    the weights are rounded after the projection: ||w||^2 is then right to 2^-7 relative, and
    `project` after ``optax.apply_updates`` removes the rounding of the addition. float16 rounds the
    usual ``eps`` of Adam to 0, and its steps to NaN, with or without a projection: give it
    ``eps=1e-4``.

    Under ``optax.inject_hyperparams`` name ``layout`` and ``centered`` in ``static_args``: it takes
    any callable for a schedule.

    Example:
        >>> import jax.numpy as jnp
        >>> params = {"kernel": jnp.array([[-1.0], [1.0]])}
        >>> tx = optax.chain(optax.sgd(0.1), sphere_projection())
        >>> gradient = {"kernel": jnp.array([[5.0], [3.0]])}
        >>> update, _ = tx.update(gradient, tx.init(params), params)
        >>> optax.apply_updates(params, update)["kernel"].tolist()
        [[-1.0], [1.0]]

    Source: Ikami et al. 2021, Eq. 11. Erratum: Eqs. 13-14 drop the factor sqrt(c). The tangent step
    is that of Absil et al. 2008, section 4.1 (projections as retractions).
    """

    def init(params: PyTree) -> Any:
        rows = kernels_of(params, layout, squared_radius, centered=centered, own_norm_allowed=True)
        kept = [
            optax.MaskedNode()
            if axes is None or radius is not None
            else squared_norm(promote(leaf), axes)
            for _, leaf, axes, radius, _ in rows
        ]
        known = all(map(is_absent, kept))
        return optax.EmptyState() if known else OwnNormsState(rebuild(params, kept))

    def land(old: Any, step: Any, axes: Axes, radius: Any, centered: bool) -> Any:
        if tangent:
            step = _tangent_part(step, old, axes, centered)
        deviation, factor, exists = near_sphere(old + step, axes, radius, centered)
        return jnp.where(exists, deviation * factor, old)

    def update(updates: PyTree, state: Any, params: PyTree | None = None) -> tuple[PyTree, Any]:
        radii = setting_per_leaf(squared_radius, updates, "squared_radius")
        if isinstance(state, OwnNormsState):
            own = flat_leaves(state.squared_norms)
            radii = [c if given is None else given for c, given in zip(own, radii, strict=True)]
        flags = setting_per_leaf(centered, updates, "centered")
        landed = landing("sphere_projection", land, layout, updates, params, radii, flags)
        return landed, state

    return optax.GradientTransformation(init, update)


def landing(
    name: str,
    land: Callable[..., Any],
    layout: Layout,
    updates: PyTree,
    params: PyTree | None,
    *settings: list[Any],
) -> PyTree:
    """The updates, edited so that params + update is where ``land`` says.

    Args:
        name: what users call the transformation.
        land: ``land(old, step, axes, *settings)``, of a kernel and its update in float32 or wider.
        layout: which leaves are kernels.
        updates: the tree of steps.
        params: the tree of weights before them.
        *settings: one value for each leaf.
    """
    if params is None:
        raise ValueError(
            f"{name} edits params + update and got no params; call update(gradients, state, "
            "params)."
        )

    def edited(step: Any, axes: Axes, weights: Any, *own: Any) -> Any:
        landed = land(promote(weights, step), promote(step, weights), axes, *own)
        return edit_to(landed, weights, step)

    return map_constrained(edited, layout, updates, flat_leaves(params), *settings)


def edit_to(landed: Any, weights: Any, step: Any) -> Any:
    """The update from ``weights`` to ``landed``, in the wider type of the weights and the step.

    It is taken to the stored value, whose rounding it makes up for. In the type of a bfloat16 step
    it would leave float32 weights off the set.
    """
    dtype = max(weights.dtype, step.dtype, key=lambda kind: jnp.finfo(kind).bits)
    stored = promote(landed.astype(weights.dtype), step)
    return (stored - promote(weights, step)).astype(dtype)


def _tangent_part(step: Any, weights: Any, axes: Axes, centered: bool) -> Any:
    """The step without its mean, if units are centered, and without its part along the weights.

    Weights that are zero have no tangent space: their step is only centered.
    """
    step = center(step, axes) if centered else step
    deviation, factor, _ = near_sphere(weights, axes, 1.0, centered)
    direction = deviation * factor
    return step - (step * direction).sum(axes, keepdims=True) * direction
