"""A method: a name and a list of parts."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import reduce
from typing import Any, TypeVar

import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from experiments.methods.overrides import Overrides
from experiments.methods.part import Context, Forward, Optimizer, Part, Sample
from experiments.models.registry import NetworkStyle
from jaxnorm import effective

Kind = TypeVar("Kind", bound=Part)


@dataclass(frozen=True)
class Method:
    """What training knows of a method.

    Attributes:
        name: what the command line calls it.
        summary: what it does, in a few words.
        parts: each a record of one idea, applied in order.
    """

    name: str
    summary: str
    parts: tuple[Part, ...] = ()

    def get(self, kind: type[Kind]) -> Kind | None:
        """The part of that kind, if there is one."""
        return next((part for part in self.parts if isinstance(part, kind)), None)

    def changed(self, kind: type[Part], **fields: Any) -> "Method":
        """The method with some settings of its part of that kind; without such a part as it is."""
        parts = (replace(p, **fields) if isinstance(p, kind) else p for p in self.parts)
        return replace(self, parts=tuple(parts))

    def adjusted(self, flags: Overrides) -> "Method":
        """The method with the settings that a user gave, in the parts that have such a field."""
        given = {each.name: getattr(flags, each.name) for each in fields(Overrides)}
        given = {name: value for name, value in given.items() if value is not None}

        def of(part: Part) -> dict[str, Any]:
            return {each.name: given[each.name] for each in fields(part) if each.name in given}

        return replace(self, parts=tuple(replace(part, **of(part)) for part in self.parts))

    def style(self, style: NetworkStyle) -> NetworkStyle:
        """How the network is normalized and activated."""
        return reduce(lambda style, part: part.style(style), self.parts, style)

    def parameters(self, params: PyTree, context: Context, X: Array) -> PyTree:
        """The initial raw parameters, from the network's own."""
        return reduce(lambda raw, part: part.parameters(raw, context, X), self.parts, params)

    def optimizer(self, optimizer: Optimizer, context: Context, seed: Any = 0) -> Optimizer:
        """The user's optimizer, edited so that parameters stay where the method wants them."""
        return reduce(lambda tx, part: part.optimizer(tx, context, seed), self.parts, optimizer)

    def state(self, raw: PyTree) -> dict[str, PyTree]:
        """What the parts carry from step to step, by their names."""
        states = {_name(part): part.state(raw) for part in self.parts}
        return {name: own for name, own in states.items() if own is not None}

    def projected(self, raw: PyTree, context: Context) -> PyTree:
        """Raw parameters that were averaged, back on the set where the method keeps them."""
        return reduce(lambda raw, part: part.projected(raw, context), self.parts, raw)

    def weights(self, raw: PyTree, state: dict[str, PyTree]) -> PyTree:
        """What the network computes with."""
        for part in self.parts:
            raw = part.weights(raw, state.get(_name(part)))
        return effective(raw)

    def clean(self, raw: PyTree, optimizer_state: PyTree) -> PyTree:
        """The raw parameters as they are evaluated: without noise of their own."""
        return reduce(lambda raw, part: part.clean(raw, optimizer_state), self.parts, raw)

    def forward(
        self, forward: Forward, raw: PyTree, state: dict[str, PyTree], keys: Array, context: Context
    ) -> Forward:
        """The network in training, with what the parts add to it."""
        for part in self.parts:
            forward = part.forward(forward, raw, state.get(_name(part)), keys, context)
        return forward

    def drift(self, raw: PyTree, context: Context) -> Float[Array, ""]:
        """How far constrained kernels are from their sets; 0 where nothing is constrained."""
        found = [x for x in (part.drift(raw, context) for part in self.parts) if x is not None]
        return jnp.stack(found).max() if found else jnp.float32(0)

    def after_step(self, raw: PyTree, state: dict[str, PyTree]) -> dict[str, PyTree]:
        """What the parts carry on, after an update."""
        parts = [part for part in self.parts if _name(part) in state]
        return {_name(part): part.after_step(raw, state[_name(part)]) for part in parts}

    @property
    def rows_of_a_group(self) -> int:
        """The rows that each group of a batch must have."""
        return max((part.rows_of_a_group for part in self.parts), default=0)

    def refreshes(self) -> dict[int, "Refreshed"]:
        """What is done every so many steps."""
        every = sorted({part.refresh_every for part in self.parts if part.refresh_every})
        return {n: _refreshed([p for p in self.parts if p.refresh_every == n]) for n in every}


#: The arguments of `Part.refresh` with the whole method's state, and its results.
Refreshed = Callable[..., tuple[PyTree, dict[str, PyTree]]]


def _refreshed(parts: list[Part]) -> Refreshed:
    def refreshed(
        state: dict[str, PyTree], sample: Sample, context: Context
    ) -> tuple[PyTree, dict[str, PyTree]]:
        for part in parts:
            name = _name(part)
            model_state, own = part.refresh(state.get(name), sample, context)
            sample = sample._replace(model_state=model_state)
            state = state if own is None else {**state, name: own}
        return sample.model_state, state

    return refreshed


def _name(part: Part) -> str:
    return type(part).__name__
