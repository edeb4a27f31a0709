"""Raw parameters and effective weights: wrapping kernels in nodes, and computing them."""

from collections.abc import Callable
from typing import Any

import jax
from jaxtyping import PyTree

from jaxnorm._checks import check_function
from jaxnorm._layout import Layout, flax_layout, kernel_axes
from jaxnorm._node import Axes, Reparametrization, count_parameters, effective_kernel, is_node
from jaxnorm._paths import Path, is_absent, map_entries

#: ``(path, kernel, fan_in_axes) -> node``; a kernel that is returned unchanged stays plain.
MakeNode = Callable[[str, Any, Axes], Any]


def effective(tree: PyTree) -> PyTree:
    """Replaces every reparametrization node by its kernel.

    Call it once at the top of the loss, outside any scan: gradients then flow to the raw leaves,
    which are all that the optimizer sees. The same call exports plain weights for inference. Of
    `MovingAverages` call it for evaluation and export alone: the loss takes ``apply_in_loss(raw)``.

    Args:
        tree: a tree of parameters; nodes of different kinds may mix, and nest.

    Returns:
        The tree with a plain array in the place of each node and every other leaf unchanged.
        Idempotent.

    O(parameters) work, and no collective under data parallelism; the result is the same under jit,
    vmap, pmap and shard_map.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxnorm import Scaled
        >>> node = Scaled(jnp.ones((3, 1)), jnp.array([2.0]), (-2,))
        >>> effective({"dense": {"kernel": node}})["dense"]["kernel"].tolist()
        [[2.0], [2.0], [2.0]]
    """
    return jax.tree.map(effective_kernel, tree, is_leaf=is_node)


def reparametrize(
    params: PyTree, into: type[Reparametrization] | MakeNode, layout: Layout = flax_layout
) -> PyTree:
    """Wraps every kernel in a reparametrization that keeps its value if the set allows.

    Args:
        params: a tree of parameters. A kernel that is a node already is wrapped as one, so that
            nodes nest: `Scaled` around linearly constrained weights.
        into: a class, whose ``from_kernel(kernel, fan_in_axes)`` is called, or a callable
            ``(path, kernel, fan_in_axes) -> node`` that decides for each kernel, and may return
            the kernel unchanged (the classifier's, say).
        layout: which leaves are kernels, and their fan-in axes.

    Returns:
        The tree with a node in the place of each kernel. ``jax.eval_shape`` and vmap of the call
        work too.

    Raises:
        ValueError: if the layout constrains nothing.
        TypeError: for ``into`` that is neither.

    Under jit, pmap and shard_map each kind is made as its ``from_kernel`` says, with sums over the
    fan-in, which must be whole in a shard_map; sharded parameters stay in place.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxnorm import Scaled, effective
        >>> params = {"dense": {"kernel": jnp.ones((3, 2)), "bias": jnp.zeros(2)}}
        >>> raw = reparametrize(params, Scaled)
        >>> raw["dense"]["kernel"].scale.tolist()
        [1.0, 1.0]
    """
    make: Any = getattr(into, "from_kernel", None)
    check_function(make or into, "into", "a kind such as Scaled, or (path, kernel, axes) -> node")

    def wrap(path: Path, entry: Any, axes: Any) -> Any:
        if is_node(entry):  # The axes of a node are its own.
            axes = entry.fan_in_axes if jax.tree.leaves(axes) else None
        if is_absent(axes):
            return entry
        return make(entry, axes) if make else into(str(path), entry, axes)

    return map_entries(wrap, params, kernel_axes(layout, params))


def parameter_count(params: PyTree) -> int:
    """Counts the free parameters of a tree, without pinned coordinates.

    Args:
        params: a tree of parameters, or of their shapes.

    Returns:
        The sum of the leaves' sizes; a linearly constrained unit of m weights counts as m - 1.

    Inside pmap and shard_map the leaves are those of one device.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxnorm import LinearlyConstrained
        >>> node = LinearlyConstrained.from_kernel(jnp.ones((4, 2)), -2)
        >>> parameter_count({"kernel": node, "bias": jnp.ones(2)})
        8
    """
    return count_parameters(params)
