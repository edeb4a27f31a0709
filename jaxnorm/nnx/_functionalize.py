"""NNX models as pure functions of plain dicts."""

import inspect
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import PyTree

from jaxnorm._node import is_node
from jaxnorm._paths import is_absent, named_entries
from jaxnorm.nnx._modules import check_module

#: Arguments that tell a model whether it trains, with their values in training.
FLAGS = {"train": True, "training": True, "is_training": True, "deterministic": False}

#: Number of leaves that an error names.
SHOWN = 3


class Functional(NamedTuple):
    """Pure function of a model, and its parameters and state.

    Attributes:
        apply: ``(params, state, *args, train=..., **kwargs) -> (output, new state)``, pure.
        params: every ``nnx.Param`` as a pure dict of arrays.
        state: every other variable (batch statistics, random state) as a pure dict of arrays.
    """

    apply: Callable[..., tuple[Any, PyTree]]
    params: PyTree
    state: PyTree


def functionalize(model: nnx.Module, *, mixed_precision: bool = False) -> Functional:
    """Splits an NNX model into a pure ``apply`` and plain dicts, without changing the model.

    ``apply(effective(raw), state, x, train=True)`` runs any model with any reparametrization,
    under jit, grad, vmap, scan and shard_map. The model's writes (running statistics, random
    counters, sown values) are in the new state, and nothing else is kept; a call ignores the values
    that an earlier call has sown.

    With ``train=False`` the model runs as after ``model.eval()``: without dropout, and with running
    statistics. With ``train=True`` it runs as after ``model.train()``, except that frozen layers
    stay frozen: each BatchNorm whose ``use_running_average`` is True in ``model`` normalizes by its
    running statistics and keeps them. ``model.eval()`` sets it in all of them, so call
    ``model.train()`` before functionalizing a model that was last evaluated. A model whose call has
    an argument ``train``, ``training``, ``is_training`` or ``deterministic`` gets it too.

    To write the results back into a model, statistics included, give Flax both dicts in one call:
    ``nnx.update(model, effective(raw), state)``.

    Args:
        model: any ``nnx.Module``. Its arrays are shared with the result, not copied.
        mixed_precision: if True, ``apply`` also takes floating parameters in another floating type
            than the model's: ``apply(cast(params), ...)``.

    Returns:
        ``(apply, params, state)``.

    Raises:
        ValueError: in ``apply``, for params and state that are not the model's. Leaves match by
            path, shape and type, whatever their order: ``nnx.State`` fits, and a checkpoint whose
            list indices became strings.
        TypeError: if the model is another library's.

    Warns:
        UserWarning: in ``apply`` with ``train=True``, if every BatchNorm of the model is frozen, as
            ``model.eval()`` leaves them.

    Example:
        >>> import jax.numpy as jnp
        >>> rngs = nnx.Rngs(0)
        >>> model = nnx.Sequential(nnx.Linear(4, 8, rngs=rngs), nnx.BatchNorm(8, rngs=rngs))
        >>> apply, params, state = functionalize(model)
        >>> output, state = apply(params, state, jnp.ones((2, 4)), train=True)
        >>> nnx.update(model, params, state)
        >>> output.shape
        (2, 8)
    """
    check_module(model)
    training, evaluation = _graph_in_mode(model, True), _graph_in_mode(model, False)
    params, state = (
        nnx.to_pure_dict(nnx.state(model, kind)) for kind in (nnx.Param, nnx.Not(nnx.Param))
    )
    layers: list[Any] = [m for _, m in nnx.iter_modules(model) if _has_switch(m)]
    all_frozen = bool(layers) and all(m.use_running_average for m in layers)
    fit_params = _fitter(params, "params", any_float=mixed_precision)
    # Statistics may become wider than the model's; sown values are no part of the model.
    fit_state = _fitter(state, "state", any_float=True, ignore_unknown=True)

    def apply(params: PyTree, state: PyTree, *args: Any, train: bool, **kwargs: Any) -> Any:
        variables = fit_params(params), fit_state(state)
        if train and all_frozen:
            warnings.warn(
                f"all {len(layers)} BatchNorm layers of the model have use_running_average=True, "
                "as after model.eval(), so train=True keeps their running statistics. Call "
                "model.train() before functionalize to train with the statistics of the batch; "
                "ignore this if all of them are to stay frozen.",
                UserWarning,
                stacklevel=2,
            )
        bound = nnx.merge(training if train else evaluation, *variables)
        args, kwargs = with_flags(bound, args, kwargs, train)
        output = bound(*args, **kwargs)
        return output, nnx.to_pure_dict(nnx.state(bound, nnx.Not(nnx.Param)))

    return Functional(apply, params, state)


