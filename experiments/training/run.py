"""The record of a finished run, which the store keeps; reading it needs no JAX."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar, get_type_hints

import numpy as np
from jaxtyping import Integer

#: The beginning of the outcome of a run that met a number that is not finite.
DIVERGED = "diverged"
#: The beginning of the outcome of a run whose loss and accuracy are no better than a constant
#: guess's.
AT_CHANCE = "at chance"
#: The end of the outcome of a run at chance in which a look found no reason.
NOTHING_FOUND = "and a look at it found no reason"

#: The share of a norm within which two checksums are of one draw.
ROUNDING = 1e-3

#: Checksums of initial parameters by path: a leaf's norm, and its product with fixed numbers.
Checksums = Mapping[str, tuple[float, float]]

Record = TypeVar("Record")

#: The types of JSON values by a field's annotation; true and false are not numbers.
_PLAIN: dict[Any, tuple[type, ...]] = {int: (int,), float: (int, float), str: (str,)}


def record_of(kind: type[Record], values: dict[str, Any]) -> Record:
    """Makes a NamedTuple of numbers and text from JSON's values; raises TypeError for others."""
    for name, hint in get_type_hints(kind).items():
        value = values[name]
        if not isinstance(value, _PLAIN[hint]) or isinstance(value, bool):
            raise TypeError(f"its {name} is {value!r}, not {hint.__name__}")
    return kind(**values)


class Epoch(NamedTuple):
    """Results of one epoch.

    Attributes:
        epoch: the number of the epoch, from 1.
        train_loss: the mean over the epoch's steps, each before its update.
        train_accuracy: the mean over the epoch's steps; a fraction.
        test_loss: the loss after the epoch, in evaluation mode.
        test_accuracy: the accuracy after the epoch, in evaluation mode; a fraction.
        gradient_norm: the norm of the whole gradient, the mean over the epoch's steps.
        parameter_norm: the norm of all raw parameters after the epoch.
        drift: the distance of constrained kernels from their set after the epoch; 0 if the method
            constrains nothing.
    """

    epoch: int
    train_loss: float
    train_accuracy: float
    test_loss: float
    test_accuracy: float
    gradient_norm: float = math.nan
    parameter_norm: float = math.nan
    drift: float = math.nan

    @classmethod
    def of_list(cls, saved: Sequence[Any]) -> "Epoch":
        """Makes an entry from a list of JSON's numbers."""
        return record_of(cls, dict(zip(cls._fields, saved, strict=True)))


class Run(NamedTuple):
    """One method trained under one seed.

    Attributes:
        method: the name of the method.
        seed: the seed of the split, the initialization, the batches and the noise.
        curve: one entry per epoch.
        step_ms: milliseconds per step, compilation and evaluation excluded; the median over epochs.
        parameters: the number of trainable parameters.
        state: the final `TrainState`; None for a stored run.
        outcome: the failure in a few words; empty for a run that trained.
        changes: the settings of this run alone, as (field, value).
        scores: further measures of the trained network, by name; fractions.
        maps: the predicted label maps of the first test images; None for other tasks.
        initial: the checksums of the initial parameters; empty for a run of an earlier version.
    """

    method: str
    seed: int
    curve: list[Epoch]
    step_ms: float
    parameters: int
    state: Any
    outcome: str = ""
    changes: tuple[tuple[str, float], ...] = ()
    # Never written to; a MappingProxyType could not be pickled.
    scores: Mapping[str, float] = {}
    maps: Integer[np.ndarray, "images height width"] | None = None
    initial: Mapping[str, tuple[float, float]] = {}

    @property
    def trained(self) -> Any:
        """The final state of a run that has just ended; a stored run has none."""
        assert self.state is not None, "a kept run has no state: train it again"
        return self.state

    @property
    def failure(self) -> str:
        """The kind of the failure, without what was found; empty for a run that trained."""
        return self.outcome.partition(",")[0]

    @property
    def diverged(self) -> bool:
        """True if the run met a number that is not finite."""
        return self.outcome.startswith(DIVERGED)


class Diverged(ArithmeticError):
    """A run that met a number that is not finite; ``train`` exits with status 1.

    Args:
        message: the step and layer.
        curve: the epochs before it.
        step_ms: milliseconds per step in those epochs.
    """

    def __init__(self, message: str, curve: Sequence[Any] = (), step_ms: float = math.nan):
        super().__init__(message)
        self.curve, self.step_ms = curve, step_ms


def other_draws(stored: Checksums, drawn: Checksums) -> list[str]:
    """Returns the paths of the leaves whose checksums differ beyond rounding."""

    def differ(path: str) -> bool:
        if path not in stored or path not in drawn:
            return True
        scale = max(stored[path][0], drawn[path][0])
        return any(
            abs(one - other) > ROUNDING * scale
            for one, other in zip(stored[path], drawn[path], strict=True)
        )

    return [path for path in dict.fromkeys([*stored, *drawn]) if differ(path)]
