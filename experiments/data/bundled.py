"""The datasets that come with the package; committed results depend on each bit of them.

The digits are the test file of E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten
Digits" (1998), UCI Machine Learning Repository, https://doi.org/10.24432/C50P49, licensed under CC
BY 4.0 (https://creativecommons.org/licenses/by/4.0/), as scikit-learn distributes it. Changes: the
values 0 to 16 are stored as unsigned bytes in ``digits.npz``; the order of the rows is kept.
"""

import sysconfig
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from jaxtyping import Int

from experiments.data.dataset import Dataset, make_dataset
from experiments.data.shapes import load_shapes

#: The printable characters and the line's end; any other character of a source counts as a blank.
CHARACTERS = "".join(map(chr, range(32, 127))) + "\n"

#: The characters of a row, and the rows of the two splits.
LENGTH, TRAIN_ROWS, TEST_ROWS = 64, 8192, 2048


def load_digits(seed: int) -> Dataset:
    """Images of digits: 1,348 training and 449 test rows of shape (8, 8, 1), split by the seed."""
    with np.load(Path(__file__).with_name("digits.npz")) as file:
        X, y = file["X"], file["y"]
    held_out = np.zeros(len(X), bool)
    held_out[np.random.default_rng(seed).permutation(len(X))[: len(X) // 4]] = True
    train, test = ((X[mask], y[mask]) for mask in (~held_out, held_out))
    return make_dataset("digits", train, test, classes="0123456789")


def load_characters(seed: int) -> Dataset:
    """Sequences of 64 characters and, as labels, the character after each; split by the seed.

    The text is Python's own standard library, the modules at its top in the order of their names.
    It depends on Python's version, which results name.
    """
    windows = np.random.default_rng(seed).permutation(_windows(TRAIN_ROWS + TEST_ROWS))
    X, y = windows[:, :-1], windows[:, 1:]
    train, test = slice(TRAIN_ROWS), slice(TRAIN_ROWS, None)
    return Dataset(X[train], y[train], X[test], y[test], "python", len(CHARACTERS))


def _windows(count: int) -> Int[np.ndarray, "count characters"]:
    """The beginning of the text as rows of one character more than a sequence."""
    text, wanted = "", count * (LENGTH + 1)
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        text += path.read_text(encoding="utf-8", errors="replace")
        if len(text) >= wanted:
            break
    numbers = {character: number for number, character in enumerate(CHARACTERS)}
    codes = np.array([numbers.get(character, 0) for character in text[:wanted]], np.int32)
    return codes.reshape(count, LENGTH + 1)


#: Loaders by name: ``seed -> dataset``.
BUNDLED: Mapping[str, Callable[[int], Dataset]] = {
    "digits": load_digits,
    "shapes": load_shapes,
    "python": load_characters,
}
