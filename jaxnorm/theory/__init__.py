"""The papers' closed forms and dynamics, one module per paper; and maps of activations."""

from jaxnorm._kernel_maps import c_map as c_map
from jaxnorm._kernel_maps import c_slope as c_slope
from jaxnorm._kernel_maps import q_map as q_map
from jaxnorm.theory import batch_norm as batch_norm
from jaxnorm.theory import cwo as cwo
from jaxnorm.theory import lcw as lcw
from jaxnorm.theory import normprop as normprop
from jaxnorm.theory import vcl as vcl

# Each name is imported once, as itself, for type checkers; `help` reads the list.
__all__ = [name for name in dir() if not name.startswith("_")]
