"""The 18-layer residual network with full pre-activation, for small images."""

import itertools
from collections.abc import Sequence

from flax import nnx
from jaxtyping import Array, Float

from experiments.models._style import Nonlinearity, Style

#: The channels of each stage, in multiples of the first one's; two units each.
STAGES = (1, 2, 4, 8)

Images = Float[Array, "rows height width channels"]


class Unit(nnx.Module):
    """x + conv(act(conv(act(x)))); where the shape changes, the shortcut convolves act(x).

    Without a normalizer each convolution has a bias. Dropout, if any, is after the sum, where Luo
    et al. 2019 put it, and not after each activation.
    """

    def __init__(self, before: int, after: int, stride: int, style: Style, rngs: nnx.Rngs):
        options = {"use_bias": style.use_bias, "kernel_init": style.kernel_init, "rngs": rngs}
        inner = style._replace(dropout=0.0)
        self.first = Nonlinearity(before, inner, rngs)
        self.conv1 = nnx.Conv(before, after, (3, 3), stride, **options)
        self.second = Nonlinearity(after, inner, rngs)
        self.conv2 = nnx.Conv(after, after, (3, 3), **options)
        changes = before != after or stride != 1
        self.shortcut = nnx.Conv(before, after, (1, 1), stride, **options) if changes else None
        self.dropout = nnx.Dropout(style.dropout, rngs=rngs) if style.dropout else None

    def __call__(self, x: Images) -> Images:
        active = self.first(x)
        branch = self.conv2(self.second(self.conv1(active)))
        x = branch + (x if self.shortcut is None else self.shortcut(active))
        return x if self.dropout is None else self.dropout(x)


class ResNet18(nnx.Module):
    """A convolution, eight pre-activation units in four stages, pooling, a classifier.

    Args:
        shape: (height, width, channels) of one image.
        num_classes: the number of outputs.
        channels: the channels of the first stage (64 in the papers).
        style: what stands before each convolution but the first.
        rngs: the random streams of the initial parameters.

    Source: He et al. 2016 (identity mappings); Kutsuna 2019, section 6.2.
    """

    def __init__(
        self,
        shape: Sequence[int],
        num_classes: int,
        *,
        channels: int,
        style: Style,
        rngs: nnx.Rngs,
    ):
        options = {"use_bias": style.use_bias, "kernel_init": style.kernel_init, "rngs": rngs}
        self.stem = nnx.Conv(shape[-1], channels, (3, 3), **options)
        widths = [channels, *(channels * factor for factor in STAGES for _ in range(2))]
        self.units = nnx.List(
            Unit(before, after, 2 if after != before else 1, style, rngs)
            for before, after in itertools.pairwise(widths)
        )
        self.last = Nonlinearity(widths[-1], style._replace(dropout=0.0), rngs)
        self.head = nnx.Linear(widths[-1], num_classes, rngs=rngs)

    def __call__(self, x: Images) -> Float[Array, "rows classes"]:
        x = self.stem(x)
        for unit in self.units:
            x = unit(x)
        return self.head(self.last(x).mean((1, 2)))
