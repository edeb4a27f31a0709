"""Raw parameters -> effective weights: the one call at the top of a loss, and of an export."""

import jax
from jaxtyping import PyTree

from jaxnorm._trees._node import NODE_FIELDS, kernel_of
from jaxnorm._trees._paths import Path, entries, is_node


def effective(tree: PyTree) -> PyTree:
    """Replaces every reparametrization node by the kernel that it stands for.

    Call it once at the top of the loss, outside any scan: gradients then flow to the raw leaves,
    which is all the optimizer sees. The same call exports plain weights for inference.

    Args:
        tree: a tree of parameters; nodes of different kinds may mix, and nest.

    Returns:
        The tree with a plain array at each node's place and everything else as it was. Idempotent.

    Raises:
        TypeError: for a dict named ``kernel`` or ``weight`` with the fields of a node, which is
            what a checkpoint library makes of a node that it restores without a target.

    O(parameters) work, no collective under data parallelism; works under jit, vmap, pmap and
    shard_map.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxnorm import Scaled
        >>> node = Scaled(jnp.ones((3, 1)), jnp.array([2.0]), (-2,))
        >>> effective({"dense": {"kernel": node}})["dense"]["kernel"].tolist()
        [[2.0], [2.0], [2.0]]
    """
    _check_restored(tree)
    return jax.tree.map(kernel_of, tree, is_leaf=is_node)


def _check_restored(tree: PyTree) -> None:
    """Raises for nodes that have become dicts."""
    fields: dict[Path, set[str]] = {}
    for path, _ in entries(tree):
        fields.setdefault(Path(path[:-1]), set()).add(path.name)
    for parent, names in fields.items():
        if parent.name in ("kernel", "weight") and names in NODE_FIELDS:
            raise TypeError(
                f"{parent!r} is a dict with the fields {sorted(names)} of a reparametrized kernel: "
                "a checkpoint restored without a target. Restore it with one, the raw parameters "
                "that the training began with (or their shapes)."
            )
