"""Running statistics of a trained model, estimated anew by its final parameters."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx, traverse_util
from jaxtyping import PyTree

from jaxnorm.nnx._functionalize import functionalize
from jaxnorm.nnx._modules import ModulePath, check_module, clone

#: Variables by their paths.
Flat = dict[tuple[Any, ...], Any]


def estimate_statistics(
    model: nnx.Module,
    params: PyTree,
    state: PyTree,
    *inputs: Any,
    batch_size: int | None = None,
) -> PyTree:
    """Estimates the running statistics of batch normalization anew, by one set of parameters.

    mean_i mu_B_i and mean_i var_B_i over minibatches B_i of the given rows, which each pass the
    network in training, normalized by their own statistics (known as precise BN). Running
    statistics lag behind the parameters instead: after n updates momentum^n of them is that of mean
    0 and variance 1, which is 60% after 50 updates with Flax's momentum of 0.99, and the rest is of
    earlier parameters. Call it after the last update, before the model is evaluated, folded or
    saved. The momentum does not enter the result, to the bit.

    Args:
        model: the model, with parameters or as `flax.nnx.eval_shape` returns it; it stays as it is.
        params: the parameters after training, as `functionalize` returns them; ``effective(raw)``
            of reparametrized kernels.
        state: the state after training, of `functionalize`.
        *inputs: arrays (or pytrees) of training rows, as the model takes them, along the first
            axis, in random order: rows sorted by class make minibatches of one class. 1,000 rows
            are enough for most networks.
        batch_size: the rows per minibatch; None for all rows in one, which gives the moments of all
            rows together. Rows that fill no whole minibatch are left out. Networks that were
            trained in minibatches of few values may do better by minibatches of that size, which
            held-out rows tell. Layers with ghost batches take each minibatch as one.

    Returns:
        The state, with each layer's ``mean`` and ``var`` replaced, in their own type. Frozen layers
        (``use_running_average=True``) keep theirs, and so does `PopulationNorm`.

    Raises:
        ValueError: if no layer has running statistics, without inputs, and for a ``batch_size``
            that is not from 1 to the number of rows.

    Under jit a sharded minibatch counts as a whole; under pmap and shard_map each device estimates
    from its own rows, unless the layers have an ``axis_name``.

    Example:
        >>> model = nnx.BatchNorm(1, use_scale=False, use_bias=False, rngs=nnx.Rngs(0))
        >>> apply, params, state = functionalize(model)
        >>> state = estimate_statistics(model, params, state, jnp.array([[1.0], [3.0]]))
        >>> state["mean"].tolist(), state["var"].tolist()
        ([2.0], [1.0])

    Source: Ioffe and Szegedy 2015, algorithm 2 (there with the unbiased variance); Wu and Johnson
    2021, "Rethinking 'Batch' in BatchNorm", section 3.
    """
    check_module(model)
    forgetful, statistics = _forgetful(model)
    rows = min((len(leaf) for leaf in jax.tree.leaves(inputs)), default=0)
    size = rows if batch_size is None else batch_size
    if not 1 <= size <= rows:
        raise ValueError(
            f"batch_size is {batch_size} and there are {rows} rows; wanted training rows, as the "
            "model takes them, and at most as many per minibatch."
        )
    apply = functionalize(forgetful, mixed_precision=True).apply
    first = traverse_util.flatten_dict(state, keep_empty_nodes=True)

    def of_batch(variables: Flat, batch: tuple[Any, ...]) -> tuple[Flat, Flat]:
        # Draws differ from minibatch to minibatch; values that the model has sown are left out.
        after = apply(params, traverse_util.unflatten_dict(variables), *batch, train=True)[1]
        after = traverse_util.flatten_dict(after, keep_empty_nodes=True)
        after = jax.tree.map(_as, variables, {path: after[path] for path in variables})
        return after, {path: after[path] for path in statistics}

    batches = jax.tree.map(lambda x: _in_batches(x, size), inputs)
    _, found = jax.lax.scan(of_batch, first, batches)
    return traverse_util.unflatten_dict({**first, **jax.tree.map(_mean, found)})


def _as(old: Any, new: Any) -> Any:
    """Returns a new value in the type of the old one."""
    return new if new.dtype == old.dtype else new.astype(old.dtype)


def _in_batches(x: Any, size: int) -> Any:
    """Reshapes rows to (batches, size, ...), without those that fill no batch."""
    x = jnp.asarray(x)
    return x[: len(x) // size * size].reshape(-1, size, *x.shape[1:])


def _mean(x: Any) -> Any:
    """Averages statistics over batches; counters have their last value."""
    return x.mean(0) if jnp.issubdtype(x.dtype, jnp.floating) else x[-1]


def _forgetful(model: nnx.Module) -> tuple[nnx.Module, list[tuple[Any, ...]]]:
    """Returns a model whose running statistics are the last batch's, and their paths in the state.

    Layers whose statistics follow batches have a momentum, whatever their type.
    """
    copy, paths = clone(model), []
    modules: list[tuple[ModulePath, Any]] = list(nnx.iter_modules(copy))
    for path, module in modules:
        frozen = getattr(module, "use_running_average", False) is True
        if frozen or getattr(module, "momentum", None) is None:
            continue
        module.momentum = 0.0
        if hasattr(module, "groups"):
            module.groups = 1
        own = nnx.to_pure_dict(nnx.state(module, nnx.BatchStat))
        paths += [(*path, *name) for name in traverse_util.flatten_dict(own)]
    if not paths:
        raise ValueError(
            f"{type(model).__name__} has no layer whose running statistics follow batches; wanted "
            "BatchNorm layers, not frozen by use_running_average=True: call model.train() on a "
            "model that was last evaluated. Replaced and folded layers have nothing to estimate."
        )
    return copy, paths
