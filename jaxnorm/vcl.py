"""Variance constancy: the loss of all layers, and its learned betas.

Littwin and Wolf 2018. The loss of one layer is `jaxnorm.variance_constancy_loss`; the paper's
closed forms are in `jaxnorm.theory.vcl`.
"""

from jaxnorm._losses import initial_betas as initial_betas
from jaxnorm._losses import positive_betas as positive_betas
from jaxnorm._losses import total_variance_constancy as total_variance_constancy

# Each name is imported once, as itself, for type checkers; `help` reads the list.
__all__ = [name for name in dir() if not name.startswith("_")]
