"""Train deep networks without batch normalization: five papers as composable pure functions.

`jaxnorm.nnx`, which needs Flax, is imported when it is first used.
"""

from typing import TYPE_CHECKING, Any

from jaxnorm import (
    theory,
)
from jaxnorm._activations import gaussian_moments, jacobian_factor, rectified_moments, standardized
from jaxnorm._branches import residual_factors, scale_branches
from jaxnorm._clip import clip_by_layer_norm
from jaxnorm._describe import describe
from jaxnorm._fixed_step import fixed_step
from jaxnorm._fold import fold_into_kernel
from jaxnorm._gamma_decay import (
    affine_gamma_decay_strength,
    gamma_decay,
    gamma_decay_strength,
    perceptron_gamma_decay_strength,
)
from jaxnorm._initializers import (
    data_dependent_init,
    orthogonal_init,
    sphere_init,
    variance_preserving_init,
)
from jaxnorm._kinds import (
    CenteredWeightNormalized,
    LinearlyConstrained,
    Scaled,
    WeightNormalized,
    WeightStandardized,
)
from jaxnorm._layout import (
    Layout,
    exclude,
    flax_layout,
    layout_from_rules,
    map_kernels,
    torch_layout,
)
from jaxnorm._losses import (
    collect_preactivations,
    initial_betas,
    positive_betas,
    total_variance_constancy,
    variance_constancy_loss,
)
from jaxnorm._methods import constrain, linearly_constrain, propagate_normalization
from jaxnorm._metrics import constraint_drift, metrics
from jaxnorm._node import Reparametrization
from jaxnorm._noise import linear_stddev, with_scale_noise
from jaxnorm._noise_injection import (
    NoiseState,
    clean_parameters,
    noise_injection,
    perturb_scales,
)
from jaxnorm._propagation import describe_propagation, propagation
from jaxnorm._reparametrize import effective, parameter_count, reparametrize
from jaxnorm._shaped import shaped, traced_depth
from jaxnorm._spectral import SpectrallyNormalized, attach_singular_vectors, power_iteration
from jaxnorm._sphere import center, project, project_to_sphere
from jaxnorm._sphere_projection import centered_gradient, sphere_projection
from jaxnorm._statistics import (
    Moments,
    batch_moments,
    independent_positions,
    kurtosis,
    merge_moments,
    population_statistics,
)
from jaxnorm._stiefel import project_to_stiefel, stiefel_projection
from jaxnorm._trace import first_layer, traced_layout

__version__ = "0.2.0"

__all__ = [
    "CenteredWeightNormalized",
    "Layout",
    "LinearlyConstrained",
    "Moments",
    "NoiseState",
    "Reparametrization",
    "Scaled",
    "SpectrallyNormalized",
    "WeightNormalized",
    "WeightStandardized",
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
    "describe_propagation",
    "effective",
    "exclude",
    "first_layer",
    "fixed_step",
    "flax_layout",
    "fold_into_kernel",
    "gamma_decay",
    "gamma_decay_strength",
    "gaussian_moments",
    "independent_positions",
    "initial_betas",
    "jacobian_factor",
    "kurtosis",
    "layout_from_rules",
    "linear_stddev",
    "linearly_constrain",
    "map_kernels",
    "merge_moments",
    "metrics",
    "nnx",
    "noise_injection",
    "orthogonal_init",
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
    "propagation",
    "rectified_moments",
    "reparametrize",
    "residual_factors",
    "scale_branches",
    "shaped",
    "sphere_init",
    "sphere_projection",
    "standardized",
    "stiefel_projection",
    "theory",
    "torch_layout",
    "total_variance_constancy",
    "traced_depth",
    "traced_layout",
    "variance_constancy_loss",
    "variance_preserving_init",
    "with_scale_noise",
]

if TYPE_CHECKING:
    from jaxnorm import nnx
else:

    def __getattr__(name: str) -> Any:
        """Imports `jaxnorm.nnx`, and with it Flax, for whoever asks for it."""
        if name == "nnx":
            import jaxnorm.nnx

            return jaxnorm.nnx
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*(name for name in globals() if name.startswith("__")), *__all__]
