"""Train deep networks without batch normalization: five papers as composable pure functions.

`jaxnorm.nnx`, which needs Flax, is imported when it is first used.
"""

from typing import TYPE_CHECKING, Any

from jaxnorm import (
    activations,
    noise,
    reparam,
    theory,
    transforms,
)
from jaxnorm._constrain import constrain, linearly_constrain, propagate_normalization
from jaxnorm._constraints._metrics import metrics
from jaxnorm._constraints._project import constraint_drift, project
from jaxnorm._constraints._unit import center, project_to_sphere
from jaxnorm._fold import fold_into_kernel
from jaxnorm._gamma_decay import (
    affine_gamma_decay_strength,
    gamma_decay,
    gamma_decay_strength,
    perceptron_gamma_decay_strength,
)
from jaxnorm._initializers import data_dependent_init, sphere_init, variance_preserving_init
from jaxnorm._losses import (
    collect_preactivations,
    initial_betas,
    positive_betas,
    total_variance_constancy,
    variance_constancy_loss,
)
from jaxnorm._statistics import (
    Moments,
    batch_moments,
    independent_positions,
    kurtosis,
    merge_moments,
    population_statistics,
)
from jaxnorm._tracing import first_layer, traced_layout
from jaxnorm._trees._describe import describe
from jaxnorm._trees._layout import Layout, exclude, flax_layout, layout_from_rules, torch_layout
from jaxnorm.activations import gaussian_moments, jacobian_factor, rectified_moments, standardized
from jaxnorm.noise import linear_stddev, with_scale_noise
from jaxnorm.reparam import (
    CenteredWeightNormalized,
    LinearlyConstrained,
    Reparametrization,
    Scaled,
    SpectrallyNormalized,
    WeightNormalized,
    WeightStandardized,
    attach_singular_vectors,
    effective,
    parameter_count,
    power_iteration,
    reparametrize,
)
from jaxnorm.transforms import (
    centered_gradient,
    clean_parameters,
    clip_by_layer_norm,
    noise_injection,
    perturb_scales,
    project_to_stiefel,
    sphere_projection,
    stiefel_projection,
)

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
    "rectified_moments",
    "reparam",
    "reparametrize",
    "sphere_init",
    "sphere_projection",
    "standardized",
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
