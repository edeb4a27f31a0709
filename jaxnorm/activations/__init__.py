"""Activations under a Gaussian: their moments, and activations that keep a normalization."""

from jaxnorm.activations._gaussian_moments import gaussian_moments as gaussian_moments
from jaxnorm.activations._jacobian_factor import jacobian_factor as jacobian_factor
from jaxnorm.activations._rectified_moments import rectified_moments as rectified_moments
from jaxnorm.activations._standardized import standardized as standardized

__all__ = [
    "gaussian_moments",
    "jacobian_factor",
    "rectified_moments",
    "standardized",
]
