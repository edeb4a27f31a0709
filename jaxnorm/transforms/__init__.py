"""Optax gradient transformations, and the pure functions behind them."""

from jaxnorm.transforms._centered_gradient import centered_gradient as centered_gradient
from jaxnorm.transforms._clip_by_layer_norm import clip_by_layer_norm as clip_by_layer_norm
from jaxnorm.transforms._noise import perturb_scales as perturb_scales
from jaxnorm.transforms._noise_injection import noise_injection as noise_injection
from jaxnorm.transforms._noise_state import NoiseState as NoiseState
from jaxnorm.transforms._noise_state import clean_parameters as clean_parameters
from jaxnorm.transforms._sphere_projection import sphere_projection as sphere_projection
from jaxnorm.transforms._stiefel_projection import project_to_stiefel as project_to_stiefel
from jaxnorm.transforms._stiefel_projection import stiefel_projection as stiefel_projection

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
