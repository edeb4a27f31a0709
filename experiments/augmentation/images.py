"""The standard augmentations of images, on the device: padded or resized crops, mirrors, holes."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from experiments.data.crops import AREAS, RATIOS

Images = Float[Array, "rows height width channels"]
Pairs = Float[Array, "rows 2"]


def pad_crop_flip(key: Key[Array, ""], images: Images) -> Images:
    """Shifts each image by up to an eighth of its side, and mirrors it with probability 1/2.

    Uncovered pixels are 0, the mean of standardized images.
    """
    padding = max(1, images.shape[1] // 8)
    offsets, flips = draw_crops(key, images.shape[0], padding)
    return crop_and_flip(images, offsets, flips, padding)


def draw_crops(
    key: Key[Array, ""], rows: int, padding: int
) -> tuple[Int[Array, "rows 2"], Bool[Array, " rows"]]:
    """Draws uniform offsets 0 .. 2 padding of crops in padded images, and fair coins."""
    offset_key, flip_key = jax.random.split(key)
    offsets = jax.random.randint(offset_key, (rows, 2), 0, 2 * padding + 1)
    return offsets, jax.random.bernoulli(flip_key, 0.5, (rows,))


def crop_and_flip(
    images: Images, offsets: Int[Array, "rows 2"], flips: Bool[Array, " rows"], padding: int
) -> Images:
    """Crops the zero-padded images at the offsets, and mirrors those with ``flips``."""
    shape = images.shape[1:]
    padded = jnp.pad(images, ((0, 0), (padding, padding), (padding, padding), (0, 0)))

    def crop(image: Array, offset: Array) -> Array:
        return jax.lax.dynamic_slice(
            image, (offset[0], offset[1], jnp.zeros_like(offset[0])), shape
        )

    crops = jax.vmap(crop)(padded, offsets)
    return jnp.where(flips[:, None, None, None], crops[:, :, ::-1], crops)


def flip(key: Key[Array, ""], images: Images) -> Images:
    """Mirrors each image left to right with probability 1/2."""
    flips = jax.random.bernoulli(key, 0.5, images.shape[:1])
    return jnp.where(flips[:, None, None, None], images[:, :, ::-1], images)


def cutout(key: Key[Array, ""], images: Images, size: int | None = None) -> Images:
    """Sets a square of each image, around a uniformly drawn pixel, to 0, the mean pixel.

    Args:
        key: for the draws.
        images: standardized images.
        size: the side of the square, which borders cut; None for half the image's side (16 on
            CIFAR).

    Source: DeVries and Taylor 2017.
    """
    rows, *sides, _ = images.shape
    size = sides[0] // 2 if size is None else size
    centres = jax.random.randint(key, (rows, 2), 0, jnp.array([sides]))
    # Each pixel's place in the hole, from 0 to size - 1.
    places = [
        jnp.arange(side)[None] - centres[:, axis, None] + size // 2
        for axis, side in enumerate(sides)
    ]
    tall, wide = ((place >= 0) & (place < size) for place in places)
    hole = tall[:, :, None] & wide[:, None, :]
    return jnp.where(hole[..., None], jnp.zeros((), images.dtype), images)


def resized_crop_flip(key: Key[Array, ""], images: Images) -> Images:
    """Resizes a random crop of each image to its size; mirrors with probability 1/2.

    Source: Szegedy et al. 2015; Gross and Wilber 2016, whom Ikami et al. 2021 follow.
    """
    crop_key, flip_key = jax.random.split(key)
    corners, sizes = draw_resized_crops(crop_key, *images.shape[:3])
    return flip(flip_key, resized_crop(images, corners, sizes))


def draw_resized_crops(
    key: Key[Array, ""], rows: int, height: int, width: int
) -> tuple[Pairs, Pairs]:
    """Draws corners and sizes of crops, in pixels.

    Shares of the area are uniform, aspect ratios log-uniform, places uniform.

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
    """Resizes the crops at (top, left) of (height, width), linearly, with antialiasing."""
    shape = images.shape[1:]

    def crop(image: Array, corner: Array, size: Array) -> Array:
        scale = jnp.array(shape[:2], jnp.float32) / size
        return jax.image.scale_and_translate(
            image, shape, (0, 1), scale, -corner * scale, "linear", antialias=True
        )

    return jax.vmap(crop)(images, corners, sizes)
