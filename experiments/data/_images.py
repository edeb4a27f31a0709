"""Reading images ``train|test/CLASS/*.{jpg,png}`` from a folder or a tar file."""

import io
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO

import numpy as np
from PIL import Image, UnidentifiedImageError

from experiments._errors import UserError
from experiments.data._dataset import Dataset, make_dataset

SUFFIXES = (".jpg", ".jpeg", ".png")
PARTS = ("train", "test")

#: The part (train or test), the class, the path, and the pixels.
Picture = tuple[str, str, str, np.ndarray]


def load_folder(path: Path) -> Dataset:
    """A dataset from a folder ``train|test/CLASS/*.{jpg,png}``; classes in alphabetical order."""
    files = (file for part in PARTS for file in sorted(path.glob(f"{part}/*/*")))
    pictures = (_decode(file.relative_to(path).as_posix(), file) for file in files if _wanted(file))
    return _assemble(path.name, pictures)


def load_tar(path: Path) -> Dataset:
    """As `load_folder`, from a tar file, compressed or not; read in memory, nothing is unpacked."""
    try:
        with tarfile.open(path) as tar:
            return _assemble(path.name, _members(tar))
    except (OSError, tarfile.TarError, EOFError) as error:
        raise UserError(f"cannot read {path}: {error}.") from None


def _members(tar: tarfile.TarFile) -> Iterator[Picture]:
    for member in tar:
        parts = PurePosixPath(member.name).parts[-3:]
        if member.isfile() and len(parts) == 3 and parts[0] in PARTS and _wanted(parts[2]):
            file = tar.extractfile(member)
            assert file is not None, "a regular member has contents"
            yield _decode("/".join(parts), io.BytesIO(file.read()))


def _wanted(name: str | Path) -> bool:
    return str(name).lower().endswith(SUFFIXES)


def _decode(name: str, file: Path | IO[bytes]) -> Picture:
    part, label, _ = name.split("/")
    try:
        with Image.open(file) as image:
            pixels = np.asarray(image if image.mode in ("L", "RGB") else image.convert("RGB"))
    except (OSError, UnidentifiedImageError):
        raise UserError(f"cannot read the image {name}; mend it or take it out.") from None
    return part, label, name, pixels[..., None] if pixels.ndim == 2 else pixels


def _assemble(name: str, pictures: Iterable[Picture]) -> Dataset:
    collected = list(pictures)
    classes = sorted({label for part, label, *_ in collected if part == "train"})
    _check(name, classes, collected)
    number = {label: i for i, label in enumerate(classes)}
    splits = []
    for wanted in PARTS:
        rows = [(pixels, number[label]) for part, label, _, pixels in collected if part == wanted]
        splits.append((np.stack([p for p, _ in rows]), np.array([i for _, i in rows], np.int32)))
    return make_dataset(name, splits[0], splits[1], num_classes=len(classes))


def _check(name: str, classes: list[str], pictures: list[Picture]) -> None:
    for part in PARTS:
        if not any(picture[0] == part for picture in pictures):
            raise UserError(
                f"{name} has no images {part}/CLASS/*.jpg or *.png; wanted {PARTS[0]} and "
                f"{PARTS[1]} folders with one folder a class."
            )
    shape = pictures[0][3].shape
    for _, label, path, pixels in pictures:
        if label not in classes:
            raise UserError(f"{name}: the class of {path} has no training images.")
        if pixels.shape != shape:
            raise UserError(
                f"{name}: {path} has shape {pixels.shape} and {pictures[0][2]} {shape}; "
                "resize the images to one size and one number of channels."
            )
