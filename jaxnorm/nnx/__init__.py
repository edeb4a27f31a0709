"""Flax NNX: models as pure functions, layouts by module type, layers, and edits of models."""

from jaxnorm.nnx._batch_norm import BatchNorm as BatchNorm
from jaxnorm.nnx._batch_norm import PopulationNorm as PopulationNorm
from jaxnorm.nnx._batch_norm import Standardization as Standardization
from jaxnorm.nnx._edit import FoldedModel as FoldedModel
from jaxnorm.nnx._edit import fold_batch_norm as fold_batch_norm
from jaxnorm.nnx._edit import replace_batch_norm as replace_batch_norm
from jaxnorm.nnx._estimate import estimate_statistics as estimate_statistics
from jaxnorm.nnx._functionalize import Functional as Functional
from jaxnorm.nnx._functionalize import functionalize as functionalize
from jaxnorm.nnx._layout import layout as layout
from jaxnorm.nnx._scale_and_bias import Identity as Identity
from jaxnorm.nnx._scale_and_bias import ScaleAndBias as ScaleAndBias

# Each name is imported once, as itself, for type checkers; `help` reads the list.
__all__ = [name for name in dir() if not name.startswith("_")]
