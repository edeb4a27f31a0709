"""What needs Flax: models as pure functions, and layouts from modules' types."""

from jaxnorm.nnx._functionalize import Functional as Functional
from jaxnorm.nnx._functionalize import functionalize as functionalize
from jaxnorm.nnx._layout import layout as layout
