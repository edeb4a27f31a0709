"""Flax NNX: models as pure functions, layouts by module type, layers, and edits of models."""

from jaxnorm.nnx._batch_norm import BatchNorm, PopulationNorm, Standardization
from jaxnorm.nnx._edit import FoldedModel, fold_batch_norm, replace_batch_norm, scale_and_bias
from jaxnorm.nnx._functionalize import Functional, functionalize
from jaxnorm.nnx._layout import layout
from jaxnorm.nnx._scale_and_bias import Identity, ScaleAndBias

__all__ = [
    "BatchNorm",
    "FoldedModel",
    "Functional",
    "Identity",
    "PopulationNorm",
    "ScaleAndBias",
    "Standardization",
    "fold_batch_norm",
    "functionalize",
    "layout",
    "replace_batch_norm",
    "scale_and_bias",
]
