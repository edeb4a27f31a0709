"""Averages of gradients in the states of optimizers, which change with the coordinates."""

from collections.abc import Callable
from typing import Any

import jax
import optax
from jaxtyping import PyTree

#: Fields of optax's states that hold an average, or a sum, of gradients.
_FIELDS = (
    "trace",
    "mu",
    "acc_grads",
    "exp_avg",
    "grad_sum",
    "m1",
    "m2",
    "grad_acc",
    "previous_gradient",
)

#: Such fields of classes whose names have another meaning elsewhere. The moment of NovoGrad, of
#: gradients that are divided by a norm per leaf, is no such average.
_FIELDS_OF_CLASS: dict[type, tuple[str, ...]] = {
    optax.ScaleByAdanState: ("m", "v", "g"),
    optax.ScaleByNovogradState: (),
    optax.contrib.COCOBState: ("cumulative_gradients",),
    optax.contrib.MadgradState: ("s",),
    optax.contrib.ScaleBySimplifiedAdEMAMixState: ("m",),
}


def map_momenta(function: Callable[[PyTree], PyTree], state: PyTree) -> PyTree:
    """Returns a state with ``function`` of each average, or sum, of gradients in it.

    Args:
        function: of a tree with the structure of the parameters, or a part of it.
        state: the state of any optimizer.
    """

    def edited(x: Any) -> Any:
        if not _fields(x):
            return x
        averages = {name: getattr(x, name) for name in _fields(x)}
        others = {name: getattr(x, name) for name in x._fields if name not in averages}
        inside = {name: map_momenta(function, value) for name, value in others.items()}
        moved = {name: None if m is None else function(m) for name, m in averages.items()}
        return x._replace(**inside, **moved)

    return jax.tree.map(edited, state, is_leaf=lambda x: bool(_fields(x)))


def _fields(state: Any) -> list[str]:
    """Returns the fields of one record that hold averages of gradients."""
    known = _FIELDS_OF_CLASS.get(type(state), _FIELDS)
    return [name for name in getattr(state, "_fields", ()) if name in known]
