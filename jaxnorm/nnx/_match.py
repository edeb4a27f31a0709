"""A tree of arrays fitted into the tree that a model has, leaf by leaf and by name."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from jaxnorm._trees._paths import Path, entries, is_absent, is_node, listed

#: How many paths a message names.
SHOWN = 3


class Fit:
    """The paths, shapes and types of a model's tree, and whatever tree is to take its place.

    Keys match by their string form, so that what a checkpoint library made of a list's indices is
    found again; the order of the leaves says nothing.

    Args:
        tree: a pure dict of the model's arrays, or of their shapes.
        name: what it is called in messages.
        any_float: whether a floating leaf may come in another floating type.

    Attributes:
        sown: paths that are no part of the model, and that a tree may have, since the model has
            written them itself. They are left out.
    """

    def __init__(self, tree: PyTree, name: str, any_float: bool) -> None:
        self.wanted = {
            path: jax.ShapeDtypeStruct(jnp.shape(leaf), _dtype(leaf))
            for path, leaf in entries(tree)
        }
        self.structure = jax.tree.structure(tree)
        self.name, self.any_float = name, any_float
        self.sown: set[Path] = set()

    def __call__(self, tree: PyTree) -> PyTree:
        """The leaves of ``tree`` in the model's structure. Raises ValueError where they differ."""
        given = {
            path: leaf
            for path, leaf in entries(tree)
            if not is_absent(leaf) and path not in self.sown
        }
        self._check_paths(given)
        wrong = [path for path, leaf in self.wanted.items() if not self._alike(given[path], leaf)]
        if wrong:
            different = "; ".join(
                f"{path!r} is {_said(given[path])}, wanted {_said(self.wanted[path])}"
                for path in wrong[:SHOWN]
            )
            raise ValueError(
                f"{len(wrong)} of the leaves of {self.name} are not the model's: {different}. Pass "
                f"the {self.name} that functionalize returned, updated; for parameters in another "
                "floating type functionalize(model, mixed_precision=True)."
            )
        return jax.tree.unflatten(self.structure, [given[path] for path in self.wanted])

    def note(self, tree: PyTree) -> None:
        """Notes what of a tree that the model has sown is not in the model."""
        self.sown.update(path for path, _ in entries(tree) if path not in self.wanted)

    def _check_paths(self, given: dict[Path, Any]) -> None:
        nodes = [path for path, leaf in given.items() if is_node(leaf)]
        if nodes:
            raise ValueError(
                f"{self.name} have reparametrized kernels at {_first(nodes)}, and a model takes "
                f"plain ones; call apply(effective({self.name}), ...)."
            )
        missing = [path for path in self.wanted if path not in given]
        unknown = [path for path in given if path not in self.wanted]
        if missing or unknown:
            raise ValueError(
                f"{self.name} do not have the model's paths (missing: {_first(missing)}; unknown: "
                f"{_first(unknown)}). Pass the {self.name} that "
                "functionalize returned, updated, in apply(params, state, *inputs); a checkpoint "
                "of another model, or with renamed keys, has to be renamed first, and what a call "
                "adds (sown values) taken out."
            )

    def _alike(self, given: Any, wanted: Any) -> bool:
        if jnp.shape(given) != wanted.shape:
            return False
        types = _dtype(given), wanted.dtype
        floats = all(jnp.issubdtype(dtype, jnp.floating) for dtype in types)
        return types[0] == types[1] or (self.any_float and floats)


def _first(paths: list[Path]) -> str:
    more = f" and {len(paths) - SHOWN} more" if len(paths) > SHOWN else ""
    return (listed(paths[:SHOWN]) or "none") + more


def _dtype(leaf: Any) -> Any:
    """The type that JAX gives it: a Python number, and NumPy's 64 bits, have 32 after a step."""
    own = leaf.dtype if hasattr(leaf, "dtype") else np.asarray(leaf).dtype
    return jax.dtypes.canonicalize_dtype(own, allow_extended_dtype=True)


def _said(leaf: Any) -> str:
    return f"{_dtype(leaf)}{list(jnp.shape(leaf))}"
