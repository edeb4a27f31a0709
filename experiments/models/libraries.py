"""Networks of Linen, Haiku and Equinox as Flax NNX modules, which training takes.

Haiku and Equinox are not imported here: the user's file that makes such a network imports them.
"""

import inspect
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Key, PyTree

from experiments.errors import UserError

#: The arguments that tell a network that it trains, with their values in training.
FLAGS = {"train": True, "training": True, "is_training": True, "deterministic": False}

#: The collections of a Linen module that are no state.
SOWN = ("params", "intermediates", "perturbations")

#: The state of Haiku's moving averages.
EMA = {"average", "counter", "hidden"}

WAY_OUT = (
    "wanted a network that is called on rows, and on train or is_training if it has that argument, "
    "without dropout and other draws (write those in flax.nnx); an equinox.Module is called on one "
    "row, as its layers are, and jax.vmap is added"
)


class Pure(NamedTuple):
    """A network of another library as pure functions.

    Attributes:
        init: ``(key, rows) -> (parameters, state)``.
        apply: ``(parameters, state, rows, train) -> (logits, state)``.
        has_statistics: if True, the state is that of normalizers.
        averages: ``state -> paths``, of the leaves that are moving averages over batches.
        debiased: if True, a moving average allows for its beginning at 0.
    """

    init: Callable[[Key[Array, ""], Array], tuple[PyTree, PyTree]]
    apply: Callable[[PyTree, PyTree, Array, bool], tuple[Array, PyTree]]
    has_statistics: bool = True
    averages: Callable[[PyTree], frozenset[str]] = lambda state: frozenset()
    debiased: bool = False


class Wrapped(nnx.Module):
    """A network of another library as a module, with its parameters and its state.

    Args:
        pure: the network.
        params: its parameters.
        state: its other variables, such as running statistics.

    Attributes:
        momentum: 0 to replace moving averages by what they average of the last batch, as
            `jaxnorm.nnx.estimate_statistics` sets it in layers; "its own" for the momentum that the
            network was written with.
    """

    def __init__(self, pure: Pure, params: PyTree, state: PyTree):
        self.momentum: float | str = "its own"
        self.averages, self.debiased = pure.averages(state), pure.debiased
        leaves, self.params_structure = flat(params)
        others, self.state_structure = flat(state)
        self.names, self.state_names = tuple(leaves), tuple(others)
        self.params = nnx.data({name: nnx.Param(leaf) for name, leaf in leaves.items()})
        self.state = nnx.data({name: nnx.BatchStat(leaf) for name, leaf in others.items()})
        self.pure_apply = pure.apply
        self.has_statistics = pure.has_statistics and bool(others)

    def __call__(self, x: Array, train: bool) -> Array:
        leaves, others = (
            [variables[name].get_value() for name in names]
            for variables, names in ((self.params, self.names), (self.state, self.state_names))
        )
        params = jax.tree.unflatten(self.params_structure, leaves)
        state = jax.tree.unflatten(self.state_structure, others)
        logits, after = self.pure_apply(params, state, x, train)
        named = flat(after)[0]
        if train and self.momentum == 0:
            named |= self._averaged(params, x, others)
        for name, leaf in named.items():
            self.state[name].set_value(leaf)
        return logits

    def _averaged(self, params: PyTree, x: Array, others: list[Any]) -> dict[str, Array]:
        """Returns the limits of the moving averages if this batch came again and again."""

        def after(leaves: list[Any]) -> list[Any]:
            state = jax.tree.unflatten(self.state_structure, leaves)
            return jax.tree.leaves(self.pure_apply(params, state, x, True)[1])

        moving = [name in self.averages for name in self.state_names]
        empty = [
            jnp.zeros_like(leaf) if m else leaf for leaf, m in zip(others, moving, strict=True)
        ]
        one = after(empty)
        two = one if self.debiased else after(one)
        passes = zip(self.state_names, one, two, moving, strict=True)
        return {name: limit(first, second) for name, first, second, m in passes if m}


def limit(first: Array, second: Array) -> Array:
    """Extrapolates a moving average of a constant that began at 0, whatever its momentum.

    After n updates it is s (1 - m^n), so that m is the second increment over the first.
    """
    if first is second:
        return first
    wide = first.astype(jnp.float32)
    square = jnp.vdot(wide, wide)
    momentum = jnp.vdot(second.astype(jnp.float32) - wide, wide) / jnp.where(square > 0, square, 1)
    return (wide / (1 - momentum)).astype(first.dtype)


def flat(tree: PyTree) -> tuple[dict[str, Any], Any]:
    """Returns the leaves by their paths, and the structure."""
    entries, structure = jax.tree_util.tree_flatten_with_path(tree)
    named = {jax.tree_util.keystr(p, simple=True, separator="/"): leaf for p, leaf in entries}
    return named, structure


