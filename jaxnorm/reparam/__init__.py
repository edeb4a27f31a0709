"""Raw parameters -> effective weights: one node a reparametrization."""

from jaxnorm._trees._node import Reparametrization as Reparametrization
from jaxnorm.reparam._effective import effective as effective
from jaxnorm.reparam._fold import Folded as Folded
from jaxnorm.reparam._fold import fold_batch_norm as fold_batch_norm
from jaxnorm.reparam._linearly_constrained import LinearlyConstrained as LinearlyConstrained
from jaxnorm.reparam._parameter_count import parameter_count as parameter_count
from jaxnorm.reparam._power_iteration import attach_singular_vectors as attach_singular_vectors
from jaxnorm.reparam._power_iteration import power_iteration as power_iteration
from jaxnorm.reparam._reparametrize import reparametrize as reparametrize
from jaxnorm.reparam._scaled import Scaled as Scaled
from jaxnorm.reparam._spectrally_normalized import SpectrallyNormalized as SpectrallyNormalized
from jaxnorm.reparam._weight_normalized import (
    CenteredWeightNormalized as CenteredWeightNormalized,
)
from jaxnorm.reparam._weight_normalized import WeightNormalized as WeightNormalized
from jaxnorm.reparam._weight_normalized import WeightStandardized as WeightStandardized

__all__ = [
    "CenteredWeightNormalized",
    "Folded",
    "LinearlyConstrained",
    "Reparametrization",
    "Scaled",
    "SpectrallyNormalized",
    "WeightNormalized",
    "WeightStandardized",
    "attach_singular_vectors",
    "effective",
    "fold_batch_norm",
    "parameter_count",
    "power_iteration",
    "reparametrize",
]
