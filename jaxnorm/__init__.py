"""Train deep networks without batch normalization: five papers as composable pure functions."""

from jaxnorm import initializers as initializers
from jaxnorm import reparam as reparam
from jaxnorm import transforms as transforms
from jaxnorm._layout import Layout as Layout
from jaxnorm._layout import exclude as exclude
from jaxnorm._layout import flax_layout as flax_layout
from jaxnorm._layout import layout_from_rules as layout_from_rules
from jaxnorm._layout import torch_layout as torch_layout
from jaxnorm._project import constraint_drift as constraint_drift
from jaxnorm._project import project as project
from jaxnorm._unit import center as center
from jaxnorm._unit import project_to_sphere as project_to_sphere
from jaxnorm.initializers import data_dependent_init as data_dependent_init
from jaxnorm.initializers import variance_preserving_init as variance_preserving_init
from jaxnorm.reparam import CenteredWeightNormalized as CenteredWeightNormalized
from jaxnorm.reparam import LinearlyConstrained as LinearlyConstrained
from jaxnorm.reparam import Reparametrization as Reparametrization
from jaxnorm.reparam import Scaled as Scaled
from jaxnorm.reparam import SpectrallyNormalized as SpectrallyNormalized
from jaxnorm.reparam import WeightNormalized as WeightNormalized
from jaxnorm.reparam import WeightStandardized as WeightStandardized
from jaxnorm.reparam import attach as attach
from jaxnorm.reparam import effective as effective
from jaxnorm.reparam import fold_batch_norm as fold_batch_norm
from jaxnorm.reparam import parameter_count as parameter_count
from jaxnorm.reparam import power_iteration as power_iteration
from jaxnorm.reparam import reparametrize as reparametrize
from jaxnorm.transforms import centered_gradient as centered_gradient
from jaxnorm.transforms import clean_parameters as clean_parameters
from jaxnorm.transforms import clip_by_layer_norm as clip_by_layer_norm
from jaxnorm.transforms import noise_injection as noise_injection
from jaxnorm.transforms import perturb_scales as perturb_scales
from jaxnorm.transforms import sphere_projection as sphere_projection

__version__ = "0.1.0"
