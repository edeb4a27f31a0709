"""Train deep networks without batch normalization: five papers as composable pure functions.

Every name is imported when it is first used, and with it what it needs: SciPy by quadrature, Flax
by `jaxnorm.nnx`.
"""

import importlib as _importlib
import typing as _typing

__version__ = "0.2.0"

#: The public names of each private module.
_NAMES = {
    "_branches": "residual_factors scale_branches",
    "_centered_inputs": "centered_inputs CenteredInputsState refresh_input_means",
    "_clip": "clip_by_layer_norm",
    "_constrain_updates": "constrain_updates",
    "_data_dependent_init": "data_dependent_init",
    "_describe": "describe",
    "_finding": "Finding",
    "_findings": "describe_propagation propagation_findings",
    "_fixed_step": "fixed_step",
    "_fold": "fold_into_kernel",
    "_input_means": "input_means",
    "_kinds": (
        "CenteredWeightNormalized LinearlyConstrained Scaled WeightNormalized WeightStandardized"
    ),
    "_layout": "exclude flax_layout Layout layout_from_rules map_kernels torch_layout",
    "_losses": "variance_constancy_loss",
    "_methods": "constrain linearly_constrain propagate_normalization",
    "_metrics": "constraint_drift metrics",
    "_moving_average_normalization": "moving_average_normalization",
    "_moving_averages": "MovingAverages",
    "_node": "Reparametrization",
    "_noise": "linear_stddev with_scale_noise",
    "_noise_injection": "clean_parameters noise_injection NoiseState perturb_scales",
    "_normalizer_free": "normalizer_free",
    "_orthogonal_init": "orthogonal_init",
    "_preactivations": "collect_preactivations",
    "_propagation": "propagation",
    "_rate_findings": "rate_findings",
    "_reparametrize": "effective parameter_count reparametrize",
    "_roles": "describe_roles",
    "_spectral": "SpectrallyNormalized",
    "_sphere": "center project project_to_sphere",
    "_sphere_projection": "sphere_projection",
    "_statistics": "batch_moments kurtosis merge_moments Moments",
    "_stiefel": "project_to_stiefel stiefel_projection",
    "_trace.queries": "first_layer traced_layout",
    "_trace.reading": "read Reading",
    "_variance_init": "variance_preserving_init",
    "_zero_sums": "centered_gradient zero_sum_projection",
}
_PACKAGES = ("batch_norm", "nnx", "normprop", "shaping", "spectral", "theory", "vcl")
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted((*_MODULES, *_PACKAGES), key=str.lower)

