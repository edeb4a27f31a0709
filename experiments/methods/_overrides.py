"""A user's own settings in the place of a recipe's, where the recipe has such a part."""

from dataclasses import dataclass, replace

from experiments.methods._recipe import Recipe


@dataclass(frozen=True)
class Overrides:
    """Settings of parts of methods; None keeps what the recipe says."""

    noise: float | None = None
    """The noise's standard deviation, in the methods that inject noise, in place of their own."""
    dropout: float | None = None
    """The rate of dropout, in the methods that have it, in place of their own."""
    sample_size: int | None = None
    """n of the variance constancy loss: 2n rows of each batch are read; 5 if left out."""
    vcl_weight: float | None = None
    """What the variance constancy loss is multiplied by; 0.01 if left out."""
    vcl_clip: float | None = None
    """The largest norm of a layer's gradient with that loss; 1 if left out."""
    vcl_per_channel: bool | None = None
    """Whether a unit of that loss is a channel, and not a channel at a position."""
    refresh_every: int | None = None
    """The steps between refreshes of population statistics and decay strengths; else 10."""
    population_rows: int | None = None
    """The rows that population statistics are taken of; 10,000 (or all) if left out."""
    probes: int | None = None
    """The probes of a gamma decay strength; 1 if left out."""


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
