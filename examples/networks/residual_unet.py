"""Residual U-Net: added skips and projection shortcuts (Zhang et al. 2018), Flax NNX."""

from functools import partial

import jax
from flax import nnx


class Block(nnx.Module):
    """Two convolutions of 3 x 3 and a shortcut, a 1 x 1 projection where the channels change."""

    def __init__(self, inputs: int, outputs: int, rngs: nnx.Rngs):
        conv = partial(nnx.Conv, use_bias=False, rngs=rngs)
        norm = partial(nnx.BatchNorm, outputs, momentum=0.9, rngs=rngs)
        self.conv1, self.norm1 = conv(inputs, outputs, (3, 3)), norm()
        self.conv2, self.norm2 = conv(outputs, outputs, (3, 3)), norm()
        self.projects = inputs != outputs
        if self.projects:
            self.shortcut, self.norm3 = conv(inputs, outputs, (1, 1)), norm()

    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns activations of the same sides."""
        y = nnx.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        return nnx.relu(y + (self.norm3(self.shortcut(x)) if self.projects else x))


class ResidualUNet(nnx.Module):
    """Three levels down and up; a skip is added to what comes up from below."""

    def __init__(self, rngs: nnx.Rngs, shape: tuple[int, ...], classes: int, width: int = 4):
        a, b, c = width, 2 * width, 4 * width
        self.down1, self.down2 = Block(shape[-1], a, rngs), Block(a, b, rngs)
        self.middle = Block(b, c, rngs)
        up = partial(nnx.ConvTranspose, kernel_size=(2, 2), strides=(2, 2), rngs=rngs)
        self.up2, self.merge2 = up(c, b), Block(b, b, rngs)
        self.up1, self.merge1 = up(b, a), Block(a, a, rngs)
        self.out = nnx.Conv(a, classes, (1, 1), rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns logits per pixel."""
        pool = partial(nnx.max_pool, window_shape=(2, 2), strides=(2, 2))
        fine = self.down1(x)
        coarse = self.down2(pool(fine))
        x = self.middle(pool(coarse))
        x = self.merge2(coarse + self.up2(x))
        x = self.merge1(fine + self.up1(x))
        return self.out(x)


class PooledResidualUNet(ResidualUNet):
    """Residual U-Net as a classifier, of the mean of the logits of all pixels."""

    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns logits."""
        return super().__call__(x).mean((1, 2))
