"""Wrong images, meshes, clouds of points and sub-policies."""

import contextlib
import io
import lzma
import struct
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import h5py
import numpy as np
from PIL import Image

from experiments.augmentation.published import read_policies
from experiments.data.load import load
from experiments.data.pictures import load_pictures
from tests.wrong.archives import Y, arrays
from tests.wrong.entry import Walk, Wrong

PICTURE = "wanted a whole picture"
TAKE_OUT = "mend it or take it out"


def png(size: tuple[int, int] = (2, 2), chunks: bytes = b"") -> bytes:
    """A picture; one of another size has no pixels, and says so nowhere."""
    content = io.BytesIO()
    Image.new("L", (2, 2)).save(content, "png")
    start = content.getvalue()
    first = chunk(b"IHDR", struct.pack(">II", *size) + start[24:29])
    return start[:8] + first + chunks + start[33:]


def chunk(kind: bytes, content: bytes) -> bytes:
    check = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)


BOMB = chunk(b"zTXt", b"note\0\0" + zlib.compress(bytes(1 << 23)))


def in_memory(folder: Path) -> object:
    return load(folder.name, 0)


def streamed(folder: Path) -> object:
    """The last of the pictures that are read while they are used."""
    return load_pictures(folder, 8).stream.test[[1]]


def images(
    content: bytes, classes: str = "ab", read: Callable[[Path], object] = in_memory
) -> Callable[[Path], object]:
    """A folder of images, the last of which has this content."""

    def call(at: Path) -> object:
        for part in ("train", "test"):
            for label in classes:
                (at / "set" / part / label).mkdir(parents=True)
                (at / "set" / part / label / "0.png").write_bytes(png())
        (at / "set" / "test" / classes[-1] / "0.png").write_bytes(content)
        return read(at / "set")

    return call


def packed(content: bytes) -> Callable[[Path], object]:
    def call(at: Path) -> object:
        (at / "set.tar.xz").write_bytes(content)
        return load("set.tar.xz", 0)

    return call


