"""Sample moments of activations: grouped, across devices, and merged over minibatches."""

from jaxnorm.statistics._batch_moments import batch_moments
from jaxnorm.statistics._independent_positions import independent_positions
from jaxnorm.statistics._moments import Moments, merge_moments
from jaxnorm.statistics._population import population_statistics
from jaxnorm.statistics._shape import kurtosis, sample_variance

__all__ = [
    "Moments",
    "batch_moments",
    "independent_positions",
    "kurtosis",
    "merge_moments",
    "population_statistics",
    "sample_variance",
]
