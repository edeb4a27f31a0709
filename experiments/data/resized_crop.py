"""Random crops of varying size and aspect ratio, resized to the image's own size."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from experiments.data.augment import flip

Images = Float[Array, "rows height width channels"]
Pairs = Float[Array, "rows 2"]

#: The shares of the image's area, and the aspect ratios (width over height).
AREAS = (0.08, 1.0)
RATIOS = (3 / 4, 4 / 3)


def resized_crop_flip(key: Key[Array, ""], images: Images) -> Images:
    """Each image a random crop of itself, resized to its size, mirrored with probability 1/2.

    Source: Szegedy et al. 2015; Gross and Wilber 2016, whom Ikami et al. 2021 follow.
    """
    crop_key, flip_key = jax.random.split(key)
    corners, sizes = draw_resized_crops(crop_key, *images.shape[:3])
    return flip(flip_key, resized_crop(images, corners, sizes))


def draw_resized_crops(
    key: Key[Array, ""], rows: int, height: int, width: int
) -> tuple[Pairs, Pairs]:
    """Corners and sizes in pixels: uniform shares of the area, log-uniform ratios, uniform places.

    A side that would be longer than the image's is cut to it (the reference draws anew), and
    neither corners nor sizes are rounded to whole pixels.
    """
    area_key, ratio_key, corner_key = jax.random.split(key, 3)
    share = jax.random.uniform(area_key, (rows,), minval=AREAS[0], maxval=AREAS[1])
    low, high = jnp.log(jnp.array(RATIOS))
    ratio = jnp.exp(jax.random.uniform(ratio_key, (rows,), minval=low, maxval=high))
    area = share * (height * width)
    image = jnp.array([[height, width]], jnp.float32)
    sizes = jnp.minimum(jnp.sqrt(jnp.stack([area / ratio, area * ratio], -1)), image)
    corners = jax.random.uniform(corner_key, (rows, 2)) * (image - sizes)
    return corners, sizes


def resized_crop(images: Images, corners: Pairs, sizes: Pairs) -> Images:
    """The crops at (top, left) of (height, width), resized linearly, with antialiasing."""
    shape = images.shape[1:]

    def crop(image: Array, corner: Array, size: Array) -> Array:
        scale = jnp.array(shape[:2], jnp.float32) / size
        return jax.image.scale_and_translate(
            image, shape, (0, 1), scale, -corner * scale, "linear", antialias=True
        )

    return jax.vmap(crop)(images, corners, sizes)