# For type checkers and readers of the documentation, each name once, as itself.
if _typing.TYPE_CHECKING:
    from jaxnorm import batch_norm as batch_norm
    from jaxnorm import nnx as nnx
    from jaxnorm import normprop as normprop
    from jaxnorm import shaping as shaping
    from jaxnorm import spectral as spectral
    from jaxnorm import theory as theory
    from jaxnorm import vcl as vcl
    from jaxnorm._branches import residual_factors as residual_factors
    from jaxnorm._branches import scale_branches as scale_branches
    from jaxnorm._centered_inputs import CenteredInputsState as CenteredInputsState
    from jaxnorm._centered_inputs import centered_inputs as centered_inputs
    from jaxnorm._centered_inputs import refresh_input_means as refresh_input_means
    from jaxnorm._clip import clip_by_layer_norm as clip_by_layer_norm
    from jaxnorm._constrain_updates import constrain_updates as constrain_updates
    from jaxnorm._data_dependent_init import data_dependent_init as data_dependent_init
    from jaxnorm._describe import describe as describe
    from jaxnorm._finding import Finding as Finding
    from jaxnorm._findings import describe_propagation as describe_propagation
    from jaxnorm._findings import propagation_findings as propagation_findings
    from jaxnorm._fixed_step import fixed_step as fixed_step
    from jaxnorm._fold import fold_into_kernel as fold_into_kernel
    from jaxnorm._input_means import input_means as input_means
    from jaxnorm._kinds import CenteredWeightNormalized as CenteredWeightNormalized
    from jaxnorm._kinds import LinearlyConstrained as LinearlyConstrained
    from jaxnorm._kinds import Scaled as Scaled
    from jaxnorm._kinds import WeightNormalized as WeightNormalized
    from jaxnorm._kinds import WeightStandardized as WeightStandardized
    from jaxnorm._layout import Layout as Layout
    from jaxnorm._layout import exclude as exclude
    from jaxnorm._layout import flax_layout as flax_layout
    from jaxnorm._layout import layout_from_rules as layout_from_rules
    from jaxnorm._layout import map_kernels as map_kernels
    from jaxnorm._layout import torch_layout as torch_layout
    from jaxnorm._losses import variance_constancy_loss as variance_constancy_loss
    from jaxnorm._methods import constrain as constrain
    from jaxnorm._methods import linearly_constrain as linearly_constrain
    from jaxnorm._methods import propagate_normalization as propagate_normalization
    from jaxnorm._metrics import constraint_drift as constraint_drift
    from jaxnorm._metrics import metrics as metrics
    from jaxnorm._moving_average_normalization import (
        moving_average_normalization as moving_average_normalization,
    )
    from jaxnorm._moving_averages import MovingAverages as MovingAverages
    from jaxnorm._node import Reparametrization as Reparametrization
    from jaxnorm._noise import linear_stddev as linear_stddev
    from jaxnorm._noise import with_scale_noise as with_scale_noise
    from jaxnorm._noise_injection import NoiseState as NoiseState
    from jaxnorm._noise_injection import clean_parameters as clean_parameters
    from jaxnorm._noise_injection import noise_injection as noise_injection
    from jaxnorm._noise_injection import perturb_scales as perturb_scales
    from jaxnorm._normalizer_free import normalizer_free as normalizer_free
    from jaxnorm._orthogonal_init import orthogonal_init as orthogonal_init
    from jaxnorm._preactivations import collect_preactivations as collect_preactivations
    from jaxnorm._propagation import propagation as propagation
    from jaxnorm._rate_findings import rate_findings as rate_findings
    from jaxnorm._reparametrize import effective as effective
    from jaxnorm._reparametrize import parameter_count as parameter_count
    from jaxnorm._reparametrize import reparametrize as reparametrize
    from jaxnorm._roles import describe_roles as describe_roles
    from jaxnorm._spectral import SpectrallyNormalized as SpectrallyNormalized
    from jaxnorm._sphere import center as center
    from jaxnorm._sphere import project as project
    from jaxnorm._sphere import project_to_sphere as project_to_sphere
    from jaxnorm._sphere_projection import sphere_projection as sphere_projection
    from jaxnorm._statistics import Moments as Moments
    from jaxnorm._statistics import batch_moments as batch_moments
    from jaxnorm._statistics import kurtosis as kurtosis
    from jaxnorm._statistics import merge_moments as merge_moments
    from jaxnorm._stiefel import project_to_stiefel as project_to_stiefel
    from jaxnorm._stiefel import stiefel_projection as stiefel_projection
    from jaxnorm._trace.queries import first_layer as first_layer
    from jaxnorm._trace.queries import traced_layout as traced_layout
    from jaxnorm._trace.reading import Reading as Reading
    from jaxnorm._trace.reading import read as read
    from jaxnorm._variance_init import variance_preserving_init as variance_preserving_init
    from jaxnorm._zero_sums import centered_gradient as centered_gradient
    from jaxnorm._zero_sums import zero_sum_projection as zero_sum_projection
else:

    def __getattr__(name: str) -> _typing.Any:
        """Imports a public name at its first use."""
        if name in _PACKAGES:
            return _importlib.import_module(f"jaxnorm.{name}")
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(_importlib.import_module(f"jaxnorm.{_MODULES[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return [*(name for name in globals() if name.startswith("__")), *__all__]
