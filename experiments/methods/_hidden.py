"""The kernels of hidden layers, which methods constrain and measure."""

import jaxnorm
from experiments.models import HEAD
from jaxnorm import Layout


def hidden_kernels() -> Layout:
    """The layout of all kernels but the classifier's."""
    return jaxnorm.exclude(f"(^|/){HEAD}/")


def constrained_layout(include_head: bool = False) -> Layout:
    """The kernels that methods constrain: all but the classifier's, or with it."""
    return jaxnorm.flax_layout if include_head else hidden_kernels()
