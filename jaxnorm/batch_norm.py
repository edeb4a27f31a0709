"""Gamma decay and population statistics, the parts of batch normalization taken one by one.

Luo et al. 2019. The paper's closed forms and dynamics are in `jaxnorm.theory.batch_norm`.
"""

from jaxnorm._gamma_decay import affine_gamma_decay_strength as affine_gamma_decay_strength
from jaxnorm._gamma_decay import gamma_decay as gamma_decay
from jaxnorm._gamma_decay import gamma_decay_strength as gamma_decay_strength
from jaxnorm._statistics import independent_positions as independent_positions
from jaxnorm._statistics import population_statistics as population_statistics

# Each name is imported once, as itself, for type checkers; `help` reads the list.
__all__ = [name for name in dir() if not name.startswith("_")]
