"""The operations that Fast AutoAugment chooses from, on images of grey levels 0 to 255.

Each operation takes (key, image, magnitude), whether it needs them or not. The caller rounds the
result to whole levels, because the published operations work on bytes.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

Image = Float[Array, "height width channels"]
Scalar = Float[Array, ""]
Apply = Callable[[Key[Array, ""], Image, Scalar], Image]

#: The weights of red, green and blue in the luminance (ITU-R 601-2).
LUMINANCE = (0.299, 0.587, 0.114)
GREY = 128.0


class Operation(NamedTuple):
    """An operation and its magnitudes at levels 0 and 1.

    Attributes:
        apply: ``(key, image, magnitude) -> image``.
        low: the magnitude of level 0.
        high: the magnitude of level 1.
        mirrored: True if the magnitude's sign is drawn.
    """

    apply: Apply
    low: float = 0.0
    high: float = 1.0
    mirrored: bool = False


def warp(image: Image, matrix: Float[Array, "2 2"], shift: Float[Array, " 2"]) -> Image:
    """Moves pixels: the new one at (row, column) is the old one at matrix (row, column) + shift.

    Coordinates are those of pixels' centres, from the upper left corner. Values are bilinear
    between pixels, and 0 outside of the image.
    """
    height, width, _ = image.shape
    grid = jnp.stack(jnp.meshgrid(jnp.arange(height), jnp.arange(width), indexing="ij"))
    centres = grid.astype(image.dtype) + 0.5
    places = jnp.tensordot(matrix, centres, 1) + shift[:, None, None] - 0.5

    def channel(plane: Array) -> Array:
        return jax.scipy.ndimage.map_coordinates(plane, list(places), order=1)

    return jax.vmap(channel, in_axes=-1, out_axes=-1)(image)


def shear_x(key: Key[Array, ""], image: Image, magnitude: Scalar) -> Image:
    """Shifts rows in proportion to their distance from the top."""
    return warp(image, jnp.eye(2).at[1, 0].set(magnitude), jnp.zeros(2))


def shear_y(key: Key[Array, ""], image: Image, magnitude: Scalar) -> Image:
    """Shifts columns in proportion to their distance from the left."""
    return warp(image, jnp.eye(2).at[0, 1].set(magnitude), jnp.zeros(2))


def translate_x(key: Key[Array, ""], image: Image, magnitude: Scalar) -> Image:
    """Shifts the image along the rows by a share of the width."""
    return warp(image, jnp.eye(2), jnp.zeros(2).at[1].set(magnitude * image.shape[1]))


def translate_y(key: Key[Array, ""], image: Image, magnitude: Scalar) -> Image:
    """Shifts the image along the columns by a share of the height."""
    return warp(image, jnp.eye(2), jnp.zeros(2).at[0].set(magnitude * image.shape[0]))


def rotate(key: Key[Array, ""], image: Image, degrees: Scalar) -> Image:
    """Turns the image counterclockwise about its centre."""
    angle = jnp.deg2rad(degrees)
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    matrix = jnp.array([[cos, sin], [-sin, cos]])
    centre = jnp.array(image.shape[:2], image.dtype) / 2
    return warp(image, matrix, centre - matrix @ centre)


def auto_contrast(key: Key[Array, ""], image: Image, magnitude: Scalar) -> Image:
    """Stretches each channel from 0 to 255, except constant ones."""
    low, high = image.min((0, 1), keepdims=True), image.max((0, 1), keepdims=True)
    stretched = (image - low) * (255 / jnp.maximum(high - low, 1))
    return jnp.where(high > low, stretched, image)


def invert(key: Key[Array, ""], image: Image, magnitude: Scalar) -> Image:
    """Returns the negative."""
    return 255 - image


def equalize(key: Key[Array, ""], image: Image, magnitude: Scalar) -> Image:
    """Makes each channel's levels as equally frequent as a map of levels can."""

    def channel(plane: Array) -> Array:
        levels = plane.astype(jnp.int32)
        counts = jnp.bincount(levels.reshape(-1), length=256)
        step = (levels.size - counts[levels.max()]) // 255
        before = jnp.cumsum(counts) - counts
        table = jnp.minimum((before + step // 2) // jnp.maximum(step, 1), 255)
        return jnp.where(step > 0, table[levels].astype(plane.dtype), plane)

    return jax.vmap(channel, in_axes=-1, out_axes=-1)(image)


def solarize(key: Key[Array, ""], image: Image, threshold: Scalar) -> Image:
    """Inverts levels from the threshold on."""
    return jnp.where(image < threshold, image, 255 - image)


def posterize(key: Key[Array, ""], image: Image, bits: Scalar) -> Image:
    """Keeps the high bits of each level; a fractional number of bits is rounded down."""
    step = jnp.exp2(8 - jnp.floor(bits))
    return step * jnp.floor(image / step)


def contrast(key: Key[Array, ""], image: Image, factor: Scalar) -> Image:
    """Multiplies distances from the mean luminance by the factor."""
    return _away_from(jnp.round(_luminance(image).mean()), image, factor)


def color(key: Key[Array, ""], image: Image, factor: Scalar) -> Image:
    """Multiplies distances from the grey image by the factor."""
    return _away_from(_luminance(image), image, factor)


def brightness(key: Key[Array, ""], image: Image, factor: Scalar) -> Image:
    """Multiplies levels by the factor."""
    return _away_from(jnp.zeros(()), image, factor)


def sharpness(key: Key[Array, ""], image: Image, factor: Scalar) -> Image:
    """Multiplies distances from the smoothed image by the factor, except at the border."""
    height, width, _ = image.shape
    window = [(row, column) for row in range(3) for column in range(3)]
    total = sum(image[r : r + height - 2, c : c + width - 2] for r, c in window)
    inner = image[1:-1, 1:-1]
    smooth = image.at[1:-1, 1:-1].set(jnp.round((total + 4 * inner) / 13))
    return _away_from(smooth, image, factor)


def grey_square(key: Key[Array, ""], image: Image, share: Scalar) -> Image:
    """Paints a grey square of a share of the width around a uniformly drawn place."""
    height, width, _ = image.shape
    centre = jax.random.uniform(key, (2,)) * jnp.array([height, width], jnp.float32)
    reach = share * width / 2
    rows, columns = (
        jnp.abs(jnp.arange(0.5, side) - middle) < reach
        for side, middle in zip((height, width), centre, strict=True)
    )
    return jnp.where((rows[:, None] & columns[None])[..., None], GREY, image)


def _luminance(image: Image) -> Float[Array, "height width 1"]:
    channels = image.shape[-1]
    weights = jnp.array(LUMINANCE) if channels == 3 else jnp.full(channels, 1 / channels)
    return jnp.round(image @ weights[:, None])


def _away_from(origin: Array, image: Image, factor: Scalar) -> Image:
    return jnp.clip(origin + factor * (image - origin), 0, 255)


#: The operations with the names and ranges of the papers (Cubuk et al. 2019, table 6; Lim et al.
#: 2019), except for the pairing of two images, which the published code leaves out too.
OPERATIONS: Mapping[str, Operation] = {
    "ShearX": Operation(shear_x, -0.3, 0.3, mirrored=True),
    "ShearY": Operation(shear_y, -0.3, 0.3, mirrored=True),
    "TranslateX": Operation(translate_x, -0.45, 0.45, mirrored=True),
    "TranslateY": Operation(translate_y, -0.45, 0.45, mirrored=True),
    "Rotate": Operation(rotate, -30.0, 30.0, mirrored=True),
    "AutoContrast": Operation(auto_contrast),
    "Invert": Operation(invert),
    "Equalize": Operation(equalize),
    "Solarize": Operation(solarize, 0.0, 256.0),
    "Posterize": Operation(posterize, 4.0, 8.0),
    "Contrast": Operation(contrast, 0.1, 1.9),
    "Color": Operation(color, 0.1, 1.9),
    "Brightness": Operation(brightness, 0.1, 1.9),
    "Sharpness": Operation(sharpness, 0.1, 1.9),
    "Cutout": Operation(grey_square, 0.0, 0.2),
}
