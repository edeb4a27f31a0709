"""Abstract interpreter of models: layouts, layers and the rows of the inputs, from the jaxpr."""

from jaxnorm._trace.interpret import MARK as MARK
from jaxnorm._trace.interpret import is_flag as is_flag
from jaxnorm._trace.interpret import trace as trace
from jaxnorm._trace.queries import Apply as Apply
from jaxnorm._trace.queries import KernelCall as KernelCall
from jaxnorm._trace.queries import MarkedLayer as MarkedLayer
from jaxnorm._trace.queries import first_layer as first_layer
from jaxnorm._trace.queries import marked_layers as marked_layers
from jaxnorm._trace.queries import plain_shapes as plain_shapes
from jaxnorm._trace.queries import run_layers as run_layers
from jaxnorm._trace.queries import traced_layout as traced_layout
from jaxnorm._trace.streams import Branch as Branch
from jaxnorm._trace.streams import residual_streams as residual_streams
