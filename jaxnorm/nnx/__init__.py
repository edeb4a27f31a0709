"""What needs Flax: models as pure functions, layouts from types, layers, and edits of models."""

from jaxnorm.nnx._batch_norm import BatchNorm
from jaxnorm.nnx._fold_batch_norm import FoldedModel, fold_batch_norm
from jaxnorm.nnx._functionalize import Functional, functionalize
from jaxnorm.nnx._layout import layout
from jaxnorm.nnx._population_norm import PopulationNorm
from jaxnorm.nnx._replace_batch_norm import replace_batch_norm, scale_and_bias
from jaxnorm.nnx._scale_and_bias import Identity, ScaleAndBias
from jaxnorm.nnx._standardization import Standardization
from jaxnorm.nnx._statistics import Statistic

__all__ = [
    "BatchNorm",
    "FoldedModel",
    "Functional",
    "Identity",
    "PopulationNorm",
    "ScaleAndBias",
    "Standardization",
    "Statistic",
    "fold_batch_norm",
    "functionalize",
    "layout",
    "replace_batch_norm",
    "scale_and_bias",
]
