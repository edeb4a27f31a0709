"""Losses on activations and scales: variance constancy, and gamma decay with its strengths."""

from jaxnorm.losses._collect_preactivations import collect_preactivations
from jaxnorm.losses._curvature import affine_gamma_decay_strength, gamma_decay_strength
from jaxnorm.losses._gamma_decay import gamma_decay, perceptron_gamma_decay_strength
from jaxnorm.losses._variance_constancy import (
    initial_betas,
    positive_betas,
    total_variance_constancy,
    variance_constancy_loss,
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
