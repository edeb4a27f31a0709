"""Numbers of a training step that a logger takes: norms, steps, and drift off the constraint."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import PyTree

from jaxnorm._constraints._project import Scalar, drifts, kernels_of, stacked
from jaxnorm._numerics import promote, quotient
from jaxnorm._trees._constrained import Setting
from jaxnorm._trees._layout import Layout, flax_layout
from jaxnorm._trees._paths import (
    Path,
    entries,
    flat_leaves,
    is_absent,
    leaves,
    listed,
)

_DRIFT = ("drift_sum", "drift_squared_norm")


def metrics(
    raw: PyTree,
    updates: PyTree | None = None,
    *,
    layout: Layout = flax_layout,
    squared_radius: Setting = 2.0,
) -> dict[str, Scalar]:
    """A flat dict of what to watch in a training, for any logger.

    For each kernel, under its path (``dense/kernel/norm``), and for all together, under ``total``:

    - ``norm``: ||w||, and ``total/norm`` that of all floating parameters, ``optax.tree.norm``;
    - ``update_norm``: ||u||, with ``updates`` only, and so the next;
    - ``relative_update``: ||u|| / ||w||, of a kernel on the sphere the angle it turns by;
    - ``drift_sum`` and ``drift_squared_norm``: the largest |1'w| and | ||w||^2 - c | of its units,
      the total the largest of all, as `constraint_drift`. Rounding alone is 1e-5 in float32.

    Args:
        raw: parameters, plain or reparametrized; of a node the kernel-shaped field is meant
            (v of a `Scaled`, whose gamma counts in the total).
        updates: what ``optax.apply_updates`` is to add to them; ``raw`` is from before.
        layout: which leaves are kernels, and their fan-in axes.
        squared_radius: c, a positive number or a pytree prefix of them; for kernels that nothing
            constrains the two drifts say only how far off they are.

    Returns:
        Scalars by name, float32 (float64 where the parameters are). The relative update of zero
        weights is 0. Absent leaves (None, what ``optax.masked`` took away) count as no step.

    Raises:
        ValueError: if the layout constrains nothing, ``updates`` are of other parameters, or two
            kernels have the same joined path.
        TypeError: for `LinearlyConstrained` kernels: ask it of ``effective(raw)``.

    Each array is read once. Under jit, pmap and with sharded parameters it means the same, at one
    all-reduce a sharded kernel; inside shard_map parameters must be whole.

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
    owners = [path for path, entry in entries(raw) for _ in flat_leaves(entry)]
    rows = kernels_of(raw, layout, squared_radius)
    squares: list[Scalar] = []
    moved: list[Scalar] = []
    found: dict[Path, dict[str, Scalar]] = {}
    for owner, (_, leaf, axes, radius, _), step in zip(
        owners, rows, _steps(updates, raw), strict=True
    ):
        if is_absent(leaf) or not jnp.issubdtype(jnp.result_type(leaf), jnp.floating):
            continue
        wide = promote(jnp.asarray(leaf))  # A Python number, perhaps, before its first step.
        squares.append(jnp.square(wide).sum())
        if step is not None:
            moved.append(jnp.square(promote(jnp.asarray(step), wide)).sum())
        if axes is not None:
            drift = dict(zip(_DRIFT, drifts(wide, axes, radius), strict=True))
            found[owner] = _norms(squares[-1:], moved[-1:]) | drift
    named = {str(path): row for path, row in found.items()}
    largest = {key: stacked([row[key] for row in found.values()]).max() for key in _DRIFT}
    named["total"] = _norms(squares, moved) | largest
    return {f"{name}/{key}": value for name, row in named.items() for key, value in row.items()}


def _norms(squares: list[Scalar], moved: list[Scalar]) -> dict[str, Scalar]:
    """The norms of leaves together, from their sums of squares and those of their steps."""
    norm = jnp.sqrt(stacked(squares).sum())
    if not moved:
        return {"norm": norm}
    step = jnp.sqrt(stacked(moved).sum())
    return {"norm": norm, "update_norm": step, "relative_update": quotient(step, norm)}


def _steps(updates: PyTree | None, raw: PyTree) -> list[Any]:
    """The update of each leaf, 0 for an absent one; without updates None for each."""
    paths = [path for path, _ in leaves(raw)]
    if updates is None:
        return [None] * len(paths)
    found = [path for path, _ in leaves(updates)]
    if found != paths:
        raise ValueError(
            f"the updates are of the parameters {listed(found)}, and raw has {listed(paths)}; pass "
            "what the optimizer's update returned for raw: metrics(raw, updates)."
        )
    return [jnp.zeros(()) if is_absent(step) else step for step in flat_leaves(updates)]
