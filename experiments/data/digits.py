"""The bundled digits: 1,797 images of 8 x 8 pixels, ten classes.

The test file of E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits" (1998), UCI
Machine Learning Repository, https://doi.org/10.24432/C50P49, licensed under CC BY 4.0
(https://creativecommons.org/licenses/by/4.0/), as scikit-learn distributes it. Changes: the values
0 to 16 are stored as unsigned bytes in ``digits.npz``; the order of the rows is kept.
"""

from pathlib import Path

from experiments.data.dataset import Dataset
from experiments.data.npz import load_npz

PATH = Path(__file__).with_name("digits.npz")


def load_digits(seed: int) -> Dataset:
    """The digits: 1,348 training and 449 test rows of shape (8, 8, 1), split by the seed."""
    return load_npz(PATH, seed)._replace(name="digits")
