"""Normalization propagation: moments of activations, and activations standardized by them.

Arpit et al. 2016. The paper's error bounds are in `jaxnorm.theory.normprop`.
"""

from jaxnorm._activations import gaussian_moments as gaussian_moments
from jaxnorm._activations import jacobian_factor as jacobian_factor
from jaxnorm._activations import rectified_moments as rectified_moments
from jaxnorm._activations import standardized as standardized

# Each name is imported once, as itself, for type checkers; `help` reads the list.
__all__ = [name for name in dir() if not name.startswith("_")]
