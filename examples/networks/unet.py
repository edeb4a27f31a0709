"""U-Net (Ronneberger et al. 2015) with a classifier, Flax NNX."""

from functools import partial

import jax
import jax.numpy as jnp
from flax import nnx


class DoubleConv(nnx.Module):
    """Two convolutions of 3 x 3, each with batch normalization and a ReLU."""

    def __init__(self, inputs: int, outputs: int, rngs: nnx.Rngs):
        conv = partial(nnx.Conv, kernel_size=(3, 3), use_bias=False, rngs=rngs)
        self.conv1, self.conv2 = conv(inputs, outputs), conv(outputs, outputs)
        self.norm1 = nnx.BatchNorm(outputs, momentum=0.9, rngs=rngs)
        self.norm2 = nnx.BatchNorm(outputs, momentum=0.9, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns activations of the same sides."""
        x = nnx.relu(self.norm1(self.conv1(x)))
        return nnx.relu(self.norm2(self.conv2(x)))


class UNet(nnx.Module):
    """Three levels down and up; the mean of the logits of all pixels is classified."""

    def __init__(self, rngs: nnx.Rngs, shape: tuple[int, ...], classes: int, width: int = 4):
        a, b, c = width, 2 * width, 4 * width
        self.down1 = DoubleConv(shape[-1], a, rngs)
        self.down2 = DoubleConv(a, b, rngs)
        self.middle = DoubleConv(b, c, rngs)
        up = partial(nnx.ConvTranspose, kernel_size=(2, 2), strides=(2, 2), rngs=rngs)
        self.up2, self.merge2 = up(c, b), DoubleConv(2 * b, b, rngs)
        self.up1, self.merge1 = up(b, a), DoubleConv(2 * a, a, rngs)
        self.out = nnx.Conv(a, classes, (1, 1), rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns logits."""
        return self.pixels(x).mean((1, 2))

    def pixels(self, x: jax.Array) -> jax.Array:
        """Returns logits per pixel."""
        pool = partial(nnx.max_pool, window_shape=(2, 2), strides=(2, 2))
        fine = self.down1(x)
        coarse = self.down2(pool(fine))
        x = self.middle(pool(coarse))
        x = self.merge2(jnp.concatenate([coarse, self.up2(x)], axis=-1))
        x = self.merge1(jnp.concatenate([fine, self.up1(x)], axis=-1))
        return self.out(x)


class PixelUNet(UNet):
    """U-Net for segmentation."""

    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns logits per pixel."""
        return self.pixels(x)
