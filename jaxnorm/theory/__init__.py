"""The papers' closed forms and dynamics, one module per paper; and maps of activations."""

from jaxnorm._kernel_maps import c_curvature, c_map, c_slope, q_curvature, q_map, q_slope
from jaxnorm.theory import batch_norm, cwo, lcw, normprop, vcl

__all__ = [
    "batch_norm",
    "c_curvature",
    "c_map",
    "c_slope",
    "cwo",
    "lcw",
    "normprop",
    "q_curvature",
    "q_map",
    "q_slope",
    "vcl",
]
