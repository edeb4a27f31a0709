"""Batch normalization of one unit: its regularization, dynamics and generalization in closed form.

The student is w~ = sqrt(N) gamma w / ||w||, N its inputs, which are N(0, 1/N); the teacher w* has
the length sqrt(N). Everything depends on three order parameters: Q = gamma, the length of w~ over
sqrt(N); R, the cosine between student and teacher; L, the length of w over sqrt(N).

Reference: Luo et al. 2019, Towards understanding regularization in batch normalization.
"""

from jaxnorm.theory.batch_norm._dynamics import OrderParameters as OrderParameters
from jaxnorm.theory.batch_norm._dynamics import order_parameter_flow as order_parameter_flow
from jaxnorm.theory.batch_norm._fixed_point import (
    effective_learning_rate as effective_learning_rate,
)
from jaxnorm.theory.batch_norm._fixed_point import fixed_point as fixed_point
from jaxnorm.theory.batch_norm._fixed_point import max_learning_rate as max_learning_rate
from jaxnorm.theory.batch_norm._fixed_point import stability_eigenvalues as stability_eigenvalues
from jaxnorm.theory.batch_norm._generalization import generalization_error as generalization_error
from jaxnorm.theory.batch_norm._integrals import integrals as integrals
from jaxnorm.theory.batch_norm._linear_gamma_decay import linear_gamma_decay as linear_gamma_decay
from jaxnorm.theory.batch_norm._solve import solve_order_parameters as solve_order_parameters

__all__ = [
    "OrderParameters",
    "effective_learning_rate",
    "fixed_point",
    "generalization_error",
    "integrals",
    "linear_gamma_decay",
    "max_learning_rate",
    "order_parameter_flow",
    "solve_order_parameters",
    "stability_eigenvalues",
]
