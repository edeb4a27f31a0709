"""Which axes of a pre-activation are samples; the others count units."""

from collections.abc import Iterable
from typing import Any

from jaxnorm._trees._axes import negative_axes
from jaxnorm._trees._node import Axes

#: Axes of samples, the batch axis 0 among them; None for all but the last.
SampleAxes = int | Iterable[int] | None


def samples_of(x: Any, sample_axes: SampleAxes) -> Axes:
    """The sample axes as negative numbers. Raises ValueError if the batch is not among them."""
    given = range(x.ndim - 1) if sample_axes is None else sample_axes
    axes = negative_axes(given, x.ndim, "the array of pre-activations")
    if axes[0] != -x.ndim:
        raise ValueError(
            f"sample_axes={sample_axes} of pre-activations of shape {tuple(x.shape)} leave out "
            "axis 0; wanted the batch axis, from which the samples are taken, among them."
        )
    return axes
