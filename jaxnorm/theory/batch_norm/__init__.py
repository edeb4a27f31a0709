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

from jaxnorm.theory.batch_norm._dynamics import OrderParameters as OrderParameters
from jaxnorm.theory.batch_norm._dynamics import fixed_point as fixed_point
from jaxnorm.theory.batch_norm._dynamics import integrals as integrals
from jaxnorm.theory.batch_norm._dynamics import max_learning_rate as max_learning_rate
from jaxnorm.theory.batch_norm._dynamics import order_parameter_flow as order_parameter_flow
from jaxnorm.theory.batch_norm._dynamics import solve_order_parameters as solve_order_parameters
from jaxnorm.theory.batch_norm._regularization import generalization_error as generalization_error
from jaxnorm.theory.batch_norm._regularization import linear_gamma_decay as linear_gamma_decay

# Each name is imported once, as itself, for type checkers; `help` reads the list.
__all__ = [name for name in dir() if not name.startswith("_")]
