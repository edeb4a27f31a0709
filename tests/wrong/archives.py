"""Files of arrays (.npz): damaged, absurd, or holding what is no dataset."""

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from experiments.data.load import load
from tests.wrong.entry import Walk, Wrong

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(40, 5))
Y = RANDOM.permutation(np.arange(40) % 3)
SAVE = "np.savez(path, X=X, y=y)"
UNIQUE = "np.unique(y, return_inverse=True)[1]"


def npy(array: np.ndarray) -> bytes:
    """The array as a member of a file holds it."""
    content = io.BytesIO()
    np.lib.format.write_array(content, array)
    return content.getvalue()


def header(text: str, values: bytes = b"") -> bytes:
    """A member with any text for a header."""
    line = text.encode()
    return b"\x93NUMPY\x02\x00" + len(line).to_bytes(4, "little") + line + values


def shaped(shape: str, kind: str = "<f8") -> bytes:
    return header(f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}", bytes(64))


def members(**contents: bytes) -> Callable[[Path], None]:
    """Writes a file with these members, y being right unless it is among them."""

    def write(path: Path) -> None:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
            for name, content in ({"y": npy(Y)} | contents).items():
                file.writestr(f"{name}.npy", content)

    return write


def arrays(**contents: Any) -> Callable[[Path], None]:
    return lambda path: np.savez(path, **contents)


def changed(place: bytes, offset: int, value: bytes) -> Callable[[Path], None]:
    """Writes a right file, compressed, and then other bytes at an offset from the first place."""

    def write(path: Path) -> None:
        np.savez_compressed(path, X=X, y=Y)
        content = bytearray(path.read_bytes())
        start = content.index(place) + offset
        content[start : start + len(value)] = value
        path.write_bytes(content)

    return write


def bare(path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, X)


LOCAL, CENTRAL = b"PK\x03\x04", b"PK\x01\x02"
PLAIN = "wanted plain numbers"
CLASSES = "wanted class numbers 0, 1, 2, ..."

#: What is written, what is said of it, what is wanted, and the way out.
CASES: dict[str, tuple[Callable[[Path], Any], str, str, str]] = {
    ".npy content": (bare, "cannot read toy.npz: it holds a single array", PLAIN, SAVE),
    "text": (lambda path: path.write_text("no zip"), "File is not a zip file", PLAIN, SAVE),
    "nothing": (lambda path: path.write_bytes(b""), "File is not a zip file", PLAIN, SAVE),
    "half": (
        lambda path: (members(X=npy(X))(path), path.write_bytes(path.read_bytes()[:200])),
        "cannot read toy.npz",
        PLAIN,
        SAVE,
    ),
    "corrupt deflate": (changed(LOCAL, 80, b"\xff" * 40), "cannot read X of toy.npz", PLAIN, SAVE),
    "unknown compression": (changed(CENTRAL, 10, b"\x63\x00"), "compression", PLAIN, SAVE),
    "encrypted": (changed(CENTRAL, 8, b"\x01\x00"), "encrypted", PLAIN, SAVE),
    "a member of text": (members(X=b"1, 2, 3, 4"), "magic string is not correct", PLAIN, SAVE),
    "an empty member": (members(X=b""), "cannot read X of toy.npz", PLAIN, SAVE),
    "a member of version 9": (members(X=b"\x93NUMPY\x09\x00"), "(9, 0)", PLAIN, SAVE),
    "a header of 400 TB": (members(X=shaped("(50000000000000,)")), "64 bytes follow", PLAIN, SAVE),
    "a negative header": (members(X=shaped("(-1, 5)")), "its header says (-1, 5)", PLAIN, SAVE),
    "a header of brackets": (members(X=header("[" * 5000)), "cannot read X", PLAIN, SAVE),
    "a header of words": (members(X=header("{'descr': 3}")), "cannot read X", PLAIN, SAVE),
    "a short array": (members(X=npy(X)[:-8]), "1592 bytes follow", PLAIN, SAVE),
    "objects": (arrays(X=X.astype(object), y=Y), "never unpickled", PLAIN, SAVE),
    "text for numbers": (arrays(X=X.astype(str), y=Y), "X has type <U", "wanted numbers", "encode"),
    "complex numbers": (arrays(X=X + 1j, y=Y), "X has type complex128", "wanted numbers", "encode"),
    "other names": (
        arrays(images=X, labels=Y),
        "holds images, labels",
        "wanted X_train, y_train, X_test",
        SAVE,
    ),
    "lengths": (arrays(X=X, y=Y[:39]), "X has shape (40, 5) and y (39,)", "one label", "save them"),
    "no features": (arrays(X=X[:, :0], y=Y), "shape (30, 0)", "at least one feature", "save the"),
    "fractions": (arrays(X=X, y=Y + 0.5), "y has type float64", "wanted integer class", UNIQUE),
    "one class": (
        arrays(X=X, y=0 * Y),
        "toy.npz has 1 class",
        "wanted 2 or more",
        "nothing to tell",
    ),
    "labels 2 and 7": (arrays(X=X, y=2 + 5 * (Y > 0)), "labels are 2, 7", CLASSES, UNIQUE),
    "labels from 1000": (arrays(X=X, y=Y + 1000), "labels reach 1002", CLASSES, UNIQUE),
    "labels from -1": (
        arrays(X=X, y=Y - 1),
        "start at -1",
        "wanted class numbers from 0",
        "subtract",
    ),
    "labels with a gap": (
        arrays(X_train=X, y_train=2 * Y, X_test=X, y_test=Y),
        "labels are 0, 2, 4, 2 of 5 classes have no row",
        CLASSES,
        UNIQUE,
    ),
    "NaN": (arrays(X=X * np.nan, y=Y), "hold NaN", "float32", "fill or drop them"),
    "1e300": (arrays(X=X * 1e300, y=Y), "infinity", "float32", "rescale their column"),
    "features of 1e30": (arrays(X=X * 1e30, y=Y), "rows reach", "wanted sizes from", "rescale"),
    "features of 1e-30": (arrays(X=X * 1e-30, y=Y), "rows reach", "wanted sizes from", "rescale"),
    "a missing value of 1e20": (
        arrays(X=np.where(X > 1, 1e20, X), y=Y),
        "rows reach 1e+20",
        "to 1e+15",
        "fill or drop what stands for missing values",
    ),
    "a mask of numbers": (
        arrays(X=X, y=Y, test=Y),
        "test is int64 of shape (40,)",
        "wanted bool of shape (40,)",
        "True for the test rows",
    ),
}


def entry(write: Callable[[Path], Any], got: str, wanted: str, way_out: str) -> Wrong:
    def call(at: Path) -> object:
        write(at / "toy.npz")
        return load("toy.npz", 0)

    return Wrong(call, got, wanted, way_out)


ARCHIVES: Walk = {f"npz: {name}": entry(*case) for name, case in CASES.items()}
