"""Batch normalization of one unit: its regularization, dynamics and generalization in closed form.

The student is w~ = sqrt(N) gamma w / ||w||, N its inputs, which are N(0, 1/N); the teacher w* has
the length sqrt(N). Everything depends on three order parameters: Q = gamma, the length of w~ over
sqrt(N); R, the cosine between student and teacher; L, the length of w over sqrt(N).

Reference: Luo et al. 2019, Towards understanding regularization in batch normalization.
"""

from jaxnorm.theory.batch_norm._dynamics import (
    OrderParameters,
    order_parameter_flow,
    solve_order_parameters,
)
from jaxnorm.theory.batch_norm._fixed_point import (
    effective_learning_rate,
    fixed_point,
    max_learning_rate,
    stability_eigenvalues,
)
from jaxnorm.theory.batch_norm._integrals import integrals
from jaxnorm.theory.batch_norm._regularization import generalization_error, linear_gamma_decay

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
