"""Activations shaped for the depth of a network (deep kernel shaping, tailored activations).

Martens et al. 2021; Zhang et al. 2022. The maps of activations are in `jaxnorm.theory`.
"""

from jaxnorm._depth import traced_depth as traced_depth
from jaxnorm._shaped import shaped as shaped

# Each name is imported once, as itself, for type checkers; `help` reads the list.
__all__ = [name for name in dir() if not name.startswith("_")]
