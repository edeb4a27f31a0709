"""Noise on what each layer computes, drawn anew for each sample."""

from jaxnorm.noise._linear_stddev import linear_stddev
from jaxnorm.noise._with_scale_noise import with_scale_noise

__all__ = [
    "linear_stddev",
    "with_scale_noise",
]