def tar_xz(damage: int) -> bytes:
    """A tar of one picture, with a byte in its middle changed."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        member = tarfile.TarInfo("train/a/0.png")
        member.size = len(png())
        tar.addfile(member, io.BytesIO(png()))
    packed = bytearray(lzma.compress(content.getvalue()))
    packed[len(packed) // 2] ^= damage
    return bytes(packed)


def small_machine(call: Callable[[Path], object]) -> Callable[[Path], object]:
    """The same call where no more than two bytes are free."""

    def limited(at: Path) -> object:
        modules = ("experiments.reading", "experiments.data.images")
        with contextlib.ExitStack() as patched:
            for module in modules:
                patched.enter_context(mock.patch(f"{module}.free_memory", return_value=2))
            return call(at)

    return limited


def saved(at: Path) -> object:
    arrays(X=np.ones((40, 5)), y=Y)(at / "toy.npz")
    return load("toy.npz", 0)


def off(vertices: str, faces: str = "3 0 1 2", counts: str = "3 1 0") -> Callable[[Path], object]:
    def call(at: Path) -> object:
        for part in ("train", "test"):
            (at / "set" / "chair" / part).mkdir(parents=True)
            (at / "set" / "chair" / part / "0.off").write_text(
                f"OFF\n{counts}\n{vertices}\n{faces}\n"
            )
        return load("set", 0)

    return call


SOLID = "0 0 0\n1 0 0\n0 1 0"
CLOUDS = np.zeros((2, 1024, 3), np.float32)
NAMES = ("train_files.txt", "test_files.txt")


def clouds(
    data: object, label: object = (0, 1), names: bytes = b"x.h5"
) -> Callable[[Path], object]:
    def call(at: Path) -> object:
        (at / "set").mkdir()
        with h5py.File(at / "set" / "x.h5", "w") as file:
            file["data"], file["label"] = data, label
        for name in NAMES:
            (at / "set" / name).write_bytes(names)
        return load("set", 0)

    return call


STRUCTURE = np.zeros((2, 1024, 3), [("x", "f4")])


def policies(step: str, code: str = "def fa_reduced_cifar10():\n    return [[{0}, {0}]]\n"):
    def call(at: Path) -> object:
        (at / "p.py").write_text(code.format(step))
        return read_policies("p.py")

    return call


NO_FRACTION = "probabilities and levels are from 0 to 1"
SOURCE = "github.com/kakaobrain"
AUTHORS = "wanted its authors' file"

FILES: Walk = {
    "a picture of 3.6e9 pixels": Wrong(
        images(png((60000, 60000))), "image test/b/0.png: Image size", PICTURE, TAKE_OUT
    ),
    "a picture of 1e8 pixels": Wrong(
        images(png((10000, 10000))), "decompression bomb", PICTURE, TAKE_OUT
    ),
    "a streamed picture of 1e8 pixels": Wrong(
        images(png((10000, 10000)), read=streamed), "decompression bomb", PICTURE, TAKE_OUT
    ),
    "a bomb of text": Wrong(images(png(chunks=BOMB)), "too large", PICTURE, TAKE_OUT),
    "a broken picture": Wrong(images(png()[:40]), "image test/b/0.png", PICTURE, TAKE_OUT),
    "no picture": Wrong(images(b"\0" * 99), "cannot identify", PICTURE, TAKE_OUT),
    "images of one class": Wrong(
        images(png(), "a"), "set has 1 class", "wanted 2 or more", "nothing to tell apart"
    ),
    "corrupt xz": Wrong(
        packed(tar_xz(255)), "cannot read set.tar.xz", "wanted a tar of images", "pack them anew"
    ),
    "no xz": Wrong(
        packed(b"no tar"), "cannot read set.tar.xz", "wanted a tar of images", "give their folder"
    ),
    "images beyond memory": Wrong(
        small_machine(images(png())),
        "what set holds up to train/a",
        "wanted at most",
        "fewer images",
    ),
    "arrays beyond memory": Wrong(
        small_machine(saved), "X of toy.npz takes", "wanted at most the 0.0 GiB", "keep fewer rows"
    ),
    "a name of 5000 letters": Wrong(
        lambda at: load("x" * 5000, 0), "name too long", "wanted a name", "see the command datasets"
    ),
    "a mesh without area": Wrong(
        off("0 0 0\n1 0 0\n2 0 0"), "has the area 0", "triangles of some area", TAKE_OUT
    ),
    "a mesh with NaN": Wrong(
        off("0 0 0\n1 0 0\n0 nan 0"), "has the area nan", "wanted finite vertices", TAKE_OUT
    ),
    "a mesh with infinity": Wrong(
        off("0 0 0\n1 0 0\n0 inf 0"), "has the area", "wanted finite vertices", TAKE_OUT
    ),
    "a mesh of 1e300": Wrong(
        off("0 0 0\n1e300 0 0\n0 1e300 0"), "has the area inf", "wanted finite vertices", TAKE_OUT
    ),
    "a negative corner": Wrong(
        off(SOLID, "3 0 1 -1"), "no OFF file of triangles", "of vertices 0 to 2", TAKE_OUT
    ),
    "a mesh of -3 vertices": Wrong(
        off(SOLID, counts="-3 1 0"), "cannot read the mesh", "wanted an OFF file", TAKE_OUT
    ),
    "a mesh of 1e12 vertices": Wrong(
        off(SOLID, counts="1000000000000 1 0"), "cannot read the mesh", "wanted an OFF", TAKE_OUT
    ),
    "clouds of strings": Wrong(
        clouds(np.full(CLOUDS.shape, b"1")), "data of type |S1", "wanted coordinates", "as float32"
    ),
    "complex clouds": Wrong(
        clouds(CLOUDS + 0j), "data of type complex64", "wanted coordinates", "as float32"
    ),
    "clouds of structures": Wrong(
        clouds(STRUCTURE), "data of type [('x'", "wanted coordinates", "save them as float32"
    ),
    "labels of strings": Wrong(
        clouds(CLOUDS, ["a", "b"]), "labels of type object", "wanted class numbers", "as int64"
    ),
    "a list that is not UTF-8": Wrong(
        clouds(CLOUDS, names=b"\xff.h5"), "train_files.txt", "wanted a file's name", "in UTF-8"
    ),
    "clouds beyond memory": Wrong(
        small_machine(clouds(CLOUDS)), "x.h5 takes", "wanted at most", "keep fewer rows"
    ),
    **{
        f"a level of {level}": Wrong(
            policies(f"('ShearX', 0.5, {level})"),
            f"got [0.5, {shown}]",
            NO_FRACTION,
            "mend the file",
        )
        for level, shown in [
            ("'0.5'", "'0.5'"),
            ("None", "None"),
            ("[1]", "[1]"),
            ("1j", "1j"),
            ("True", "True"),
            ("1e999", "inf"),
            ("-0.1", "-0.1"),
        ]
    },
    "an unhashable constant": Wrong(
        policies("{[]: 1}"), "cannot read sub-policies from p.py", AUTHORS, SOURCE
    ),
    "a sum of 50,000 terms": Wrong(
        policies("+".join(["1"] * 50000)), "cannot read sub-policies", AUTHORS, SOURCE
    ),
    "10,000 brackets": Wrong(
        policies("[" * 10000 + "]" * 10000), "cannot read sub-policies", AUTHORS, SOURCE
    ),
    "code for a constant": Wrong(policies("print()"), "cannot read sub-policies", AUTHORS, SOURCE),
    "another function": Wrong(
        policies("", "def other():\n    return []\n"), "no function", "There are other", "There are"
    ),
    "an unknown operation": Wrong(
        policies("('ShearZ', 0.5, 0.5)"), "'ShearZ'", "There are", "did you mean 'Shear"
    ),
}
