"""The 18-layer residual network with full pre-activation, for small images."""

import itertools
from collections.abc import Sequence

from flax import nnx
from jaxtyping import Array, Float

from experiments.models._blocks import Activation, kernel_init
from experiments.models._norms import MakeNorm

#: The channels of each stage, in multiples of the first one's; two units each.
STAGES = (1, 2, 4, 8)

Images = Float[Array, "rows height width channels"]


class PreActivation(nnx.Module):
    """``post_norm(activation(norm(x)))``, what stands before each convolution."""

    def __init__(
        self,
        width: int,
        make_norm: MakeNorm | None,
        activation: Activation,
        rngs: nnx.Rngs,
        make_post_norm: MakeNorm | None,
    ):
        self.norm = None if make_norm is None else make_norm(width, rngs)
        self.activation = activation
        self.post_norm = None if make_post_norm is None else make_post_norm(width, rngs)

    def __call__(self, x: Images) -> Images:
        x = self.activation(x if self.norm is None else self.norm(x))
        return x if self.post_norm is None else self.post_norm(x)


class Unit(nnx.Module):
    """x + conv(act(conv(act(x)))); where the shape changes, the shortcut convolves act(x).

    Without a normalizer each convolution has a bias.
    """

    def __init__(self, before: int, after: int, stride: int, style: tuple, rngs: nnx.Rngs):
        make_norm, activation, make_post_norm = style
        options = {
            "use_bias": make_norm is None,
            "kernel_init": kernel_init(activation),
            "rngs": rngs,
        }
        self.first = PreActivation(before, make_norm, activation, rngs, make_post_norm)
        self.conv1 = nnx.Conv(before, after, (3, 3), stride, **options)
        self.second = PreActivation(after, make_norm, activation, rngs, make_post_norm)
        self.conv2 = nnx.Conv(after, after, (3, 3), **options)
        changes = before != after or stride != 1
        self.shortcut = nnx.Conv(before, after, (1, 1), stride, **options) if changes else None

    def __call__(self, x: Images) -> Images:
        active = self.first(x)
        branch = self.conv2(self.second(self.conv1(active)))
        return branch + (x if self.shortcut is None else self.shortcut(active))


class ResNet18(nnx.Module):
    """A convolution, eight pre-activation units in four stages, pooling, a classifier.

    Args:
        shape: (height, width, channels) of one image.
        num_classes: the number of outputs.
        channels: the channels of the first stage (64 in the papers).
        make_norm: a maker of the normalizer before each activation, or None.
        activation: the nonlinearity.
        rngs: the random streams of the initial parameters.
        make_post_norm: a maker of the normalizer after each activation, or None.

    Source: He et al. 2016 (identity mappings); Kutsuna 2019, section 6.2.
    """

    def __init__(
        self,
        shape: Sequence[int],
        num_classes: int,
        *,
        channels: int,
        make_norm: MakeNorm | None,
        activation: Activation,
        rngs: nnx.Rngs,
        make_post_norm: MakeNorm | None = None,
    ):
        style = (make_norm, activation, make_post_norm)
        init = kernel_init(activation)
        bias = make_norm is None
        self.stem = nnx.Conv(
            shape[-1], channels, (3, 3), use_bias=bias, kernel_init=init, rngs=rngs
        )
        widths = [channels, *(channels * factor for factor in STAGES for _ in range(2))]
        self.units = nnx.List(
            Unit(before, after, 2 if after != before else 1, style, rngs)
            for before, after in itertools.pairwise(widths)
        )
        self.last = PreActivation(widths[-1], make_norm, activation, rngs, make_post_norm)
        self.head = nnx.Linear(widths[-1], num_classes, rngs=rngs)

    def __call__(self, x: Images) -> Float[Array, "rows classes"]:
        x = self.stem(x)
        for unit in self.units:
            x = unit(x)
        return self.head(self.last(x).mean((1, 2)))
