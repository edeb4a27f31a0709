"""A user's own settings in the place of a recipe's, where the recipe has such a part."""

from dataclasses import replace
from typing import NamedTuple

from experiments.methods._recipe import Recipe


class Overrides(NamedTuple):
    """Settings of parts of methods; None keeps what the recipe says.

    Attributes:
        noise: the standard deviation of the noise on the scales.
        dropout: the rate.
        sample_size: n of the variance constancy loss.
        vcl_weight: what that loss is multiplied by.
        vcl_clip: the largest norm of a layer's gradient with it.
        vcl_per_channel: whether its unit is a channel, not a channel at a position.
        refresh_every: the steps between refreshes of population statistics and decay strengths.
        population_rows: the rows that they are taken of.
        probes: the probes of a decay strength.
    """

    noise: float | None = None
    dropout: float | None = None
    sample_size: int | None = None
    vcl_weight: float | None = None
    vcl_clip: float | None = None
    vcl_per_channel: bool | None = None
    refresh_every: int | None = None
    population_rows: int | None = None
    probes: int | None = None


def adjusted(recipe: Recipe, overrides: Overrides) -> Recipe:
    """The recipe with what the user set, in the parts that it has."""
    constancy = {
        "sample_size": overrides.sample_size,
        "weight": overrides.vcl_weight,
        "clip": overrides.vcl_clip,
        "per_channel": overrides.vcl_per_channel,
    }
    population = {"every": overrides.refresh_every, "rows": overrides.population_rows}
    return replace(
        recipe,
        noise=None if recipe.noise is None else _first(overrides.noise, recipe.noise),
        dropout=_first(overrides.dropout, recipe.dropout) if recipe.dropout else 0.0,
        variance_constancy=_with(recipe.variance_constancy, constancy),
        population=_with(recipe.population, population),
        gamma_decay=_with(recipe.gamma_decay, {"probes": overrides.probes}),
    )


def _first(chosen: float | None, default: float) -> float:
    return default if chosen is None else chosen


def _with(part, chosen):
    """A part with those of its fields replaced that are chosen; None stays None."""
    given = {name: value for name, value in chosen.items() if value is not None}
    return None if part is None else part._replace(**given)
