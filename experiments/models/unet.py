"""A small U-Net, which has logits at each pixel."""

from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from experiments.models.sizes import Images, NetworkSizes
from experiments.models.style import Style, conv_block

#: The number of resolutions.
LEVELS = 3


class UNet(nnx.Module):
    """Two convolutions at each of three resolutions, down and up again, joined by skips.

    The widths are 1, 2 and 4 times the channels. On the way up each pixel is repeated 2 x 2 times
    and convolved, in place of the paper's transposed convolution (Odena et al. 2016). Convolutions
    are zero-padded, so that the logits have the sides of the image, which may be any.

    Args:
        sizes: the shape of an image, the number of classes, and the channels.
        style: normalizers and activation after each convolution.
        rngs: the random streams of the initial parameters.

    Source: Ronneberger et al. 2015.
    """

    def __init__(self, sizes: NetworkSizes, style: Style, rngs: nnx.Rngs):
        widths = [sizes.channels * 2**level for level in range(LEVELS)]
        inputs = [sizes.shape[-1], *widths[:-1]]

        def pair(before: int, after: int) -> Any:
            blocks = [conv_block(each, after, style, rngs) for each in (before, after)]
            return nnx.List(blocks)

        self.down = nnx.List([pair(*each) for each in zip(inputs, widths, strict=True)])
        upward = list(zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.up = nnx.List([conv_block(*each, style, rngs) for each in upward])
        self.merge = nnx.List([pair(2 * after, after) for _, after in upward])
        self.head = nnx.Conv(widths[0], sizes.num_classes, (1, 1), rngs=rngs)

    def __call__(self, x: Images) -> Float[Array, "rows height width classes"]:
        skips: list[Images] = []
        for level, pair in enumerate(self.down):
            x = in_turn(pair, halved(x) if level else x)
            skips.append(x)
        for up, pair, skip in zip(self.up, self.merge, skips[-2::-1], strict=True):
            x = up(doubled(x)[:, : skip.shape[1], : skip.shape[2]])
            x = in_turn(pair, jnp.concatenate([skip, x], -1))
        return self.head(x)


def in_turn(blocks: Iterable[Any], x: Images) -> Images:
    """Applies the blocks, each to the output of the one before."""
    for block in blocks:
        x = block(x)
    return x


def halved(x: Images) -> Images:
    """Takes the maximum of 2 x 2 windows; an odd last row or column is a window of its own."""
    window = (1, 2, 2, 1)
    return jax.lax.reduce_window(x, -float("inf"), jax.lax.max, window, window, "SAME")


def doubled(x: Images) -> Images:
    """Repeats each pixel 2 x 2 times."""
    rows, height, width, channels = x.shape
    shape = (rows, height, 2, width, 2, channels)
    repeated = jnp.broadcast_to(x[:, :, None, :, None], shape)
    return repeated.reshape(rows, 2 * height, 2 * width, channels)
