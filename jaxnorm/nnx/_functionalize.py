"""An NNX model as a pure function of plain dicts."""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from flax import nnx
from jaxtyping import PyTree


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


def functionalize(model: nnx.Module) -> Functional:
    """Takes an NNX model apart into a pure ``apply`` and plain dicts, without changing the model.

    ``apply(effective(raw), state, x, train=True)`` then runs any model with any reparametrization,
    under jit, grad, vmap, scan and shard_map: what the model writes (running statistics, random
    counters) comes back as the new state, and nothing else is kept.

    Args:
        model: any ``nnx.Module``. Its arrays are shared with the result, not copied.

    Returns:
        ``(apply, params, state)``. With ``train=False`` the model runs as after ``model.eval()``
        (dropout off, running statistics used), else as after ``model.train()``; a model that has
        a ``train`` argument of its own gets it too.

    Example:
        >>> import jax.numpy as jnp
        >>> model = nnx.Sequential(nnx.Linear(4, 8, rngs=nnx.Rngs(0)), nnx.relu)
        >>> apply, params, state = functionalize(model)
        >>> output, state = apply(params, state, jnp.ones((2, 4)), train=False)
        >>> output.shape
        (2, 8)
    """
    takes_train = "train" in inspect.signature(type(model).__call__).parameters
    training, evaluating = _graph(model, train=True), _graph(model, train=False)
    params, state = nnx.state(model, nnx.Param), nnx.state(model, nnx.Not(nnx.Param))

    def apply(params: PyTree, state: PyTree, *args: Any, train: bool, **kwargs: Any) -> Any:
        bound = nnx.merge(training if train else evaluating, params, state)
        if takes_train:
            kwargs["train"] = train
        output = bound(*args, **kwargs)
        return output, nnx.to_pure_dict(nnx.state(bound, nnx.Not(nnx.Param)))

    return Functional(apply, nnx.to_pure_dict(params), nnx.to_pure_dict(state))


def _graph(model: nnx.Module, train: bool) -> Any:
    """The model's structure in training or evaluation mode; the model itself stays as it is."""
    copy = nnx.merge(*nnx.split(model))
    copy.train() if train else copy.eval()
    return nnx.graphdef(copy)
