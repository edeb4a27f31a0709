"""Kernels, by the names that libraries give them."""

from typing import Any

import jax


def is_kernel(tree: Any) -> Any:
    """Returns True for the kernels of all four libraries, which weight decay reaches."""
    name = lambda path: jax.tree_util.keystr(path, simple=True, separator="/")  # noqa: E731
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: name(path).split("/")[-1] in ("kernel", "w", "weight") and leaf.ndim > 1,
        tree,
    )
