"""A method: a name and a list of parts."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import reduce
from typing import Any, TypeVar

import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from experiments.config import OF_PARTS, Config
from experiments.methods.part import Apply, Context, Forward, Optimizer, Part, Sample
from experiments.models.registry import NetworkStyle
from jaxnorm import effective

Kind = TypeVar("Kind", bound=Part)


@dataclass(frozen=True)
class Method:
    """A method, as training uses it.

    Attributes:
        name: its name on the command line.
        summary: a description in a few words.
        parts: records of one idea each, applied in order.
    """

    name: str
    summary: str
    parts: tuple[Part, ...] = ()

    def get(self, kind: type[Kind]) -> Kind | None:
        """Returns the part of that kind, or None."""
        return next((part for part in self.parts if isinstance(part, kind)), None)

    def changed(self, kind: type[Part], **fields: Any) -> "Method":
        """Changes settings of the part of that kind, if there is one."""
        parts = (replace(p, **fields) if isinstance(p, kind) else p for p in self.parts)
        return replace(self, parts=tuple(parts))

    def adjusted(self, config: Config) -> "Method":
        """Applies settings of parts (`OF_PARTS`) to the parts that have fields of those names."""
        values = {name: getattr(config, name) for name in OF_PARTS}
        values = {name: value for name, value in values.items() if value is not None}

        def adjusted(part: Part) -> Part:
            names = {each.name for each in fields(part)} & values.keys()
            return replace(part, **{name: values[name] for name in names})

        return replace(self, parts=tuple(map(adjusted, self.parts)))

    @property
    def has_statistics(self) -> bool:
        """True if the network normalizes by the batch in training, and not in evaluation."""
        return any(part.has_statistics for part in self.parts)

    @property
    def clips(self) -> bool:
        """True if a part clips gradients."""
        return any(part.clips for part in self.parts)

    def style(self, style: NetworkStyle) -> NetworkStyle:
        """Returns the normalizers and the activation of the network."""
        return reduce(lambda style, part: part.style(style), self.parts, style)

    def parameters(self, params: PyTree, context: Context, X: Array) -> PyTree:
        """Returns the initial raw parameters, from the network's."""
        return reduce(lambda raw, part: part.parameters(raw, context, X), self.parts, params)

    def optimizer(self, optimizer: Optimizer, context: Context, seed: Any = 0) -> Optimizer:
        """Adds the parts' edits to the user's optimizer."""
        return reduce(lambda tx, part: part.optimizer(tx, context, seed), self.parts, optimizer)

    def state(self, raw: PyTree) -> dict[str, PyTree]:
        """Returns the parts' states, by name."""
        states = {_name(part): part.state(raw) for part in self.parts}
        return {name: state for name, state in states.items() if state is not None}

    def projected(self, raw: PyTree, context: Context) -> PyTree:
        """Projects averaged raw parameters back onto the method's set."""
        return reduce(lambda raw, part: part.projected(raw, context), self.parts, raw)

    def weights(self, raw: PyTree, state: dict[str, PyTree]) -> PyTree:
        """Returns the weights that the network computes with."""
        for part in self.parts:
            raw = part.weights(raw, state.get(_name(part)))
        return effective(raw)

    def clean(self, raw: PyTree, optimizer_state: PyTree) -> PyTree:
        """Returns the raw parameters without their noise, for evaluation."""
        return reduce(lambda raw, part: part.clean(raw, optimizer_state), self.parts, raw)

    def forward(
        self, forward: Forward, raw: PyTree, state: dict[str, PyTree], keys: Array, context: Context
    ) -> Forward:
        """Wraps the network's forward pass in training by those of the parts."""
        for part in self.parts:
            forward = part.forward(forward, raw, state.get(_name(part)), keys, context)
        return forward

    def drift(self, raw: PyTree, context: Context) -> Float[Array, ""]:
        """Returns the largest distance of constrained kernels from their sets; 0 without any."""
        drifts = [x for x in (part.drift(raw, context) for part in self.parts) if x is not None]
        return jnp.stack(drifts).max() if drifts else jnp.float32(0)

    def after_update(
        self, optimizer_state: PyTree, apply: Apply, raw: PyTree, X: Array, axis_name: str | None
    ) -> PyTree:
        """Returns the optimizer's state after an update, changed by the rows of the batch."""
        for part in self.parts:
            optimizer_state = part.after_update(optimizer_state, apply, raw, X, axis_name)
        return optimizer_state

    def after_step(self, raw: PyTree, state: dict[str, PyTree]) -> dict[str, PyTree]:
        """Returns the parts' states after an update."""
        parts = [part for part in self.parts if _name(part) in state]
        return {_name(part): part.after_step(raw, state[_name(part)]) for part in parts}

    def settle(self, sample: Sample, context: Context) -> PyTree:
        """Returns the model state that the network is scored with, after an epoch's last update."""
        for part in self.parts:
            sample = sample._replace(model_state=part.settle(sample, context))
        return sample.model_state

    @property
    def rows_per_group(self) -> int:
        """The least number of rows of each group of a batch."""
        return max((part.rows_per_group for part in self.parts), default=0)

    def refreshes(self) -> dict[int, "Refreshed"]:
        """Returns the refreshes by their period in steps."""
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
            model_state, part_state = part.refresh(state.get(name), sample, context)
            sample = sample._replace(model_state=model_state)
            state = state if part_state is None else {**state, name: part_state}
        return sample.model_state, state

    return refreshed


def _name(part: Part) -> str:
    return type(part).__name__
