"""Transitional names."""

from jaxnorm._node import NODE_TYPES as NODE_TYPES
from jaxnorm._node import Axes as Axes
from jaxnorm._node import Reparametrization as Reparametrization
from jaxnorm._node import count_parameters as count_parameters
from jaxnorm._node import effective_kernel as effective_kernel
from jaxnorm._node import register_node as register_node
from jaxnorm._node import static_field as static_field

count_of = count_parameters
kernel_of = effective_kernel
