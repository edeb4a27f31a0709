"""Square crops of pictures of any size: the middle, or a random part for training."""

import math

import numpy as np
from jaxtyping import UInt8
from PIL import Image

#: The shares of the picture's area, and the aspect ratios (width over height), of random crops.
AREAS = (0.08, 1.0)
RATIOS = (3 / 4, 4 / 3)
#: The shorter side of a picture over the side of the middle crop: 256 pixels for 224.
MARGIN = 256 / 224
#: The number of draws of a crop before the middle is taken.
DRAWS = 10

Pixels = UInt8[np.ndarray, "side side 3"]


def middle(image: Image.Image, side: int) -> Pixels:
    """Crops the middle square of a picture whose shorter side is 256 / 224 of the square's.

    Source: the evaluation of He et al. 2016 on ImageNet.
    """
    width, height = image.size
    square = min(width, height) / MARGIN
    return _resized(image, (width - square) / 2, (height - square) / 2, square, square, side)


def at_random(image: Image.Image, side: int, random: np.random.Generator) -> Pixels:
    """Crops a random part and resizes it to a square.

    The part has 8% to 100% of the area, an aspect ratio of 3 : 4 to 4 : 3, and a uniform place.

    A part that does not fit is drawn anew; after ten draws the middle is taken.

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
    """Resizes a box of a picture to an RGB square, bilinearly, with antialiasing."""
    box = (left, top, left + width, top + height)
    image = image if image.mode == "RGB" else image.convert("RGB")
    return np.asarray(image.resize((side, side), Image.Resampling.BILINEAR, box))
