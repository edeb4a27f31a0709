"""Mobile blocks with gates: squeeze-and-excitation and swish (Tan and Le 2019), Flax NNX."""

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


class Gate(nnx.Module):
    """Squeeze-and-excitation (Hu et al. 2018): a factor from 0 to 1 per sample and channel."""

    def __init__(self, channels: int, squeezed: int, rngs: nnx.Rngs):
        self.squeeze = nnx.Linear(channels, squeezed, rngs=rngs)
        self.excite = nnx.Linear(squeezed, channels, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns ``x`` times its gate."""
        gate = self.excite(nnx.swish(self.squeeze(x.mean((1, 2)))))
        return x * nnx.sigmoid(gate)[:, None, None]


class MBConv(nnx.Module):
    """1 x 1 expansion, depthwise convolution, gate, linear 1 x 1; a shortcut where shapes agree."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int, stride: int, expansion: int, rngs: nnx.Rngs
    ):
        hidden = inputs * expansion
        self.expand = ConvNorm(inputs, hidden, 1, rngs)
        self.depthwise = ConvNorm(hidden, hidden, kernel, rngs, stride, groups=hidden)
        self.gate = Gate(hidden, max(1, inputs // 4), rngs)
        self.project = ConvNorm(hidden, outputs, 1, rngs)
        self.has_shortcut = inputs == outputs and stride == 1

    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns the input of the next block."""
        y = nnx.swish(self.expand(x))
        y = self.gate(nnx.swish(self.depthwise(y)))
        y = self.project(y)
        return x + y if self.has_shortcut else y


class MBConvNet(nnx.Module):
    """Six gated blocks with depthwise kernels of 3 x 3 and 5 x 5, as EfficientNet has them."""

    def __init__(self, rngs: nnx.Rngs, shape: tuple[int, ...], classes: int, width: int = 8):
        self.stem = ConvNorm(shape[-1], width, 3, rngs)
        self.blocks = nnx.List([])
        inputs = width
        for stage, outputs in enumerate((width, 2 * width, 3 * width)):
            kernel, stride = 5 if stage == 1 else 3, 2 if stage else 1
            self.blocks.append(MBConv(inputs, outputs, kernel, stride, 4, rngs))
            self.blocks.append(MBConv(outputs, outputs, kernel, 1, 4, rngs))
            inputs = outputs
        self.last = ConvNorm(inputs, 8 * width, 1, rngs)
        self.classifier = nnx.Linear(8 * width, classes, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns logits."""
        x = nnx.swish(self.stem(x))
        for block in self.blocks:
            x = block(x)
        return self.classifier(nnx.swish(self.last(x)).mean((1, 2)))
