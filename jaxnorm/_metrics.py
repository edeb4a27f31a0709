"""Numbers of a training step for a logger: norms, steps, and drift off the constraint."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from jaxnorm._layout import Layout, Setting, flax_layout, leaf_rows
from jaxnorm._node import Axes
from jaxnorm._numerics import promote, quotient
from jaxnorm._paths import Path, is_absent, listed, named_entries, named_leaves
from jaxnorm._sphere import Kernel, broadcast_radius, check_settings, squared_norm

Scalar = Float[Array, ""]


def constraint_drift(
    params: PyTree, *, layout: Layout = flax_layout, squared_radius: Setting = 2.0
) -> dict[str, Scalar]:
    """Largest distances of the units from the centered sphere, as a metric to log.

    Args:
        params: a tree of parameters.
        layout: which leaves are kernels, and their fan-in axes.
        squared_radius: c, a number or a pytree prefix of them.

    Returns:
        ``sum``, the largest |1'w| of all units, and ``squared_norm``, the largest | ||w||^2 - c |;
        float32 scalars (float64 if the parameters are).

    Raises:
        ValueError: if the layout constrains nothing, or c is not positive.
        TypeError: for `LinearlyConstrained` kernels: pass ``effective(params)``.

    Under jit, pmap and with sharded parameters the result is the same; inside shard_map parameters
    must be whole.

    Example:
        >>> import jax.numpy as jnp
        >>> drift = constraint_drift({"kernel": jnp.array([[-1.0], [1.5]])})
        >>> {name: float(value) for name, value in drift.items()}
        {'squared_norm': 1.25, 'sum': 0.5}
    """
    axes, radii = check_settings(params, layout, squared_radius)
    drifts = [
        _drifts(promote(kernel), kernel_axes, radius)
        for _, kernel, kernel_axes, radius in leaf_rows(params, axes, radii)
        if kernel_axes is not None
    ]
    largest = _largest(drifts)
    return {"squared_norm": largest["drift_squared_norm"], "sum": largest["drift_sum"]}


def metrics(
    raw: PyTree,
    updates: PyTree | None = None,
    *,
    layout: Layout = flax_layout,
    squared_radius: Setting = 2.0,
) -> dict[str, Scalar]:
    """Flat dict of norms, steps and drift, per kernel and in total, for any logger.

    For each kernel, under its path (``dense/kernel/norm``), and for all together, under ``total``:

    - ``norm``: ||w||, and ``total/norm`` that of all floating parameters, ``optax.tree.norm``;
    - ``update_norm``: ||u||, only if ``updates`` are given, and so the next one;
    - ``relative_update``: ||u|| / ||w||; for a kernel on the sphere the angle by which it turns;
    - ``drift_sum`` and ``drift_squared_norm``: the largest |1'w| and | ||w||^2 - c | of its units,
      and in total the largest of all, as `constraint_drift`. Rounding alone is 1e-5 in float32.

    Under ``optax.MultiSteps`` the updates are zero until the accumulated step lands, and
    ``update_norm`` and ``relative_update`` are then 0 for every kernel: no sign of a kernel that
    does not train. Log them after the steps for which ``tx.has_updated(state)`` is True.

    Args:
        raw: parameters, plain or reparametrized; a node counts with the field that has the kernel's
            shape (v of a `Scaled`; its gamma counts in the total).
        updates: the updates that ``optax.apply_updates`` is to add; ``raw`` is from before.
        layout: which leaves are kernels, and their fan-in axes.
        squared_radius: c, a positive number or a pytree prefix of them; for kernels that nothing
            constrains the two drifts only say how far they are from the sphere.

    Returns:
        Scalars by name, float32 (float64 if the parameters are). The relative update of zero
        weights is 0. Absent leaves (None, MaskedNode) count as no step.

    Raises:
        ValueError: if the layout constrains nothing, ``updates`` have other leaves than ``raw``, or
            two kernels have the same joined path.
        TypeError: for `LinearlyConstrained` kernels: pass ``effective(raw)``.

    Each array is read once. Under jit, pmap and with sharded parameters the result is the same, at
    one all-reduce per sharded kernel; inside shard_map parameters must be whole.

    Example:
        >>> params = {"dense": {"kernel": jnp.array([[-1.0], [1.0]]), "bias": jnp.zeros(1)}}
        >>> steps = {"dense": {"kernel": jnp.array([[0.1], [0.1]]), "bias": jnp.zeros(1)}}
        >>> for name, value in metrics(params, steps).items():
        ...     print(f"{name} {value:.2f}")
        dense/kernel/norm 1.41
        dense/kernel/update_norm 0.14
        dense/kernel/relative_update 0.10
        dense/kernel/drift_sum 0.00
        dense/kernel/drift_squared_norm 0.00
        total/norm 1.41
        total/update_norm 0.14
        total/relative_update 0.10
        total/drift_sum 0.00
        total/drift_squared_norm 0.00
    """
    axes, radii = check_settings(raw, layout, squared_radius)
    kernels = {path: row for path, _, *row in leaf_rows(raw, axes, radii) if row[0] is not None}
    names = _entry_names(raw)
    if len({names[path] for path in kernels}) < len(kernels):
        raise ValueError(f"two of the kernels {listed(kernels)} have the same path; rename one.")
    # A leaf may be a Python number before its first step.
    arrays = [(path, jnp.asarray(leaf)) for path, leaf in named_leaves(raw) if not is_absent(leaf)]
    leaves = {path: promote(x) for path, x in arrays if jnp.issubdtype(x.dtype, jnp.floating)}
    squares = {path: jnp.square(leaf).sum() for path, leaf in leaves.items()}
    steps = {
        path: jnp.square(promote(jnp.asarray(step), leaves[path])).sum()
        for path, step in _aligned(updates, raw).items()
        if path in leaves
    }
    drifts = {path: _drifts(leaves[path], *row) for path, row in kernels.items()}
    rows = {names[path]: _norms(squares, steps, [path]) | drifts[path] for path in kernels}
    rows["total"] = _norms(squares, steps, list(leaves)) | _largest([*drifts.values()])
    return {f"{name}/{key}": value for name, row in rows.items() for key, value in row.items()}


def _entry_names(raw: PyTree) -> dict[Path, str]:
    """Returns the joined path of each leaf's parameter: for the leaves of a node, the node's."""
    return {
        Path((*path, *field)): str(path)
        for path, entry in named_entries(raw)
        for field, _ in named_leaves(entry)
    }


def _drifts(wide: Kernel, axes: Axes, squared_radius: Any) -> dict[str, Scalar]:
    """Returns the largest |1'w| of all units, and the largest | ||w||^2 - c |."""
    drift = squared_norm(wide, axes) - broadcast_radius(squared_radius, wide, axes)
    return {
        "drift_sum": jnp.abs(wide.sum(axes)).max(initial=0.0),
        "drift_squared_norm": jnp.abs(drift).max(initial=0.0),
    }


