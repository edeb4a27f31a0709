"""The papers' closed forms and dynamics, one module a paper."""

from jaxnorm.theory import batch_norm as batch_norm
from jaxnorm.theory import cwo as cwo
from jaxnorm.theory import lcw as lcw
from jaxnorm.theory import normprop as normprop
from jaxnorm.theory import vcl as vcl

__all__ = [
    "batch_norm",
    "cwo",
    "lcw",
    "normprop",
    "vcl",
]
