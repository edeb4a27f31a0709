"""The hyperparameters that the papers state, by method and network, as data."""

from jaxnorm.recipes._published import RECIPES
from jaxnorm.recipes._recipe import Recipe, learning_rate_schedule

__all__ = [
    "RECIPES",
    "Recipe",
    "learning_rate_schedule",
]