def _largest(drifts: list[dict[str, Scalar]]) -> dict[str, Scalar]:
    """Returns the largest drifts of all kernels."""
    names = ("drift_sum", "drift_squared_norm")
    return {name: _stacked([drift[name] for drift in drifts]).max() for name in names}


def _norms(
    squares: dict[Path, Scalar], steps: dict[Path, Scalar], paths: list[Path]
) -> dict[str, Scalar]:
    """Returns the norms of some leaves together, from sums of squares of leaves and updates."""
    norm = jnp.sqrt(_stacked([squares[path] for path in paths]).sum())
    if not steps:
        return {"norm": norm}
    step = jnp.sqrt(_stacked([steps[path] for path in paths]).sum())
    return {"norm": norm, "update_norm": step, "relative_update": quotient(step, norm)}


def _stacked(scalars: list[Scalar]) -> Float[Array, " leaves"]:
    """Stacks numbers of several types in the widest of them; one zero for an empty list."""
    return jnp.stack([promote(x, *scalars) for x in scalars] or [jnp.zeros(())])


def _aligned(updates: PyTree | None, raw: PyTree) -> dict[Path, Any]:
    """Returns the update of each leaf, 0 for an absent one; without updates an empty dict."""
    if updates is None:
        return {}
    paths, steps = [path for path, _ in named_leaves(raw)], named_leaves(updates)
    if [path for path, _ in steps] != paths:
        raise ValueError(
            f"the updates are of the parameters {listed(path for path, _ in steps)}, and raw has "
            f"{listed(paths)}; pass what the optimizer's update returned for raw: metrics(raw, "
            "updates)."
        )
    return {path: jnp.zeros(()) if is_absent(step) else step for path, step in steps}
