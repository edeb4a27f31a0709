"""MobileNetV2: inverted residuals with depthwise convolutions (Sandler et al. 2018), Flax NNX."""

import jax
from flax import nnx


class ConvNorm(nnx.Module):
    """Convolution and batch normalization."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int,
        rngs: nnx.Rngs,
        stride: int = 1,
        groups: int = 1,
    ):
        self.conv = nnx.Conv(
            inputs,
            outputs,
            (kernel, kernel),
            stride,
            feature_group_count=groups,
            use_bias=False,
            rngs=rngs,
        )
        self.norm = nnx.BatchNorm(outputs, momentum=0.9, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns normalized pre-activations."""
        return self.norm(self.conv(x))


class InvertedResidual(nnx.Module):
    """1 x 1 expansion, depthwise 3 x 3, linear 1 x 1; a shortcut where shapes agree."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int, rngs: nnx.Rngs):
        hidden = inputs * expansion
        self.expand = ConvNorm(inputs, hidden, 1, rngs)
        self.depthwise = ConvNorm(hidden, hidden, 3, rngs, stride, groups=hidden)
        self.project = ConvNorm(hidden, outputs, 1, rngs)
        self.has_shortcut = inputs == outputs and stride == 1

    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns the input of the next block."""
        y = nnx.relu6(self.expand(x))
        y = nnx.relu6(self.depthwise(y))
        y = self.project(y)
        return x + y if self.has_shortcut else y


class MobileNetV2(nnx.Module):
    """Six inverted residuals between a stem and a last 1 x 1 convolution."""

    def __init__(self, rngs: nnx.Rngs, shape: tuple[int, ...], classes: int, width: int = 8):
        self.stem = ConvNorm(shape[-1], width, 3, rngs)
        self.blocks = nnx.List([])
        inputs = width
        for stage, outputs in enumerate((width, 2 * width, 3 * width)):
            self.blocks.append(InvertedResidual(inputs, outputs, 2 if stage else 1, 4, rngs))
            self.blocks.append(InvertedResidual(outputs, outputs, 1, 4, rngs))
            inputs = outputs
        self.last = ConvNorm(inputs, 8 * width, 1, rngs)
        self.classifier = nnx.Linear(8 * width, classes, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns logits."""
        x = nnx.relu6(self.stem(x))
        for block in self.blocks:
            x = block(x)
        x = nnx.relu6(self.last(x))
        return self.classifier(x.mean((1, 2)))
