"""Initial weights: on a constraint set, or fitted to a minibatch layer by layer."""

from jaxnorm.initializers._data_dependent import data_dependent_init
from jaxnorm.initializers._sphere import sphere
from jaxnorm.initializers._variance_preserving import variance_preserving_init

__all__ = [
    "data_dependent_init",
    "sphere",
    "variance_preserving_init",
]
