"""The singular vectors of `jaxnorm.SpectrallyNormalized` kernels, as state.

Miyato et al. 2018.
"""

from jaxnorm._spectral import attach_singular_vectors as attach_singular_vectors
from jaxnorm._spectral import power_iteration as power_iteration

# Each name is imported once, as itself, for type checkers; `help` reads the list.
__all__ = [name for name in dir() if not name.startswith("_")]
