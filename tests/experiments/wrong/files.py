"""Malformed datasets and sub-policies."""

import contextlib
import gzip
import io
import struct
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import h5py
import numpy as np
from PIL import Image

from experiments.augmentation.published import read_policies
from experiments.data.load import load
from experiments.data.pictures import load_pictures
from tests.experiments.wrong import Walk, Wrong

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(40, 5))
Y = RANDOM.permutation(np.arange(40) % 3)
SQUARE = RANDOM.integers(0, 256, (40, 8, 8, 3), dtype=np.uint8)
MASK = np.arange(40) < 10
WORDS = np.array(["ash", "elm", "fir"])
UNIQUE = "np.unique(y, return_inverse=True)[1]"

Call = Callable[[Path], object]


def small_machine(call: Call) -> Call:
    """Makes the call with only two bytes of free memory."""

    def limited(at: Path) -> object:
        with contextlib.ExitStack() as patched:
            for module in ("experiments.data.reading", "experiments.data.images"):
                patched.enter_context(mock.patch(f"{module}.free_memory", return_value=2))
            return call(at)

    return limited


def written(name: str, content: bytes | str) -> Call:
    def call(at: Path) -> object:
        (at / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return load(name, 0)

    return call


def saved(**arrays: Any) -> bytes:
    content = io.BytesIO()
    np.savez(content, **({"y": Y} | arrays))
    return content.getvalue()


def bare() -> bytes:
    content = io.BytesIO()
    np.save(content, X)
    return content.getvalue()


def split(X_train: Any = X, y_train: Any = Y, X_test: Any = X, y_test: Any = Y) -> bytes:
    return saved(X_train=X_train, y_train=y_train, X_test=X_test, y_test=y_test)


#: What is in toy.npz, and what is said of it.
ARCHIVES: dict[str, tuple[bytes, tuple[str, ...]]] = {
    "an array alone": (bare(), ("toy.npz", "np.savez(path, X=X, y=y)")),
    "text": (b"no zip", ("toy.npz", "np.savez(path, X=X, y=y)")),
    "half": (saved(X=X)[:200], ("toy.npz",)),
    "objects": (saved(X=X.astype(object)), ("X of toy.npz", "allow_pickle=False")),
    "text for numbers": (saved(X=X.astype(str)), ("X has type <U",)),
    "other names": (saved(images=X), ("y, images", "X_train, y_train, X_test")),
    "lengths": (saved(X=X, y=Y[:39]), ("(40, 5)", "(39,)")),
    "columns of labels": (saved(X=X, y=np.stack([Y, Y], 1)), ("(40, 2)", "one-hot")),
    "two classes in a row": (saved(X=X, y=np.eye(3)[Y] + np.eye(3)[0]), ("(40, 3)", "one-hot")),
    "no rows": (saved(X=X[:0], y=Y[:0]), ("(0, 5)", "(0,)")),
    "no rows to test on": (split(X_test=X[:0], y_test=Y[:0]), ("(0, 5)", "(0,)")),
    "no features": (saved(X=X[:, :0]), ("(30, 0)",)),
    "one number a row": (saved(X=X[:, 0]), ("(30,)", "(rows, features)")),
    "widths": (split(X_test=X[:, 1:]), ("(5,)", "(4,)")),
    "fractions": (saved(X=X, y=Y + 0.5), ("float64", UNIQUE)),
    "one class": (saved(X=X, y=0 * Y), ("1 class",)),
    "labels from -1": (saved(X=X, y=Y - 1), ("[-1, 0, 1]", UNIQUE)),
    "labels of a measurement": (saved(X=X, y=np.arange(40)), ("40 different labels", "40 rows")),
    "labels that are missing": (saved(X=X, y=np.array(["ash", "fir", "nan"])[Y]), ("'nan'",)),
    "two spellings": (saved(X=X, y=np.array(["01", "1", "2"])[Y]), ("'01' and '1'",)),
    "words and numbers": (split(y_train=WORDS[Y]), ("words and numbers",)),
    "a class to test on alone": (split(y_train=np.minimum(Y, 1)), ("the class 2",)),
    "a word to test on alone": (
        split(y_train=WORDS[np.minimum(Y, 1)], y_test=WORDS[Y]),
        ("the class fir",),
    ),
    "a mask of a class": (saved(X=X, y=Y, test=Y == 2), ("the class 2",)),
    "NaN": (saved(X=X * np.nan), ("nan", "fill or drop")),
    "one NaN": (saved(X=np.where(X > 1, np.nan, X)), ("nan", "fill or drop")),
    "1e300": (saved(X=X * 1e300), ("inf", "rescale")),
    "masses of molecules in kilograms": (
        saved(X=X * [1, 1, 1e-26, 1, 1]),
        ("column 3 of", "rescale"),
    ),
    "one number": (saved(X=np.ones((40, 5))), ("same number",)),
    "words in Latin letters": (
        saved(X=X, y=np.array([w.encode("latin1") for w in ("ähre", "elm", "fir")])[Y]),
        ("labels of toy.npz", "UTF-8"),
    ),
    "features of 1e-30": (saved(X=X * 1e-30), ("rows reach", "rescale")),
    "a missing value of 1e20": (saved(X=np.where(X > 1, 1e20, X)), ("1e+20", "missing")),
    "a mask of numbers": (saved(X=X, test=Y), ("test is int64", "(40,)")),
    "a mask of one seed": (saved(X=X, test4=MASK), ("test4", "(4, rows)")),
    "a short mask": (saved(X=X, test=MASK[:39]), ("(39,)", "(40,)")),
    "no training rows": (saved(X=X, test=MASK | True), ("no training rows",)),
    "no test rows": (saved(X=X, test=MASK & False), ("no test rows",)),
    "bytes beside fractions": (split(SQUARE, X_test=SQUARE / 255), ("0.0039", "0 to 255")),
    "numbers beside fractions": (
        split(SQUARE.astype(int), X_test=SQUARE / 255),
        ("0.0039", "0 to 255"),
    ),
    "percentages to test on": (split(X_test=X * 100), ("times as much", "one scale")),
    "channels first": (saved(X=SQUARE.transpose(0, 3, 1, 2)), ("X.transpose(0, 2, 3, 1)",)),
    "channels first and wide": (
        saved(X=np.zeros((40, 1, 20, 30))),
        ("(40, 1, 20, 30)", "X.transpose(0, 2, 3, 1)"),
    ),
    "channels first in the test": (
        split(SQUARE, X_test=SQUARE.transpose(0, 3, 1, 2)),
        ("X.transpose(0, 2, 3, 1)",),
    ),
    # Seconds since 1970: float32 numbers there are 128 apart.
    "times": (saved(X=np.column_stack([X, 1.7e9 + np.arange(40)])), ("column 5", "1.7e+09")),
    "times of training": (split(np.column_stack([X, 1.7e9 + np.arange(40)])), ("column 5",)),
}

#: Label maps of the images, and of images of other sides.
PIXELS = RANDOM.integers(0, 3, (40, 8, 8))

ARCHIVES |= {
    f"label maps {name}": (saved(X=SQUARE, y=y), named)
    for name, y, named in (
        ("of 0 and 255", 255 * (PIXELS > 0), ("2 different labels", "0, 255", "reshape(y.shape)")),
        ("with void pixels", np.where(PIXELS > 1, 255, PIXELS), ("0 to 255", "give them a class")),
        ("from -1", PIXELS - 1, ("-1 to 1", "reshape(y.shape)")),
        ("of fractions", PIXELS / 2, ("float64", "whole numbers")),
        ("of words", WORDS[PIXELS], ("labels of pixels of type <U3", "whole numbers")),
        ("of one class", 0 * PIXELS, ("1 class",)),
        ("of other sides", PIXELS[:, ::2, ::2], ("(40, 4, 4)", "(40, 8, 8)", "resize")),
        ("in one-hot form", np.eye(3)[PIXELS], ("(40, 8, 8, 3)", "y.argmax(-1)")),
    )
}
ARCHIVES |= {
    "a class of pixels to test on alone": (
        split(SQUARE, np.minimum(PIXELS, 1), SQUARE, PIXELS),
        ("the class 2",),
    ),
    "a mask of pixels": (saved(X=SQUARE, y=PIXELS, test=PIXELS > 0), ("test is bool", "(rows,)")),
}

#: What is in mine.csv, and what is said of it.
TABLES = {
    "": ("empty",),
    "a,b": ("0 rows of 2 columns",),
    "1,2\n3,4": ("the number 1", "a name above each column"),
    "a,label\n1,0,3\n": ("more fields",),
    "a,label\n1,0\n2\n": ("'label'", "1 rows without a label"),
    "a label\n1 0\n2 1\n": ("1 columns", "commas"),
    "a;b;label\n1,5;2;ash\n": ("commas",),
    "PK\0\0": ("commas",),
    "label,a,y\n0,1,0\n": ("'label', 'y'", "--label"),
    "a,b\n1,0\n2,1\n": ("no column for classes", "'a', 'b'", "--label"),
    "a,label\n1,0\n,0\n1,1\n2,1\n": ("'a'", "no number in 1 rows", "row 2", "missing"),
    "a,label\n1,0\nNA,0\n1,1\n2,1\n": ("'a'", "no number in 1 rows", "'NA'"),
    'a,label\n"1,5",0\n2,0\n': ("'a'", "no number", "'1,5'", "decimal points"),
    "label,price\n1,0.5\n2,0.5\n": ("'label'", "2 different labels in 2 rows"),
    "a,label\n1,0\n2,\n1,0\n2,\n": ("'label'", "2 rows without a label"),
    "a,label\n" + 4 * "1,1e1\n2,10\n": ("'10' and '1e1'", "one number"),
    "a,label\n" + 4 * "1,ash\n2,nan\n": ("4 rows without a label", "'nan'"),
    'a,label\n1,"ash\n2,fir\n1,ash"\n2,fir\n': ("a quote goes over several lines", "'ash"),
    'a,label\n1,"ash\n2,fir\n': ("mine.csv",),
    ",label\n1,ash\n2,fir\n": ("no column beside its classes",),
}


def png(side: int = 4, kind: type = np.uint8, value: int = 0) -> bytes:
    content = io.BytesIO()
    Image.fromarray(np.full((side, 4), value, kind)).save(content, "png")
    return content.getvalue()


def deep(colour: int, channels: int) -> bytes:
    """Returns a PNG of 16 bits per channel, which Pillow reads as one of 8."""
    lines = 4 * (b"\0" + 4 * channels * b"\x12\x34")
    head = struct.pack(">IIBBBBB", 4, 4, 16, colour, 0, 0, 0)
    content = b"\x89PNG\r\n\x1a\n"
    for kind, data in ((b"IHDR", head), (b"IDAT", zlib.compress(lines)), (b"IEND", b"")):
        checksum = struct.pack(">I", zlib.crc32(kind + data))
        content += struct.pack(">I", len(data)) + kind + data + checksum
    return content


def pages() -> bytes:
    """Returns a TIFF of two pages."""
    content = io.BytesIO()
    page = Image.new("L", (4, 4))
    page.save(content, "tiff", save_all=True, append_images=[page])
    return content.getvalue()


def large() -> bytes:
    """Returns a PNG of a hundred million pixels in a few bytes."""
    content = io.BytesIO()
    Image.new("1", (10_000, 10_000)).save(content, "png")
    return content.getvalue()


def in_memory(folder: Path) -> object:
    return load(folder.name, 0)


def streamed(folder: Path) -> object:
    """Returns the last of the streamed pictures."""
    return load_pictures(folder, 8).stream.test[[1]]


PLACES = ("train/a/0.png", "train/b/0.png", "test/a/0.png", "test/b/0.png")


def images(
    content: bytes = png(),
    read: Call = in_memory,
    places: tuple[str, ...] = PLACES,
) -> Call:
    """Makes a folder of images, the last of which has this content."""

    def call(at: Path) -> object:
        (at / "set").mkdir()
        for number, place in enumerate(places, 1):
            (at / "set" / place).parent.mkdir(parents=True, exist_ok=True)
            (at / "set" / place).write_bytes(content if number == len(places) else png())
        return read(at / "set")

    return call


def off(
    faces: str = "3 0 1 2",
    head: str = "OFF\n",
    vertices: str = "0 0 0\n1 0 0\n0 1 0",
    places: tuple[str, ...] = ("chair/train", "bed/train", "chair/test"),
) -> Call:
    def call(at: Path) -> object:
        for place in places:
            (at / "set" / place).mkdir(parents=True)
            text = f"{head}3 1 0\n{vertices}\n{faces}\n"
            (at / "set" / place / "0.off").write_text(text)
        return load("set", 0)

    return call


CLOUDS = np.zeros((2, 1024, 3), np.float32)


def clouds(names: str = "x.h5", **content: object) -> Call:
    def call(at: Path) -> object:
        (at / "set").mkdir()
        with h5py.File(at / "set" / "x.h5", "w") as file:
            for name, values in ({"data": CLOUDS, "label": (0, 1)} | content).items():
                file[name] = values
        for part in ("train", "test"):
            (at / "set" / f"{part}_files.txt").write_text(names)
        return load("set", 0)

    return call


def policies(step: str, function: str = "fa_reduced_cifar10") -> Call:
    def call(at: Path) -> object:
        (at / "p.py").write_text(f"def {function}():\n    return [[{step}, {step}]]\n")
        return read_policies("p.py")

    return call


def packed(mode: str = "w", size: int | None = None) -> bytes:
    """Returns a tar of two images, the first of which has this size by its header."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode=mode) as tar:
        for name in ("a/0.png", "b/0.png"):
            member = tarfile.TarInfo(name)
            member.size = len(png())
            tar.addfile(member, io.BytesIO(png()))
    if size is None:
        return content.getvalue()
    head = tarfile.TarInfo("a/0.png")
    head.size = size
    return head.tobuf() + content.getvalue()[512:]


def damaged() -> bytes:
    """Returns a compressed tar with a damaged middle."""
    content = bytearray(packed("w:xz"))
    content[len(content) // 2] ^= 255
    return bytes(content)


FILES: Walk = {
    **{
        f"npz: {name}": Wrong(written("toy.npz", content), named)
        for name, (content, named) in ARCHIVES.items()
    },
    **{
        f"csv: {text!r}": Wrong(written("mine.csv", text), ("mine.csv", *named))
        for text, named in TABLES.items()
    },
    "arrays beyond memory": Wrong(
        small_machine(written("toy.npz", saved(X=X))), ("X of toy.npz", "keep fewer rows")
    ),
    "no such name": Wrong(lambda at: load("digit", 0), ("'digit'", "'digits'")),
    "no such file": Wrong(lambda at: load("absent.npz", 0), ("absent.npz",)),
    "no such folder": Wrong(lambda at: load(str(at / "absent"), 0), ("absent",)),
    "a name of 5000 letters": Wrong(lambda at: load("x" * 5000, 0), ("xxx", "datasets")),
    "a picture of 1e8 pixels": Wrong(images(large()), ("test/b/0.png", "bomb")),
    "a streamed picture of 1e8 pixels": Wrong(images(large(), streamed), ("test/b/0.png", "bomb")),
    "half a picture": Wrong(images(png()[:40]), ("test/b/0.png",)),
    "no picture": Wrong(images(b"\0" * 99), ("test/b/0.png",)),
    "16 bits": Wrong(images(png(4, np.uint16, 40_000)), ("test/b/0.png", "8 bits")),
    "16 bits in colour": Wrong(images(deep(2, 3)), ("test/b/0.png", "8 bits")),
    "16 bits of gray and alpha": Wrong(images(deep(4, 2)), ("test/b/0.png", "8 bits")),
    "16 bits, streamed": Wrong(images(deep(2, 3), streamed), ("test/b/0.png", "8 bits")),
    "two pages": Wrong(images(pages()), ("test/b/0.png", "several pictures")),
    "another size": Wrong(images(png(5)), ("test/b/0.png", "(5, 4)", "(4, 4)", "--resize 4")),
    "images of one class": Wrong(images(places=PLACES[::2]), ("set", "1 class")),
    "images of one class, unsplit": Wrong(images(places=("a/0.png", "a/1.png")), ("1 class",)),
    "no images": Wrong(images(places=()), ("set", "no picture", "train/CLASS")),
    "no test images": Wrong(images(places=PLACES[:2]), ("set", "test/CLASS")),
    "test images of a class alone": Wrong(
        images(places=(PLACES[0], *PLACES[2:])), ("set", "the class b")
    ),
    "streamed, of a class alone": Wrong(
        images(read=streamed, places=(PLACES[0], *PLACES[2:])), ("set", "the class b")
    ),
    "no streamed test pictures": Wrong(
        images(read=streamed, places=PLACES[:2]), ("set", "test/CLASS")
    ),
    "streamed, unsplit": Wrong(
        images(read=streamed, places=("a/0.png", "b/0.png")), ("set", "test/CLASS")
    ),
    "images without classes": Wrong(
        images(places=("train/cat.0.png", "test/1.png")), ("set", "train/cat.0.png", "CLASS")
    ),
    "classes in classes": Wrong(
        images(places=("a/0.png", "b/0.png", "b/c/0.png")), ("set", "b/c/0.png", "CLASS")
    ),
    "a class without pictures": Wrong(
        images(places=(*PLACES, "train/c/0.heic")), ("train/c", "0.heic", ".png")
    ),
    "an unsplit class without pictures": Wrong(
        images(places=("a/0.png", "b/0.png", "c/0.gif")), ("the folder c", "0.gif")
    ),
    "images beyond memory": Wrong(small_machine(images()), ("set", "train/a")),
    "a damaged tar": Wrong(written("set.tar.xz", damaged()), ("set.tar.xz",)),
    "no tar": Wrong(written("set.tar", "no tar"), ("set.tar",)),
    "no zip": Wrong(written("set.ZIP", "no zip"), ("set.ZIP",)),
    "a tar cut at a header": Wrong(written("set.tar", packed()[:1024]), ("set.tar", "cut")),
    "a compressed tar cut at a header": Wrong(
        written("set.tgz", gzip.compress(packed()[:1024])), ("set.tgz", "cut")
    ),
    "a tar with another header": Wrong(
        written("set.tar", packed()[:1024] + 512 * b"x" + packed()[1536:]), ("set.tar", "damaged")
    ),
    "a tar cut in a picture": Wrong(written("set.tar", packed()[:1600]), ("set.tar",)),
    "a tar of a huge member": Wrong(
        written("set.tar", packed(size=750_000_000)), ("a/0.png", "750,000,000 bytes")
    ),
    "a label of arrays": Wrong(
        lambda at: load("digits", 0, label="a"), ("--label is 'a'", "digits")
    ),
    "a size of arrays": Wrong(lambda at: load("digits", 0, resize=8), ("--resize is 8", "digits")),
    "no such label": Wrong(
        lambda at: ((at / "mine.csv").write_text("a,b\n1,0\n"), load("mine.csv", 0, label="c")),
        ("column of mine.csv 'c'", "a, b"),
    ),
    "too few rows for a class": Wrong(
        lambda at: (np.savez("toy.npz", X=X, y=Y), load("toy.npz", 0, train_rows=2)),
        ("--train-rows is 2", "toy.npz", "the class"),
    ),
    "an unknown kind of file": Wrong(
        lambda at: ((at / "a.xlsx").write_text(""), load("a.xlsx", 0)), ("a.xlsx", ".csv")
    ),
    "a mesh without area": Wrong(off(vertices="0 0 0\n1 0 0\n2 0 0"), ("0.off", "area")),
    "a mesh with NaN": Wrong(off(vertices="0 0 0\n1 0 0\n0 nan 0"), ("0.off", "area")),
    "a mesh of quads": Wrong(off("4 0 1 2"), ("0.off", "triangles")),
    "a corner that is not there": Wrong(off("3 0 1 3"), ("0.off",)),
    "half a face": Wrong(off("3 0"), ("0.off",)),
    "a mesh in PLY": Wrong(off(head="PLY\n"), ("0.off", "OFF")),
    "no test meshes": Wrong(off(places=("chair/train",)), ("set", "CLASS/test/*.off")),
    "test meshes of a class alone": Wrong(
        off(places=("chair/train", "bed/test")), ("set", "the class bed")
    ),
    "clouds of few points": Wrong(clouds(data=CLOUDS[:, :100]), ("x.h5", "(2, 100, 3)")),
    "clouds in the plane": Wrong(clouds(data=CLOUDS[..., :2]), ("x.h5", "(2, 1024, 2)")),
    "clouds of one number": Wrong(clouds(data=np.float32(1)), ("x.h5",)),
    "clouds of strings": Wrong(clouds(data=np.full(CLOUDS.shape, b"1")), ("x.h5", "|S1")),
    "too many labels": Wrong(clouds(label=(0, 1, 1)), ("x.h5", "(3,)")),
    "labels of fractions": Wrong(clouds(label=np.zeros((2, 1))), ("x.h5", "float64")),
    "no such HDF5 file": Wrong(clouds("y.h5"), ("y.h5",)),
    "a list of no files": Wrong(clouds("\n"), ("train_files.txt",)),
    "clouds beyond memory": Wrong(small_machine(clouds()), ("x.h5", "keep fewer rows")),
    **{
        f"a sub-policy with {step}": Wrong(policies(step), ("p.py", named))
        for step, named in [
            ("('ShearX', 0.5, 7)", "0 to 1, not from 0.5 to 7"),
            ("('ShearX', 0.5, None)", "nan"),
            ("('ShearZ', 0.5, 0.5)", "'ShearZ'"),
            ("('ShearX', level, 0.5)", "malformed"),
            ("", "p.py"),
        ]
    },
    "another function": Wrong(
        policies("('Invert', 0.5, 0.5)", "other"), ("p.py", "'fa_reduced_cifar10'")
    ),
    "no file of sub-policies": Wrong(lambda at: read_policies("nowhere.py"), ("nowhere.py",)),
}
