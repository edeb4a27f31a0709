"""A finding on a network's signal, as data and as text."""

from typing import Any, Literal, NamedTuple

#: The end of the name of a value at the start of the training.
BEFORE = "_at_start"

Kind = Literal["not finite", "rate", "branches", "size", "fading", "alike", "gradients", "dormant"]


class Finding(NamedTuple):
    """Fault of a network's signal; ``str`` of it is a line of text.

    Attributes:
        kind: ``"not finite"``; ``"rate"``, a layer that has left the start of the training;
            ``"branches"`` and ``"size"``, pre-activations that change from block to block or from
            layer to layer; ``"fading"``, a deviation over the rows that falls; ``"alike"``, rows
            that become alike; ``"gradients"`` that change; ``"dormant"`` units.
        layer: the name of the layer, as in `propagation`; empty if it is about all layers.
        values: the numbers: ``forward`` and ``backward``, the factor per layer or block; ``first``
            and ``last``, the variances of the first layer and of this one; ``cosine``; ``share``;
            for a rate the statistics that left, such as ``kurtosis`` and ``kurtosis_at_start``.
        remedies: functions of this library, or advice; none if all that would help is in force.
    """

    kind: Kind
    layer: str
    values: dict[str, float]
    remedies: tuple[str, ...]

    def __str__(self) -> str:
        words = {name: _in_words(self.values.get(name, 1.0)) for name in ("forward", "backward")}
        values = {"first": 0.0, "last": 0.0, "share": 0.0} | self.values
        text = _TEXTS[self.kind].format(layer=self.layer, changes=self._changes(), **values | words)
        remedies = (", or " if self.kind == "not finite" else " or ").join(self.remedies)
        return f"{text}: {remedies}" if remedies else text

    def _changes(self) -> str:
        """Returns the statistics that have another value at the start."""
        pairs = ((name, self.values.get(f"{name}{BEFORE}"), x) for name, x in self.values.items())
        words = (f"{x.replace('_', ' ')} {a:.3g} -> {b:.3g}" for x, a, b in pairs if a is not None)
        return ", ".join(words)


_TEXTS: dict[Kind, str] = {
    "not finite": "{layer} is not finite",
    "rate": "{layer} has left its start ({changes})",
    "branches": "pre-activations {forward} per block, gradients {backward} on the way back",
    "size": "pre-activations {forward} per layer",
    "fading": "the variance over the rows falls from {first:.3g} in the first layer to {last:.3g} "
    "in {layer}",
    "alike": "rows become alike from {layer} on",
    "gradients": "gradients {backward} per layer on the way back",
    "dormant": "{share:.0%} of the units of {layer} are dormant",
}


def _in_words(factor: Any) -> str:
    if abs(factor - 1) < 0.005:
        return "keep their size"
    return f"{'grow' if factor > 1 else 'shrink'} {factor:.3g} times"
