"""Optax gradient transformations, and the pure functions behind them."""

from jaxnorm.transforms._centered_gradient import centered_gradient
from jaxnorm.transforms._clip_by_layer_norm import clip_by_layer_norm
from jaxnorm.transforms._noise import NoiseState, clean_parameters, perturb_scales
from jaxnorm.transforms._noise_injection import noise_injection
from jaxnorm.transforms._sphere_projection import sphere_projection
from jaxnorm.transforms._stiefel_projection import project_to_stiefel, stiefel_projection

__all__ = [
    "NoiseState",
    "centered_gradient",
    "clean_parameters",
    "clip_by_layer_norm",
    "noise_injection",
    "perturb_scales",
    "project_to_stiefel",
    "sphere_projection",
    "stiefel_projection",
]
