"""An NNX model as a pure function of plain dicts."""

from collections.abc import Callable
from typing import Any, NamedTuple

from flax import nnx
from jaxtyping import PyTree

from jaxnorm.nnx._edit import check_module
from jaxnorm.nnx._flags import with_flags
from jaxnorm.nnx._match import Fit


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
