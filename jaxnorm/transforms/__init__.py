"""Transitional names."""

from jaxnorm.transforms._noise import NoiseState, clean_parameters, perturb_scales
from jaxnorm.transforms._noise_injection import noise_injection

__all__ = [
    "NoiseState",
    "clean_parameters",
    "noise_injection",
    "perturb_scales",
]
