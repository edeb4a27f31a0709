"""Train deep networks without batch normalization: five papers as composable pure functions.

`jaxnorm.nnx`, which needs Flax, is imported when it is first used.
"""

from typing import TYPE_CHECKING, Any

from jaxnorm import activations as activations
from jaxnorm import initializers as initializers
from jaxnorm import losses as losses
from jaxnorm import noise as noise
from jaxnorm import recipes as recipes
from jaxnorm import reparam as reparam
from jaxnorm import statistics as statistics
from jaxnorm import theory as theory
from jaxnorm import transforms as transforms
from jaxnorm._constrain import constrain as constrain
from jaxnorm._constrain import linearly_constrain as linearly_constrain
from jaxnorm._constrain import propagate_normalization as propagate_normalization
from jaxnorm._constraints._metrics import metrics as metrics
from jaxnorm._constraints._project import constraint_drift as constraint_drift
from jaxnorm._constraints._project import project as project
from jaxnorm._constraints._unit import center as center
from jaxnorm._constraints._unit import project_to_sphere as project_to_sphere
from jaxnorm._tracing import first_layer as first_layer
from jaxnorm._tracing import traced_layout as traced_layout
from jaxnorm._trees._describe import describe as describe
from jaxnorm._trees._layout import Layout as Layout
from jaxnorm._trees._layout import exclude as exclude
from jaxnorm._trees._layout import flax_layout as flax_layout
from jaxnorm._trees._layout import layout_from_rules as layout_from_rules
from jaxnorm._trees._layout import torch_layout as torch_layout
from jaxnorm.activations import gaussian_moments as gaussian_moments
from jaxnorm.activations import jacobian_factor as jacobian_factor
from jaxnorm.activations import rectified_moments as rectified_moments
from jaxnorm.activations import standardized as standardized
from jaxnorm.initializers import data_dependent_init as data_dependent_init
from jaxnorm.initializers import variance_preserving_init as variance_preserving_init
from jaxnorm.losses import affine_gamma_decay_strength as affine_gamma_decay_strength
from jaxnorm.losses import collect_preactivations as collect_preactivations
from jaxnorm.losses import gamma_decay as gamma_decay
from jaxnorm.losses import gamma_decay_strength as gamma_decay_strength
from jaxnorm.losses import initial_betas as initial_betas
from jaxnorm.losses import perceptron_gamma_decay_strength as perceptron_gamma_decay_strength
from jaxnorm.losses import positive_betas as positive_betas
from jaxnorm.losses import total_variance_constancy as total_variance_constancy
from jaxnorm.losses import variance_constancy_loss as variance_constancy_loss
from jaxnorm.noise import linear_stddev as linear_stddev
from jaxnorm.noise import with_scale_noise as with_scale_noise
from jaxnorm.reparam import CenteredWeightNormalized as CenteredWeightNormalized
from jaxnorm.reparam import LinearlyConstrained as LinearlyConstrained
from jaxnorm.reparam import Reparametrization as Reparametrization
from jaxnorm.reparam import Scaled as Scaled
from jaxnorm.reparam import SpectrallyNormalized as SpectrallyNormalized
from jaxnorm.reparam import WeightNormalized as WeightNormalized
from jaxnorm.reparam import WeightStandardized as WeightStandardized
from jaxnorm.reparam import attach_singular_vectors as attach_singular_vectors
from jaxnorm.reparam import effective as effective
from jaxnorm.reparam import fold_batch_norm as fold_batch_norm
from jaxnorm.reparam import parameter_count as parameter_count
from jaxnorm.reparam import power_iteration as power_iteration
from jaxnorm.reparam import reparametrize as reparametrize
from jaxnorm.statistics import Moments as Moments
from jaxnorm.statistics import batch_moments as batch_moments
from jaxnorm.statistics import independent_positions as independent_positions
from jaxnorm.statistics import kurtosis as kurtosis
from jaxnorm.statistics import merge_moments as merge_moments
from jaxnorm.statistics import population_statistics as population_statistics
from jaxnorm.statistics import sample_variance as sample_variance
from jaxnorm.transforms import centered_gradient as centered_gradient
from jaxnorm.transforms import clean_parameters as clean_parameters
from jaxnorm.transforms import clip_by_layer_norm as clip_by_layer_norm
from jaxnorm.transforms import noise_injection as noise_injection
from jaxnorm.transforms import perturb_scales as perturb_scales
from jaxnorm.transforms import project_to_stiefel as project_to_stiefel
from jaxnorm.transforms import sphere_projection as sphere_projection
from jaxnorm.transforms import stiefel_projection as stiefel_projection

__version__ = "0.1.0"

__all__ = [
    "CenteredWeightNormalized",
    "Layout",
    "LinearlyConstrained",
    "Moments",
    "Reparametrization",
    "Scaled",
    "SpectrallyNormalized",
    "WeightNormalized",
    "WeightStandardized",
    "activations",
    "affine_gamma_decay_strength",
    "attach_singular_vectors",
    "batch_moments",
    "center",
    "centered_gradient",
    "clean_parameters",
    "clip_by_layer_norm",
    "collect_preactivations",
    "constrain",
    "constraint_drift",
    "data_dependent_init",
    "describe",
    "effective",
    "exclude",
    "first_layer",
    "flax_layout",
    "fold_batch_norm",
    "gamma_decay",
    "gamma_decay_strength",
    "gaussian_moments",
    "independent_positions",
    "initial_betas",
    "initializers",
    "jacobian_factor",
    "kurtosis",
    "layout_from_rules",
    "linear_stddev",
    "linearly_constrain",
    "losses",
    "merge_moments",
    "metrics",
    "nnx",
    "noise",
    "noise_injection",
    "parameter_count",
    "perceptron_gamma_decay_strength",
    "perturb_scales",
    "population_statistics",
    "positive_betas",
    "power_iteration",
    "project",
    "project_to_sphere",
    "project_to_stiefel",
    "propagate_normalization",
    "recipes",
    "rectified_moments",
    "reparam",
    "reparametrize",
    "sample_variance",
    "sphere_projection",
    "standardized",
    "statistics",
    "stiefel_projection",
    "theory",
    "torch_layout",
    "total_variance_constancy",
    "traced_layout",
    "transforms",
    "variance_constancy_loss",
    "variance_preserving_init",
    "with_scale_noise",
]

if TYPE_CHECKING:
    from jaxnorm import nnx as nnx
else:

    def __getattr__(name: str) -> Any:
        """Imports `jaxnorm.nnx`, and with it Flax, for whoever asks for it."""
        if name == "nnx":
            import jaxnorm.nnx

            return jaxnorm.nnx
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*(name for name in globals() if name.startswith("__")), *__all__]