def _has_switch(module: Any) -> bool:
    return hasattr(module, "use_running_average")


def with_flags(
    model: nnx.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    train: bool,
    override: bool = False,
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns the arguments with those of `FLAGS` that the model takes and the caller left out.

    With ``override`` also those that the caller gave.
    """
    flags = {name: value is train for name, value in FLAGS.items()}
    if override:
        kwargs = {name: flags.get(name, value) for name, value in kwargs.items()}
    signature = inspect.signature(type(model).__call__)
    bound = signature.bind_partial(model, *args, **kwargs)
    for name, value in flags.items():
        if name in signature.parameters and (override or name not in bound.arguments):
            bound.arguments[name] = value
    return bound.args[1:], bound.kwargs


def _graph_in_mode(model: nnx.Module, train: bool) -> Any:
    """Returns the model's structure in training or evaluation, frozen layers excepted."""
    copy = nnx.merge(*nnx.split(model))
    modules: list[Any] = [module for _, module in nnx.iter_modules(copy)]
    frozen = [m for m in modules if _has_switch(m) and m.use_running_average is True]
    copy.train() if train else copy.eval()
    for module in frozen:
        module.use_running_average = True
    return nnx.graphdef(copy)


def _fitter(
    tree: PyTree, name: str, *, any_float: bool, ignore_unknown: bool = False
) -> Callable[[PyTree], PyTree]:
    """Returns a function that arranges leaves as in a model's tree, and raises if they differ.

    Args:
        tree: the model's params or state.
        name: the name of the tree in the message.
        any_float: if True, a floating leaf may have another floating type.
        ignore_unknown: if True, other trees may have more leaves.
    """
    structure, entries = jax.tree.structure(tree), named_entries(tree)
    # Shapes alone, so that the function keeps no array alive.
    expected = {path: _shape(leaf, any_float) for path, leaf in entries if not is_absent(leaf)}

    def fit(tree: PyTree) -> PyTree:
        leaves = {path: leaf for path, leaf in named_entries(tree) if not is_absent(leaf)}
        problems = [f"{path!r} is missing" for path in expected if path not in leaves]
        for path, leaf in leaves.items():
            if path not in expected:
                problems += [] if ignore_unknown else [f"{path!r} is unknown"]
            elif _shape(leaf, any_float) != expected[path]:
                problems.append(f"{path!r} is {_shape(leaf)}, wanted {expected[path]}")
        if problems:
            more = f", and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
            raise ValueError(
                f"{name} do not fit the model: {'; '.join(problems[:SHOWN])}{more}. Pass the "
                f"{name} that functionalize returned, updated, in apply(params, state, *inputs): "
                "effective(params) of reparametrized kernels; parameters in another floating type "
                "with functionalize(model, mixed_precision=True); a checkpoint with renamed keys "
                "renamed."
            )
        return jax.tree.unflatten(structure, [leaves[path] for path in expected])

    return fit


def _shape(leaf: Any, any_float: bool = False) -> Any:
    """Shape and type in JAX; with ``any_float`` float32 for any floating type. Type of a node.

    A Python number, and NumPy's 64 bits, have 32 bits after a step.
    """
    if is_node(leaf):
        return type(leaf).__name__
    aval = jax.typeof(leaf)
    is_float = any_float and jnp.issubdtype(aval.dtype, jnp.floating)
    return jax.ShapeDtypeStruct(aval.shape, jnp.float32 if is_float else aval.dtype)
