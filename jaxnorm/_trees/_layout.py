"""Transitional names."""

from jaxnorm._layout import Layout as Layout
from jaxnorm._layout import _is_axes as _is_axes
from jaxnorm._layout import exclude as exclude
from jaxnorm._layout import flax_layout as flax_layout
from jaxnorm._layout import layout_by as layout_by
from jaxnorm._layout import layout_from_rules as layout_from_rules
from jaxnorm._layout import torch_layout as torch_layout

is_axes = _is_axes
