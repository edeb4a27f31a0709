"""Text that every machine has: the source of Python's own standard library, as characters."""

import sysconfig
from pathlib import Path

import numpy as np
from jaxtyping import Int

from experiments.data.dataset import Dataset

#: The printable characters and the line's end; whatever else is in a source counts as a blank.
CHARACTERS = "".join(map(chr, range(32, 127))) + "\n"

#: The characters of a row, and the rows of the two splits.
LENGTH, TRAIN_ROWS, TEST_ROWS = 64, 8192, 2048


def load_characters(seed: int) -> Dataset:
    """Sequences of 64 characters and, as labels, the character after each; split by the seed.

    They are of the modules at the top of the library, in the order of their names. What is in them
    depends on Python's version, which results name.
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
