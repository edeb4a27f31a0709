"""What a model does with its parameters, read off its program: one table of views, one walk."""

from jaxnorm._tracing._layers import Apply as Apply
from jaxnorm._tracing._layers import KernelCall as KernelCall
from jaxnorm._tracing._layers import run_layers as run_layers
from jaxnorm._tracing._layout import first_layer as first_layer
from jaxnorm._tracing._layout import traced_layout as traced_layout
from jaxnorm._tracing._program import Program as Program
from jaxnorm._tracing._program import is_flag as is_flag
from jaxnorm._tracing._program import trace as trace
from jaxnorm._tracing._values import Product as Product
from jaxnorm._tracing._walk import MARK as MARK
