"""Losses on activations and scales: variance constancy, and gamma decay with its strengths."""

from jaxnorm.losses._affine_strength import (
    affine_gamma_decay_strength as affine_gamma_decay_strength,
)
from jaxnorm.losses._beta import initial_betas as initial_betas
from jaxnorm.losses._beta import positive_betas as positive_betas
from jaxnorm.losses._collect_preactivations import (
    collect_preactivations as collect_preactivations,
)
from jaxnorm.losses._gamma_decay import gamma_decay as gamma_decay
from jaxnorm.losses._gamma_decay_strength import gamma_decay_strength as gamma_decay_strength
from jaxnorm.losses._perceptron_strength import (
    perceptron_gamma_decay_strength as perceptron_gamma_decay_strength,
)
from jaxnorm.losses._variance_constancy import (
    total_variance_constancy as total_variance_constancy,
)
from jaxnorm.losses._variance_constancy import (
    variance_constancy_loss as variance_constancy_loss,
)

__all__ = [
    "affine_gamma_decay_strength",
    "collect_preactivations",
    "gamma_decay",
    "gamma_decay_strength",
    "initial_betas",
    "perceptron_gamma_decay_strength",
    "positive_betas",
    "total_variance_constancy",
    "variance_constancy_loss",
]
