"""From a picture of any size to a square of pixels: in the middle, or at random for training."""

import math

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from experiments.augmentation.images import AREAS, RATIOS

#: What is left in the middle of a picture around the square: 256 pixels for 224.
MARGIN = 256 / 224
#: How often a crop is drawn before the middle is taken.
DRAWS = 10

Pixels = UInt8[np.ndarray, "side side 3"]


def middle(image: Image.Image, side: int) -> Pixels:
    """The square in the middle, of a picture whose shorter side is made 256 / 224 of the square's.

    Source: the evaluation of He et al. 2016 on ImageNet.
    """
    width, height = image.size
    square = min(width, height) / MARGIN
    return _resized(image, (width - square) / 2, (height - square) / 2, square, square, side)


def at_random(image: Image.Image, side: int, random: np.random.Generator) -> Pixels:
    """A random part, resized: of 8% to all of the area, 3 : 4 to 4 : 3 wide, anywhere.

    A part that does not fit is drawn anew, and after ten of them the middle is taken.

    Source: Szegedy et al. 2015; Gross and Wilber 2016, whom Ikami et al. 2021 follow.
    """
    width, height = image.size
    for _ in range(DRAWS):
        area = random.uniform(*AREAS) * width * height
        ratio = math.exp(random.uniform(math.log(RATIOS[0]), math.log(RATIOS[1])))
        wide, high = math.sqrt(area * ratio), math.sqrt(area / ratio)
        if wide <= width and high <= height:
            left, top = random.uniform(0, width - wide), random.uniform(0, height - high)
            return _resized(image, left, top, wide, high, side)
    return middle(image, side)


def _resized(
    image: Image.Image, left: float, top: float, width: float, height: float, side: int
) -> Pixels:
    """A box of a picture as a square, linearly, with antialiasing; of a grey one three channels."""
    box = (left, top, left + width, top + height)
    image = image if image.mode == "RGB" else image.convert("RGB")
    return np.asarray(image.resize((side, side), Image.Resampling.BILINEAR, box))
