"""The flags of the methods' parts; each sets the fields of its name in all parts."""

from dataclasses import dataclass
from typing import Annotated

from experiments.ranges import Count, Range, Strength


@dataclass(frozen=True)
class Overrides:
    """Settings of the methods' parts; a flag that is left out keeps the method's own."""

    noise: Strength | None = None
    """The noise's standard deviation."""
    clip: Strength | None = None
    """The largest norm of a layer's gradient in constrained weight optimization; 0 clips none."""
    sample_size: Annotated[int | None, Range(2, 2**31 - 1)] = None
    """n of the variance constancy loss: 2n rows of each batch are read."""
    vcl_weight: Strength | None = None
    """The factor of the variance constancy loss."""
    vcl_clip: Annotated[float | None, Range(0, 10**6, without=0)] = None
    """The largest norm of a layer's gradient with the variance constancy loss."""
    vcl_per_channel: bool | None = None
    """Take a channel for a unit of the variance constancy loss, not a channel at a position."""
    refresh_every: Count | None = None
    """The steps between refreshes of population statistics and decay strengths."""
    population_rows: Count | None = None
    """The number of rows for population statistics; all rows if there are fewer."""
    probes: Count | None = None
    """The number of probes of a gamma decay strength."""
    decay_times: Strength | None = None
    """The factor of the predicted strength of gamma decay."""
    dropout: Annotated[float | None, Range(0, 1, without=1)] = None
    """The rate of dropout."""
