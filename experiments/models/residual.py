"""The residual unit of the original networks, activated after the sum."""

from collections.abc import Sequence

import jax.numpy as jnp
from flax import nnx

from experiments.models.activations import ACTIVATIONS
from experiments.models.sizes import Images
from experiments.models.style import Nonlinearity, Style, conv_block

#: (channels, kernel size, stride) of each convolution.
Layers = Sequence[tuple[int, int, int]]


class Residual(nnx.Module):
    """act(branch(x) + shortcut(x)): the branch a few convolutions, the last not activated.

    Where the shape changes, the shortcut takes every ``stride``-th position, and either projects it
    by a normalized 1 x 1 convolution or has zeros for the channels to come. Dropout, if any, is
    after the sum, as in `Unit`.

    Args:
        before: the channels of the input.
        layers: the convolutions of the branch.
        project: whether the shortcut projects (options B and A of the paper).
        style: how the convolutions and the sum are normalized and activated.
        rngs: the random streams of the initial parameters.

    Source: He et al. 2016 (deep residual learning), sections 3.3 and 4.
    """

    def __init__(self, before: int, layers: Layers, project: bool, style: Style, rngs: nnx.Rngs):
        inner = style._replace(dropout=0.0)
        linear = inner._replace(activation=ACTIVATIONS["identity"], post_norm=None)
        blocks, width, self.stride = [], before, 1
        for index, (after, size, stride) in enumerate(layers):
            block_style = inner if index < len(layers) - 1 else linear
            blocks.append(conv_block(width, after, block_style, rngs, size, stride=stride))
            width, self.stride = after, self.stride * stride
        self.branch = nnx.List(blocks)
        self.new_channels = width - before
        changes = self.new_channels != 0 or self.stride != 1
        self.shortcut = (
            conv_block(before, width, linear, rngs, 1, stride=self.stride)
            if project and changes
            else None
        )
        self.add = style.add
        self.sum = Nonlinearity(width, style._replace(norm=None), rngs)

    def __call__(self, x: Images) -> Images:
        branch = x
        for block in self.branch:
            branch = block(branch)
        stream = self._unprojected(x) if self.shortcut is None else self.shortcut(x)
        return self.sum(self.add(stream, branch))

    def _unprojected(self, x: Images) -> Images:
        x = x[:, :: self.stride, :: self.stride]
        return jnp.pad(x, ((0, 0), (0, 0), (0, 0), (0, self.new_channels)))
