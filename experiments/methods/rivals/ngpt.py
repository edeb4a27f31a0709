"""nGPT: tokens and matrices on the unit sphere, along the embedding.

Loshchilov, Hsieh, Sun and Ginsburg 2024, "nGPT: normalized transformer with representation learning
on the hypersphere". The network is `experiments.models.normalized_transformer`; weight decay, which
the paper has none of, only shortens matrices that are put back on the sphere.
"""

from dataclasses import dataclass

import jaxnorm
from experiments.methods.constrained import Sphere
from experiments.methods.part import Context
from experiments.models.normalized_transformer import EMBEDDING_AXES
from experiments.models.registry import NetworkStyle
from jaxnorm import Layout


@dataclass(frozen=True)
class Hypersphere(Sphere):
    """Keeps unit norm along the embedding in every matrix, the classifier's included."""

    squared_radius: float = 1.0
    centered: bool = False

    def style(self, style: NetworkStyle) -> NetworkStyle:
        """Keeps tokens on the sphere, too."""
        return style._replace(hypersphere=True)

    def layout(self, context: Context) -> Layout:
        """Returns the axes of every matrix that lie along the embedding."""
        return jaxnorm.layout_from_rules(list(EMBEDDING_AXES))
