"""Images of overlapping discs and squares in noise, with a class at each pixel.

The drawing is a pure function of its seed; committed results depend on each bit of it.
"""

import numpy as np
from jaxtyping import Bool, Float, Int

from experiments.data.dataset import Dataset, make_dataset

#: The side of an image, and the shapes that are drawn over each other.
SIDE, SHAPES = 32, 3

#: The classes by their number.
CLASSES = ("background", "disc", "square")

#: The standard deviation of the noise; shapes are up to 1 brighter or darker than the background.
NOISE = 0.3

#: The share of discs that are brighter than the background, and of squares that are darker.
USUAL = 0.8

TRAIN_ROWS, TEST_ROWS = 128, 128

Images = Float[np.ndarray, "rows 32 32 1"]
Maps = Int[np.ndarray, "rows 32 32"]


def load_shapes(seed: int) -> Dataset:
    """Images of shapes: 128 training and 128 test rows of 32 x 32 pixels, split by the seed."""
    X, y = draw_shapes(TRAIN_ROWS + TEST_ROWS, seed=0)
    order = np.random.default_rng(seed).permutation(len(X))
    train, test = np.split(order, [TRAIN_ROWS])
    return make_dataset("shapes", (X[train], y[train]), (X[test], y[test]), classes=CLASSES)


def draw_shapes(rows: int, seed: int) -> tuple[Images, Maps]:
    """Draws images of three discs and squares, each over the ones before it, and their label maps.

    A disc has a radius of 5 to 9 pixels, and a square the area of such a disc. Most discs are
    bright and most squares dark; the outline tells the class of each.
    """
    random = np.random.default_rng(seed)
    X, y = np.zeros((rows, SIDE, SIDE)), np.zeros((rows, SIDE, SIDE), np.int32)
    for image, labels in zip(X, y, strict=True):
        for _ in range(SHAPES):
            label, radius = random.integers(1, 3), random.uniform(5, 9)
            inside = _outline(int(label), random.uniform(4, SIDE - 4, 2), radius)
            is_bright = (CLASSES[label] == "disc") == (random.uniform() < USUAL)
            image[inside] = random.uniform(0.5, 1) * (1 if is_bright else -1)
            labels[inside] = label
    X += NOISE * random.standard_normal(X.shape)
    return X[..., None].astype(np.float32), y


def _outline(
    label: int, centre: Float[np.ndarray, "2"], radius: float
) -> Bool[np.ndarray, "32 32"]:
    """Returns True at the pixels of a disc, or of a square of its area."""
    down, right = np.abs(np.indices((SIDE, SIDE)) - centre[:, None, None])
    if CLASSES[label] == "disc":
        return down**2 + right**2 <= radius**2
    return np.maximum(down, right) <= radius * np.sqrt(np.pi) / 2
