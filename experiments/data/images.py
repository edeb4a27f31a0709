"""Reading images ``train|test/CLASS/*.{jpg,png}`` from a folder or a tar file."""

import io
import tarfile
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

import numpy as np
from PIL import Image

from experiments.data.dataset import Dataset, check_trained, make_dataset
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

#: The part (train or test), the class, the path, and the pixels.
Picture = tuple[str, str, str, np.ndarray]


def load_folder(path: Path) -> Dataset:
    """A dataset from a folder ``train|test/CLASS/*.{jpg,png}``; classes in alphabetical order.

    Images in ``extra/CLASS`` are training images too.
    """
    files = (file for part in FOLDERS for file in picture_files(path / part))
    pictures = (_decode(file.relative_to(path).as_posix(), file) for file in files)
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


def picture_files(folder: Path) -> list[Path]:
    """The pictures ``CLASS/*.{jpg,png}`` of a folder, by class and name."""
    return sorted(path for path in folder.glob("*/*") if is_picture(path))


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
    train, test = ([each for each in pictures if each[0] == part] for part in PARTS)
    if not train or not test:
        raise UserError(
            f"{name} has {len(train)} images train/CLASS/*.jpg or *.png and {len(test)} images "
            "test/CLASS/*.jpg or *.png; wanted both folders, with one folder a class."
        )
    classes = sorted({label for _, label, *_ in train})
    check_trained(name, "images", classes, (label for _, label, *_ in test))
    first = pictures[0]
    for _, _, path, pixels in pictures:
        if pixels.shape != first[3].shape:
            raise UserError(
                f"{name}: {path} has shape {pixels.shape} and {first[2]} {first[3].shape}; "
                "resize the images to one size and one number of channels."
            )
    splits = [
        (np.stack([pixels for *_, pixels in part]), np.array([classes.index(e[1]) for e in part]))
        for part in (train, test)
    ]
    return make_dataset(name, splits[0], splits[1], len(classes))
