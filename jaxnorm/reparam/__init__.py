"""Raw parameters -> effective weights: one node a reparametrization."""

from jaxnorm._node import Reparametrization as Reparametrization
from jaxnorm.reparam._effective import effective as effective
from jaxnorm.reparam._reparametrize import reparametrize as reparametrize
from jaxnorm.reparam._scaled import Scaled as Scaled
