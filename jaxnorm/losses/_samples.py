"""Which axes of a pre-activation are samples; the others count units."""

from collections.abc import Iterable
from typing import Any

from jaxnorm._trees._axes import negative_axes
from jaxnorm._trees._node import Axes

#: Axes of samples, the batch axis 0 among them; None for all but the last.
SampleAxes = int | Iterable[int] | None


def samples_of(x: Any, sample_axes: SampleAxes) -> Axes:
    """The sample axes as negative numbers."""
    given = range(x.ndim - 1) if sample_axes is None else sample_axes
    return negative_axes(given, x.ndim, "the array of pre-activations")
