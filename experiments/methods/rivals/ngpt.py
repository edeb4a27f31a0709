"""nGPT: tokens and matrices on the unit sphere, along the embedding.

Loshchilov, Hsieh, Sun and Ginsburg 2024, "nGPT: normalized transformer with representation learning
on the hypersphere". The network is `experiments.models.normalized_transformer`; weight decay, which
the paper has none of, only shortens matrices that are put back on the sphere.
"""

from dataclasses import dataclass
from typing import Any

from jaxtyping import Array, Float, PyTree

import jaxnorm
from experiments.methods.constrained import Sphere
from experiments.methods.part import Context, Optimizer
from experiments.models.normalized_transformer import EMBEDDING_AXES
from experiments.models.registry import NetworkStyle


@dataclass(frozen=True)
class Hypersphere(Sphere):
    """Keeps unit norm along the embedding in every matrix, the classifier's included."""

    squared_radius: float = 1.0
    centered: bool = False

    def style(self, style: NetworkStyle) -> NetworkStyle:
        """Keeps tokens on the sphere, too."""
        return style._replace(hypersphere=True)

    def projected(self, raw: PyTree, context: Context) -> PyTree:
        """Projects vectors along the embedding to unit norm."""
        return super().projected(raw, _along_embedding(context))

    def optimizer(self, optimizer: Optimizer, context: Context, seed: Any) -> Optimizer:
        """Appends the projection to unit vectors along the embedding."""
        return super().optimizer(optimizer, _along_embedding(context), seed)

    def drift(self, raw: PyTree, context: Context) -> Float[Array, ""]:
        """Returns the largest |

        w

        ^2 - 1 | along the embedding.
        """
        return super().drift(raw, _along_embedding(context))


def _along_embedding(context: Context) -> Context:
    return context._replace(layout=jaxnorm.layout_from_rules(list(EMBEDDING_AXES)))
