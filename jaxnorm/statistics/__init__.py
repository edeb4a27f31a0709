"""Sample moments of activations: grouped, across devices, and merged over minibatches."""

from jaxnorm.statistics._batch_moments import batch_moments as batch_moments
from jaxnorm.statistics._independent_positions import (
    independent_positions as independent_positions,
)
from jaxnorm.statistics._kurtosis import kurtosis as kurtosis
from jaxnorm.statistics._moments import Moments as Moments
from jaxnorm.statistics._moments import merge_moments as merge_moments
from jaxnorm.statistics._population import population_statistics as population_statistics
from jaxnorm.statistics._sample_variance import sample_variance as sample_variance

__all__ = [
    "Moments",
    "batch_moments",
    "independent_positions",
    "kurtosis",
    "merge_moments",
    "population_statistics",
    "sample_variance",
]
