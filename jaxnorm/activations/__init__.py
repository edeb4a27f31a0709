"""Activations under a Gaussian: their moments, and activations that keep a normalization."""

from jaxnorm.activations._gaussian_moments import gaussian_moments, jacobian_factor
from jaxnorm.activations._rectified_moments import rectified_moments
from jaxnorm.activations._standardized import standardized

__all__ = [
    "gaussian_moments",
    "jacobian_factor",
    "rectified_moments",
    "standardized",
]
