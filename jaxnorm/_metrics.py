"""Numbers of a training step: distances from the constraints, norms and relative steps."""

import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from jaxnorm._layout import Layout, Setting, broadcast, flax_layout, kernel_rows
from jaxnorm._numerics import promote, quotient
from jaxnorm._paths import Path, is_absent, named_entries, named_leaves, named_rows
from jaxnorm._phases import unit_sum
from jaxnorm._sphere import broadcast_radius, check_kernels, check_settings, squared_norm

Scalar = Float[Array, ""]


def constraint_drift(
    params: PyTree, *, layout: Layout = flax_layout, squared_radius: Setting = 2.0
) -> dict[str, Scalar]:
    """Largest distances of the units from the centered sphere, to assert or to log.

    Rounding alone is 1e-5 in float32; drift that grows step by step means that something changes
    updates after the projection. For zero-sum kernels only ``sum`` says something, for kernels
    that nothing constrains both say how far they are from the sphere.

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
    axes, radii = check_settings(params, layout, squared_radius, centered=False)
    sums, norms = list[Scalar](), list[Scalar]()
    for _, kernel, fan_in, c in kernel_rows(params, axes, radii):
        wide = promote(kernel)
        off = squared_norm(wide, fan_in) - broadcast_radius(c, wide, fan_in)
        sums.append(jnp.abs(unit_sum(wide, fan_in)).max(initial=0.0))
        norms.append(jnp.abs(off).max(initial=0.0))
    return {"squared_norm": _stacked(norms).max(), "sum": _stacked(sums).max()}


def metrics(
    raw: PyTree, updates: PyTree | None = None, *, layout: Layout = flax_layout
) -> dict[str, Scalar]:
    """Flat dict of norms and relative steps, per kernel and in total, for any logger.

    For each kernel, under its path (``dense/kernel/norm``), and for all together, under ``total``:

    - ``norm``: ||w||, and ``total/norm`` that of all floating parameters, ``optax.tree.norm``;
    - ``update_norm``: ||u||, only if ``updates`` are given, and so the next one;
    - ``relative_update``: ||u|| / ||w||; for a kernel on the sphere the angle by which it turns.

    The distance from the constraints is `constraint_drift`.

    Under ``optax.MultiSteps`` the updates are zero until the accumulated step lands, and
    ``update_norm`` and ``relative_update`` are then 0 for every kernel: no sign of a kernel that
    does not train. Log them after the steps for which ``tx.has_updated(state)`` is True.

    Args:
        raw: parameters, plain or reparametrized; a node counts with the field that has the kernel's
            shape (v of a `Scaled`; its gamma counts in the total).
        updates: the updates that ``optax.apply_updates`` is to add; ``raw`` is from before.
        layout: which leaves are kernels.

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
        total/norm 1.41
        total/update_norm 0.14
        total/relative_update 0.10
    """
    axes = check_kernels(raw, layout, centered=False)
    steps = broadcast(updates, raw, "updates")
    names, squares, moved = _entry_names(raw), list[Scalar](), list[Scalar]()
    rows: dict[str, dict[str, Scalar]] = {}
    for path, leaf, fan_in, step in named_rows(raw, axes, steps, is_leaf=is_absent):
        # A leaf may be a Python number before its first step.
        if is_absent(leaf) or not jnp.issubdtype(jnp.result_type(leaf), jnp.floating):
            continue
        wide = promote(jnp.asarray(leaf))
        squares.append(jnp.square(wide).sum())
        if updates is not None:
            change = jnp.zeros(()) if is_absent(step) else promote(jnp.asarray(step), wide)
            moved.append(jnp.square(change).sum())
        if fan_in is not None:
            if names[path] in rows:
                raise ValueError(f"two kernels have the path {names[path]!r}; rename one.")
            rows[names[path]] = _norms(squares[-1:], moved[-1:])
    rows["total"] = _norms(squares, moved)
    return {f"{name}/{key}": value for name, row in rows.items() for key, value in row.items()}


def _entry_names(raw: PyTree) -> dict[Path, str]:
    """Returns the joined path of each leaf's parameter: for the leaves of a node, the node's."""
    return {
        Path((*path, *field)): str(path)
        for path, entry in named_entries(raw)
        for field, _ in named_leaves(entry)
    }


def _norms(squares: list[Scalar], moved: list[Scalar]) -> dict[str, Scalar]:
    """Returns the norms of some leaves together, from sums of squares of leaves and updates."""
    norm = jnp.sqrt(_stacked(squares).sum())
    if not moved:
        return {"norm": norm}
    step = jnp.sqrt(_stacked(moved).sum())
    return {"norm": norm, "update_norm": step, "relative_update": quotient(step, norm)}


def _stacked(scalars: list[Scalar]) -> Float[Array, " leaves"]:
    """Stacks numbers of several types in the widest of them; one zero for an empty list."""
    return jnp.stack([promote(x, *scalars) for x in scalars] or [jnp.zeros(())])
