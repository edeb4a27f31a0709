"""An NNX model as a pure function of plain dicts, whose leaves are matched by their names."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import PyTree

from jaxnorm._trees._paths import Path, entries, is_absent, is_node, listed
from jaxnorm.nnx._edit import check_module
from jaxnorm.nnx._flags import with_flags

#: How many paths a message names.
SHOWN = 3


class Functional(NamedTuple):
    """A model taken apart.

    Attributes:
        apply: ``(params, state, *args, train=..., **kwargs) -> (output, new state)``, pure.
        params: every ``nnx.Param`` as a pure dict of arrays.
        state: every other variable (batch statistics, random state) as a pure dict of arrays.
    """

    apply: Callable[..., tuple[Any, PyTree]]
    params: PyTree
    state: PyTree


def functionalize(model: nnx.Module, *, mixed_precision: bool = False) -> Functional:
    """Takes an NNX model apart into a pure ``apply`` and plain dicts, without changing the model.

    ``apply(effective(raw), state, x, train=True)`` then runs any model with any reparametrization,
    under jit, grad, vmap, scan and shard_map: what the model writes (running statistics, random
    counters) comes back as the new state, and nothing else is kept. What it sows is there too, and
    begins anew at the next call.

    Args:
        model: any ``nnx.Module``. Its arrays are shared with the result, not copied.
        mixed_precision: whether ``apply`` takes floating parameters in another floating type than
            the model's: ``apply(cast(params), ...)``.

    Returns:
        ``(apply, params, state)``. With ``train=False`` the model runs as after ``model.eval()``
        (dropout off, running statistics used), else as after ``model.train()``; a model whose call
        has an argument ``train``, ``training``, ``is_training`` or ``deterministic`` gets it too.

    Raises:
        ValueError: in ``apply``, for params and state that are not the model's. They match by path,
            shape and type, whatever their order: a checkpoint whose list indices became strings
            fits, one with other names, shapes or types does not.
        TypeError: if the model is another library's.

    Example:
        >>> import jax.numpy as jnp
        >>> model = nnx.Sequential(nnx.Linear(4, 8, rngs=nnx.Rngs(0)), nnx.relu)
        >>> apply, params, state = functionalize(model)
        >>> output, state = apply(params, state, jnp.ones((2, 4)), train=False)
        >>> output.shape
        (2, 8)
    """
    check_module(model)
    training, evaluating = _graph(model, train=True), _graph(model, train=False)
    params, state = (
        nnx.to_pure_dict(nnx.state(model, kind)) for kind in (nnx.Param, nnx.Not(nnx.Param))
    )
    fit_params = Fit(params, "params", any_float=mixed_precision)
    # A model may write a wider mean than it started from; that is its own affair.
    fit_state = Fit(state, "state", any_float=True)

    def apply(params: PyTree, state: PyTree, *args: Any, train: bool, **kwargs: Any) -> Any:
        graph = training if train else evaluating
        bound = nnx.merge(graph, fit_params(params), fit_state(state))
        args, kwargs = with_flags(bound, args, kwargs, train)
        output = bound(*args, **kwargs)
        fit_state.note(nnx.to_pure_dict(nnx.state(bound, nnx.Intermediate)))
        return output, nnx.to_pure_dict(nnx.state(bound, nnx.Not(nnx.Param)))

    return Functional(apply, params, state)


def _graph(model: nnx.Module, train: bool) -> Any:
    """The model's structure in training or evaluation mode; the model itself stays as it is."""
    copy = nnx.merge(*nnx.split(model))
    copy.train() if train else copy.eval()
    return nnx.graphdef(copy)


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
