"""How many numbers a model really has to learn."""

import jax
import numpy as np
from jaxtyping import PyTree

from jaxnorm._trees._node import Reparametrization
from jaxnorm._trees._paths import entries


def parameter_count(params: PyTree) -> int:
    """The number of free parameters in a tree; pinned coordinates do not count.

    Args:
        params: a tree of parameters, or of their shapes.

    Returns:
        The sum of the leaves' sizes; a linearly constrained unit of m weights counts as m - 1.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxnorm import LinearlyConstrained
        >>> node = LinearlyConstrained.from_kernel(jnp.ones((4, 2)), -2)
        >>> parameter_count({"kernel": node, "bias": jnp.ones(2)})
        8
    """
    return sum(
        entry.parameter_count()
        if isinstance(entry, Reparametrization)
        else sum(np.size(leaf) for leaf in jax.tree.leaves(entry))
        for _, entry in entries(params)
    )
