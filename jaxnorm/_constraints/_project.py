"""The constraint set itself: putting parameters on it, and measuring how far off they are."""

from jaxtyping import Array, Float, PyTree

from jaxnorm._constraints._kernels import drifts, kernels_of, stacked
from jaxnorm._constraints._unit import project_to_sphere
from jaxnorm._numerics import promote
from jaxnorm._trees._layout import Layout, flax_layout
from jaxnorm._trees._paths import rebuild
from jaxnorm._trees._prefix import Setting


def project(
    params: PyTree,
    *,
    layout: Layout = flax_layout,
    squared_radius: Setting = 2.0,
    centered: Setting = True,
) -> PyTree:
    """Puts every kernel on {w : ||w||^2 = c, and 1'w = 0 if centered}, unit by unit.

    The nearest point of the set, as `project_to_sphere` gives it; a unit whose centered weights are
    zero becomes zero, since no point is nearest. Use it once on initial parameters, and after
    ``optax.apply_updates`` on bfloat16 parameters if their rounding matters.

    Args:
        params: a tree of parameters; reparametrization nodes are constrained in their kernel-shaped
            fields.
        layout: which leaves are kernels, and their fan-in axes.
        squared_radius: c, a positive number or a pytree prefix of them.
        centered: whether the units are also zero-mean; a bool, or a pytree prefix of them.

    Returns:
        A tree of the same structure, shapes and types.

    Raises:
        ValueError: if the layout constrains nothing, a centered unit has a single weight, or c is
            not positive.
        TypeError: for `LinearlyConstrained` kernels, whose coordinates are no weights.

    Under jit, pmap, shard_map and with sharded parameters it means the same; no collective is
    needed unless a kernel is sharded along its fan-in (inside shard_map, where the sums are a
    shard's own, such a kernel is not supported).

    Example:
        >>> import jax.numpy as jnp
        >>> params = {"kernel": jnp.array([[1.0], [3.0]]), "bias": jnp.ones(1)}
        >>> project(params)["kernel"].tolist()
        [[-1.0], [1.0]]

    Source: Ikami et al. 2021, Eqs. 2 and 11.
    """
    rows = kernels_of(params, layout, squared_radius, centered=centered)
    projected = [
        leaf if axes is None else project_to_sphere(leaf, axes, radius, own)
        for _, leaf, axes, radius, own in rows
    ]
    return rebuild(params, projected)


def constraint_drift(
    params: PyTree, *, layout: Layout = flax_layout, squared_radius: Setting = 2.0
) -> dict[str, Float[Array, ""]]:
    """How far the kernels are from the centered sphere: a metric to log.

    Args:
        params: a tree of parameters.
        layout: which leaves are kernels, and their fan-in axes.
        squared_radius: c, a number or a pytree prefix of them.

    Returns:
        ``sum``, the largest |1'w| of all units, and ``squared_norm``, the largest | ||w||^2 - c |;
        float32 scalars (float64 if the parameters are).

    Raises:
        ValueError: if the layout constrains nothing, or c is not positive.
        TypeError: for `LinearlyConstrained` kernels: ask it of ``effective(params)``.

    Example:
        >>> import jax.numpy as jnp
        >>> drift = constraint_drift({"kernel": jnp.array([[-1.0], [1.5]])})
        >>> {name: float(value) for name, value in drift.items()}
        {'squared_norm': 1.25, 'sum': 0.5}
    """
    off = [
        drifts(promote(row.leaf), row.axes, row.radius)
        for row in kernels_of(params, layout, squared_radius)
        if row.axes is not None
    ]
    return {
        "squared_norm": stacked([norm for _, norm in off]).max(),
        "sum": stacked([total for total, _ in off]).max(),
    }
