"""Raw parameters -> effective weights: one node a reparametrization."""

from jaxnorm._trees._node import Reparametrization
from jaxnorm.reparam._linearly_constrained import LinearlyConstrained
from jaxnorm.reparam._reparametrize import effective, parameter_count, reparametrize
from jaxnorm.reparam._scaled import Scaled
from jaxnorm.reparam._spectrally_normalized import (
    SpectrallyNormalized,
    attach_singular_vectors,
    power_iteration,
)
from jaxnorm.reparam._weight_normalized import (
    CenteredWeightNormalized,
    WeightNormalized,
    WeightStandardized,
)

__all__ = [
    "CenteredWeightNormalized",
    "LinearlyConstrained",
    "Reparametrization",
    "Scaled",
    "SpectrallyNormalized",
    "WeightNormalized",
    "WeightStandardized",
    "attach_singular_vectors",
    "effective",
    "parameter_count",
    "power_iteration",
    "reparametrize",
]
