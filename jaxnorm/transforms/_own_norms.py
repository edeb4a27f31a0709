"""The norms that units keep: remembered, since each storage rounding would move them a little."""

from typing import Any, NamedTuple

import optax
from jaxtyping import PyTree

from jaxnorm._checks import all_zero
from jaxnorm._constraints._rows import rows_of
from jaxnorm._constraints._unit import squared_norm
from jaxnorm._numerics import promote
from jaxnorm._trees._axes import free_part
from jaxnorm._trees._layout import Layout
from jaxnorm._trees._node import Axes
from jaxnorm._trees._paths import Path, is_absent, leaves, rebuild
from jaxnorm._trees._prefix import Setting, setting_per_leaf


class OwnNormsState(NamedTuple):
    """State of a `sphere_projection` without a radius; arrays only, for any checkpoint library.

    Attributes:
        squared_norms: the parameters' structure with ||w||^2 of each unit of a constrained kernel,
            in float32 or wider with the fan-in axes as axes of size 1; MaskedNode elsewhere.
    """

    squared_norms: PyTree


def own_norms(params: PyTree, layout: Layout, squared_radius: Setting) -> Any:
    """The squared norms where the radius is None; the empty state where there is no such kernel.

    Raises ValueError for a kernel of zeros, which would keep them.
    """
    kept = [
        optax.MaskedNode()
        if axes is None or radius is not None
        else _squared_norms(path, leaf, axes, zero_sum)
        for path, leaf, axes, radius, zero_sum in rows_of(params, layout, squared_radius)
    ]
    if all(is_absent(norms) for norms in kept):
        return optax.EmptyState()
    return OwnNormsState(rebuild(params, kept))


def _squared_norms(path: Path, leaf: Any, axes: Axes, zero_sum: bool) -> Any:
    norms = squared_norm(free_part(promote(leaf), axes, zero_sum), axes)
    if all_zero(norms):
        raise ValueError(
            f"the weights of {path!r} are all zero, and squared_radius=None keeps each "
            "unit's norm, so they would stay zero. Give it a radius, in a pytree prefix, or random "
            "weights, or leave it out of the layout, with exclude."
        )
    return norms


def radii_per_leaf(updates: PyTree, squared_radius: Setting, state: Any) -> list[Any]:
    """The squared radius of each leaf: the setting's, or by the leaf's path the unit's own."""
    radii = setting_per_leaf(squared_radius, updates, "squared_radius")
    if not isinstance(state, OwnNormsState):
        return radii
    own = {path: norms for path, norms in leaves(state.squared_norms) if not is_absent(norms)}
    named = zip(leaves(updates), radii, strict=True)
    return [own.get(path) if radius is None else radius for (path, _), radius in named]
