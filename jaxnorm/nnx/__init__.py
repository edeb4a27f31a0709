"""What needs Flax: models as pure functions, layouts from types, layers, and edits of models."""

import jaxnorm.nnx._serialization  # noqa: F401  # registers the nodes with Flax
from jaxnorm.nnx._batch_norm import BatchNorm as BatchNorm
from jaxnorm.nnx._fold_batch_norm import FoldedModel as FoldedModel
from jaxnorm.nnx._fold_batch_norm import fold_batch_norm as fold_batch_norm
from jaxnorm.nnx._functionalize import Functional as Functional
from jaxnorm.nnx._functionalize import functionalize as functionalize
from jaxnorm.nnx._layout import layout as layout
from jaxnorm.nnx._population_norm import PopulationNorm as PopulationNorm
from jaxnorm.nnx._replace_batch_norm import replace_batch_norm as replace_batch_norm
from jaxnorm.nnx._replace_batch_norm import scale_and_bias as scale_and_bias
from jaxnorm.nnx._scale_and_bias import Identity as Identity
from jaxnorm.nnx._scale_and_bias import ScaleAndBias as ScaleAndBias
from jaxnorm.nnx._standardization import Standardization as Standardization
from jaxnorm.nnx._statistics import Statistic as Statistic

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
