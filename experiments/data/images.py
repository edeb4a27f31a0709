"""Reading images ``train|test/CLASS/*.{jpg,png}`` from a folder or a tar file."""

import io
import tarfile
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

import numpy as np
from PIL import Image

from experiments.data.dataset import Dataset, make_dataset
from experiments.errors import UserError
from experiments.reading import free_memory, reading, refuse_too_large

# Pillow warns of twice as many pixels as it takes for sane, and raises from there on. Once for all,
# since pictures are read in threads, and a filter of one is seen by the others.
warnings.simplefilter("error", Image.DecompressionBombWarning)

SUFFIXES = (".jpg", ".jpeg", ".png")
PARTS = ("train", "test")
#: A folder beside them whose images are training images too, as SVHN has them.
EXTRA = "extra"
FOLDERS = (*PARTS, EXTRA)

#: Of each byte of pixels: itself, in its split's array, as float32, and what standardizes it.
WORKING_COPIES = 14

#: Files of fewer bytes are read without a question.
LARGE = 1 << 26

#: The part (train or test), the class, the path, and the pixels.
Picture = tuple[str, str, str, np.ndarray]


def load_folder(path: Path) -> Dataset:
    """A dataset from a folder ``train|test/CLASS/*.{jpg,png}``; classes in alphabetical order.

    Images in ``extra/CLASS`` are training images too.
    """
    files = (file for part in FOLDERS for file in sorted(path.glob(f"{part}/*/*")))
    pictures = (
        _decode(file.relative_to(path).as_posix(), file) for file in files if is_picture(file)
    )
    return _assemble(path.name, list(_within_memory(path.name, pictures)))


def load_tar(path: Path) -> Dataset:
    """As `load_folder`, from a tar file, compressed or not; read in memory, nothing is unpacked."""
    with (
        reading(path, "wanted a tar of images: pack them anew, or give their folder"),
        tarfile.open(path) as tar,
    ):
        pictures = list(_within_memory(path.name, _members(tar)))
    return _assemble(path.name, pictures)


def _members(tar: tarfile.TarFile) -> Iterator[Picture]:
    for member in tar:
        parts = PurePosixPath(member.name).parts[-3:]
        if member.isfile() and len(parts) == 3 and parts[0] in FOLDERS and is_picture(parts[2]):
            if member.size > LARGE:
                refuse_too_large(member.name, member.size, "take it out")
            file = tar.extractfile(member)
            assert file is not None, "a regular member has contents"
            yield _decode("/".join(parts), io.BytesIO(file.read()))


def _within_memory(name: str, pictures: Iterable[Picture]) -> Iterator[Picture]:
    """The pictures, as long as all of them fit memory together."""
    size, free = 0, free_memory()
    for picture in pictures:
        size += WORKING_COPIES * picture[3].size
        refuse_too_large(f"what {name} holds up to {picture[2]}", size, "keep fewer images", free)
        yield picture


def is_picture(name: str | Path) -> bool:
    """Whether a file's name is that of a picture that is read."""
    return str(name).lower().endswith(SUFFIXES)


def read_picture(name: str | Path, file: Path | io.BytesIO) -> Image.Image:
    """A picture with its pixels; UserError for what Pillow cannot read, or takes for a bomb.

    Nor can it make 8 bits of more: it cuts them at 255.
    """
    with (
        reading(f"the image {name}", "wanted a whole picture of 8 bits: mend it or take it out"),
        Image.open(file) as image,
    ):
        image.load()
        if image.mode.startswith(("I", "F")):
            raise ValueError(f"its pixels are of more than 8 bits (Pillow's mode {image.mode})")
        return image


def _decode(name: str, file: Path | io.BytesIO) -> Picture:
    part, label, _ = name.split("/")
    image = read_picture(name, file)
    pixels = np.asarray(image if image.mode in ("L", "RGB") else image.convert("RGB"))
    part = PARTS[0] if part == EXTRA else part
    return part, label, name, pixels[..., None] if pixels.ndim == 2 else pixels


def _assemble(name: str, pictures: list[Picture]) -> Dataset:
    classes = sorted({label for part, label, *_ in pictures if part == "train"})
    _check(name, classes, pictures)
    number = {label: i for i, label in enumerate(classes)}
    splits = []
    for wanted in PARTS:
        rows = [(pixels, number[label]) for part, label, _, pixels in pictures if part == wanted]
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
            raise UserError(
                f"{name}: the class of {path} has no training images; wanted some for every "
                "class: add them, or take it out."
            )
        if pixels.shape != shape:
            raise UserError(
                f"{name}: {path} has shape {pixels.shape} and {pictures[0][2]} {shape}; "
                "resize the images to one size and one number of channels."
            )
