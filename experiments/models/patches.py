"""A transformer on patches of images, with a decoder's blocks and unmasked attention."""

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from experiments.models.sizes import Images, Logits, NetworkSizes
from experiments.models.style import Style
from experiments.models.transformer import blocks, check_heads, embedding, norm_of, normed

#: The most patches along an image's shorter side, and the least pixels along a patch's side.
PATCHES, PIXELS = 8, 2


class PatchTransformer(nnx.Module):
    """Patches and positions, blocks, a normalizer, the mean of the tokens, a classifier.

    Args:
        sizes: (height, width, channels) of an image; the number of classes; the number of blocks,
            and the units of a token, a multiple of four.
        style: normalizers and activation of every block.
        rngs: the random streams of the initial parameters.
    """

    def __init__(self, sizes: NetworkSizes, style: Style, rngs: nnx.Rngs):
        check_heads("patches", sizes)
        count, inputs = jax.eval_shape(patches, jnp.zeros((1, *sizes.shape))).shape[1:]
        self.first = nnx.Linear(inputs, sizes.width, kernel_init=style.kernel_init, rngs=rngs)
        self.positions = embedding(count, sizes.width, rngs)
        self.blocks = nnx.List(blocks(sizes, style, rngs))
        self.last = norm_of(style.norm, sizes.width, rngs)
        self.head = nnx.Linear(sizes.width, sizes.num_classes, rngs=rngs)

    def __call__(self, x: Images) -> Logits:
        tokens = self.first(patches(x))
        x = tokens + self.positions(jnp.arange(tokens.shape[1]))[None]
        for block in self.blocks:
            x = block(x)
        return self.head(normed(self.last, x).mean(1))


def patches(x: Images) -> Float[Array, "rows patches numbers"]:
    """Returns the pixels of each patch as a vector, patches from left to right and top to bottom.

    Patches are squares with sides of 2 pixels, or larger in images of more than 16 pixels, which
    have 8 patches along their shorter side. Pixels beyond the last whole patch are left out.
    """
    rows, height, width, channels = x.shape
    side = max(PIXELS, min(height, width) // PATCHES)
    down, across = height // side, width // side
    whole = x[:, : down * side, : across * side]
    parts = whole.reshape(rows, down, side, across, side, channels)
    return parts.swapaxes(2, 3).reshape(rows, down * across, -1)
