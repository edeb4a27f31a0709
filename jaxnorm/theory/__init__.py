"""The papers' closed forms and dynamics, one module per paper."""

from jaxnorm.theory import batch_norm, cwo, lcw, normprop, vcl

__all__ = [
    "batch_norm",
    "cwo",
    "lcw",
    "normprop",
    "vcl",
]
