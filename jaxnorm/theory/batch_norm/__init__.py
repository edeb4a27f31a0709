"""Batch normalization of one unit: its regularization, dynamics and generalization in closed form.

The student is w~ = sqrt(N) gamma w / ||w|| on N inputs, which are N(0, 1/N); the teacher w* has the
length sqrt(N). Everything depends on three order parameters: Q = gamma, the length of w~ over
sqrt(N); R, the cosine between student and teacher; L, the length of w over sqrt(N).

Three kinds of student are distinguished: `bn`, batch normalization as weight normalization with
gamma decay; `wn`, weight normalization; `sgd`, neither of the two.

All functions but `solve_order_parameters` are elementwise in their arguments, differentiable, and
the same under jit, vmap, pmap and shard_map.

Reference: Luo et al. 2019, Towards understanding regularization in batch normalization.
"""

from jaxnorm.theory.batch_norm._dynamics import (
    OrderParameters,
    effective_learning_rate,
    fixed_point,
    integrals,
    max_learning_rate,
    order_parameter_flow,
    solve_order_parameters,
    stability_eigenvalues,
)
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
