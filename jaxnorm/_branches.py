"""Residual branches that start quietly: factors read off a model's program."""

from fractions import Fraction
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from jaxnorm._checks import known_values, warn
from jaxnorm._layout import Layout, kernels_by_path
from jaxnorm._node import Reparametrization, is_node
from jaxnorm._numerics import multiplied
from jaxnorm._paths import Path, is_absent, listed, map_entries, named_entries
from jaxnorm._trace.reading import Reading, of_reading
from jaxnorm._trace.streams import Branch, residual_streams


@of_reading
def residual_factors(
    net: Reading,
    *,
    layout: Layout | None = None,
) -> PyTree:
    r"""Factors 1/sqrt(L) for the last kernel or scale of each of the L branches of a stream.

    A branch that keeps the variance of its input doubles the stream's variance at its sum.
    Multiplied by 1/sqrt(L), L branches add as much variance together as one does alone.
    Apply the factors to initial parameters with `scale_branches`.

    Args:
        net: the model, as `read` returns it.
        layout: which leaves are kernels; None for the reading's, every parameter of a product with
            a value that depends on the inputs.

    Returns:
        A tree of the structure of the plain parameters: 1/sqrt(L) at the last kernel of each
        branch, or at the scale that follows it, and 1.0 elsewhere. A kernel that runs several times
        (a shared block, a stack that the model scans over) counts as many branches; experts under
        the entries of one gate count as one, and an adapter beside a kernel as none. Where two
        streams merge there is no branch, and what follows belongs to both: its factor is that of
        the longer one. Nor is there one in a pyramid's lateral sums, or where a U-Net's decoder
        meets what it started from. A shortcut with a kernel, or with several and nothing but linear
        operations between them, counts in a stream that has shortcuts without one; two parallel
        paths of kernels with activations start a new stream. Without a residual sum all factors
        are 1.0.

    Raises:
        ValueError: naming the parameters, if the last kernel of a branch is not unique (the product
            of two of them), if its scale has no effect because a normalization without a scale
            follows, or if parameters are used in a loop other than a scan, in a branch of the
            program, or in a shard_map that splits them over devices.

    Warns:
        UserWarning: for branches that the model scales already, by a last kernel of zeros, a last
            scale below 1 or a constant factor; their factors are 1.0. Shapes, traced parameters and
            reparametrized kernels have no values to look at.

    Nothing is computed. Sharded parameters have the same factors.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxnorm import read
        >>> block = {"a": jnp.ones((4, 4)), "b": jnp.ones((4, 4))}
        >>> def apply(params, x):
        ...     for block in params:
        ...         x = x + jax.nn.relu(x @ block["a"]) @ block["b"]
        ...     return x
        >>> residual_factors(read(apply, 4 * [block], jnp.ones((2, 4))))[0]
        {'a': 1.0, 'b': 0.5}

    Source: the initialization of residual branches by their number is that of Radford et al. 2019,
    section 2.3; Ikami et al. 2021 start ResNet-110 so.
    """
    factors, scaled, refusal = branch_factors(net, layout)
    if refusal:
        raise ValueError(refusal)
    if scaled:
        warn(
            f"the model scales the branches that end in {listed(sorted(scaled))} itself, by small "
            "scales, zeros or a constant: residual_factors leaves them as they are."
        )
    return map_entries(lambda path, x: x if is_absent(x) else factors.get(path, 1.0), net.plain)


class BranchFactors(NamedTuple):
    """Factors of the branches of a model.

    Attributes:
        factors: 1/sqrt(L) by the path of the last parameter of each branch.
        scaled: the last parameters of the branches that the model scales itself.
        refusal: why there are no factors; empty if there are.
    """

    factors: dict[Path, float]
    scaled: set[Path]
    refusal: str = ""


def branch_factors(net: Reading, layout: Layout | None = None) -> BranchFactors:
    """Returns the factors of a model's branches, or the reason why there are none."""
    kernels = None if layout is None else kernels_by_path(layout, net.plain)
    streams, refusal = residual_streams(net.program(kernels, nodes=True))
    if refusal:
        return BranchFactors({}, set(), refusal)
    known = {path: x for path, x in named_entries(net.params) if not is_node(x)}
    return _factors(streams, dict(named_entries(net.plain)) | known)


def scale_branches(raw: PyTree, factors: PyTree) -> PyTree:
    """Multiplies initial parameters, plain or reparametrized, by the factors of their branches.

    Args:
        raw: parameters. The scale (or gain) of a node takes the factor, a node without one is
            rescaled; a plain leaf (a kernel, the scale of a `jaxnorm.nnx.ScaleAndBias`) is
            multiplied.
        factors: the result of `residual_factors`.

    Returns:
        Parameters of the same structure, shapes and types.

    Raises:
        ValueError: for factors of another structure, and for a factor of a spectrally normalized
            kernel, or of another kind whose set has no scale.

    Works under jit, and keeps shardings.

    Example:
        >>> import jax.numpy as jnp
        >>> scale_branches({"kernel": jnp.ones((2, 1))}, {"kernel": 0.5})["kernel"].tolist()
        [[0.5], [0.5]]
    """
    return jax.tree.map(_scaled, raw, factors, is_leaf=is_node)


def _scaled(entry: Any, factor: float) -> Any:
    """Returns a parameter, plain or reparametrized, times a factor."""
    if factor == 1.0:
        return entry
    if not isinstance(entry, Reparametrization):
        return multiplied(entry, jnp.asarray(factor, jnp.float32))
    if entry.scale_field is not None:
        scale = getattr(entry, entry.scale_field)
        return entry.replaced(**{entry.scale_field: _scaled(scale, factor)})
    rescaled = entry.rescaled(jnp.asarray(factor))
    if rescaled is entry:
        raise ValueError(
            f"a {type(entry).__name__} kernel of shape {entry.effective().shape} ends a branch "
            f"with the factor {factor:.3g}, and has no scale to change; wanted one that has: wrap "
            "it in Scaled, with reparametrize(raw, Scaled, layout)."
        )
    return rescaled


def _factors(streams: list[list[Branch]], leaves: dict[Path, Any]) -> BranchFactors:
    """Returns the factors of the branches of some streams."""
    factors: dict[Path, float] = {}
    scaled: set[Path] = set()
    counts: dict[int, Fraction] = {}  # by sum; that of the longest stream after a merge
    for branches in streams:
        count = sum((branch.repeats for branch in branches), Fraction(0))
        counts |= {b.position: max(count, counts.get(b.position, count)) for b in branches}
    for branches in streams:
        quiet = {b.path for b in branches if b.is_scaled or _is_quiet(leaves[b.path], b.is_kernel)}
        scaled |= quiet - {branch.path for branch in branches if not branch.repeats}
        for path, position in sorted((b.path, b.position) for b in branches if b.path not in quiet):
            factor = max(1.0, float(counts[position])) ** -0.5
            if factors.setdefault(path, factor) != factor:
                refusal = (
                    f"the parameter {path!r} ends branches of streams with different numbers of "
                    "branches, so that no one factor fits; scale those branches by hand."
                )
                return BranchFactors({}, set(), refusal)
    kept = {path: factor for path, factor in factors.items() if path not in scaled}
    return BranchFactors(kept, scaled)


def _is_quiet(leaf: Any, is_kernel: bool) -> bool:
    """Returns True for a kernel of zeros, or a scale of which all entries are below 1."""
    values = known_values(leaf)
    if values is None:
        return False
    return not values.any() if is_kernel else bool((np.abs(values) < 1).all())