def as_module(model: str, network: Any, x: Any, rngs: nnx.Rngs) -> nnx.Module | None:
    """Returns a network of another library as a module; None for anything else.

    Args:
        model: FILE.py:NAME, for messages.
        network: what the user's function returned.
        x: rows, or their shape.
        rngs: the random streams of the initial parameters.

    Raises:
        UserError: for a network that cannot be initialized, or called without random draws.
    """
    pure = pure_of(model, network)
    if pure is None:
        return None
    key, zeros = rngs.params(), jnp.zeros(x.shape, x.dtype)
    try:
        params, state = pure.init(key, zeros)
        for train in (True, False):
            jax.eval_shape(partial(_called, pure, train), params, state, zeros)
    except Exception as error:  # Of any type: it is the user's code, and the library's.
        reason = " ".join(str(error).split())[:300].rstrip(".")
        raise UserError(
            f"{model} cannot be called on rows of shape {tuple(x.shape[1:])}: {reason} "
            f"({type(error).__name__}); {WAY_OUT}."
        ) from error
    return Wrapped(pure, params, state)


def _called(
    pure: Pure, train: bool, params: PyTree, state: PyTree, x: Array
) -> tuple[Array, PyTree]:
    return pure.apply(params, state, x, train)


def pure_of(model: str, network: Any) -> Pure | None:
    """Returns the functions of a network of Linen, Haiku or Equinox; None for anything else."""
    linen, haiku, equinox = (sys.modules.get(name) for name in ("flax.linen", "haiku", "equinox"))
    if linen is not None and isinstance(network, linen.Module):
        return _linen(network, linen.meta.unbox)
    if haiku is not None and isinstance(network, haiku.Transformed):
        return _haiku(haiku.with_empty_state(network), network.apply)
    if haiku is not None and isinstance(network, haiku.TransformedWithState):
        return _haiku(network, network.apply)
    if equinox is not None:
        pair = isinstance(network, tuple) and any(isinstance(x, equinox.Module) for x in network)
        if pair or (isinstance(network, equinox.Module) and _is_stateful(equinox, network)):
            raise UserError(
                f"{model} returned an Equinox network with state, such as BatchNorm's; wanted one "
                "without: leave BatchNorm out (bn is compared in a network of flax.nnx, flax.linen "
                "or haiku)."
            )
        if isinstance(network, equinox.Module):
            return _equinox(network, equinox)
    return None


def flags(call: Callable[..., Any], train: bool) -> Mapping[str, bool]:
    """Returns the arguments of a call that say whether the network trains."""
    names = inspect.signature(call).parameters
    return {name: value is train for name, value in FLAGS.items() if name in names}


def _linen(module: Any, unbox: Callable[[PyTree], PyTree]) -> Pure:
    call = type(module).__call__

    def init(key: Array, x: Array) -> tuple[PyTree, PyTree]:
        variables = unbox(module.init({"params": key}, x, **flags(call, True)))
        state = {name: each for name, each in variables.items() if name not in SOWN}
        return variables.get("params", {}), state

    def apply(params: PyTree, state: PyTree, x: Array, train: bool) -> tuple[Array, PyTree]:
        variables, options = {"params": params, **state}, flags(call, train)
        if not (train and state):
            return module.apply(variables, x, **options), state
        logits, after = module.apply(variables, x, **options, mutable=list(state))
        return logits, after

    def averages(state: PyTree) -> frozenset[str]:
        # Spectral normalization keeps other statistics there.
        names = [name.split("/") for name in flat(state)[0]]
        kept = [each for each in names if each[0] == "batch_stats" and each[-1] in ("mean", "var")]
        return frozenset(map("/".join, kept))

    return Pure(init, apply, averages=averages)


def _haiku(transformed: Any, call: Callable[..., Any]) -> Pure:
    """Makes the functions of a network, whose ``call`` has no rng after ``without_apply_rng``."""
    rng = (None,) if "rng" in inspect.signature(call).parameters else ()

    def init(key: Array, x: Array) -> tuple[PyTree, PyTree]:
        params, state = transformed.init(key, x, **flags(call, True))
        return params, state

    def apply(params: PyTree, state: PyTree, x: Array, train: bool) -> tuple[Array, PyTree]:
        logits, after = transformed.apply(params, state, *rng, x, **flags(call, train))
        return logits, after if train else state

    def averages(state: PyTree) -> frozenset[str]:
        kept = {module: each for module, each in state.items() if each.keys() == EMA}
        return frozenset(flat(kept)[0])

    return Pure(init, apply, averages=averages, debiased=True)


def _equinox(network: Any, equinox: Any) -> Pure:
    """Makes the functions of a network, whose whole numbers and keys are its state."""
    params, rest = equinox.partition(network, equinox.is_inexact_array)
    arrays, static = equinox.partition(rest, equinox.is_array)

    def init(key: Array, x: Array) -> tuple[PyTree, PyTree]:
        return params, arrays

    def apply(params: PyTree, state: PyTree, x: Array, train: bool) -> tuple[Array, PyTree]:
        module = equinox.combine(params, state, static)
        options = flags(type(module).__call__, train)
        return jax.vmap(lambda row: module(row, **options))(x), state

    return Pure(init, apply, has_statistics=False)


def _is_stateful(equinox: Any, network: Any) -> bool:
    indices = equinox.nn.StateIndex
    leaves = jax.tree.leaves(network, is_leaf=lambda x: isinstance(x, indices))
    return any(isinstance(x, indices) for x in leaves)
