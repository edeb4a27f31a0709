"""Reading images ``train|test/CLASS/*`` or ``CLASS/*`` from a folder or an archive."""

import io
import stat
import tarfile
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np
from jaxtyping import Int, UInt8
from PIL import Image, ImageOps, UnidentifiedImageError

from experiments.data.dataset import Dataset, make_dataset
from experiments.data.doubts import FILES, told_lines
from experiments.data.pixels import file_columns
from experiments.data.reading import free_memory, reading, refuse_too_large
from experiments.errors import UserError

# Pillow warns of twice as many pixels as it takes for sane, and raises from there on. Once for all,
# since pictures are read in threads, and a filter of one is seen by the others.
warnings.simplefilter("error", Image.DecompressionBombWarning)

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff")
#: Pillow's names of their formats.
FORMATS = ("JPEG", "PNG", "BMP", "WEBP", "TIFF")
#: Pillow's modes that become one channel.
GRAY = ("1", "L", "LA")

#: The byte of a PNG file and the tag of a TIFF file with the bits per channel.
PNG_DEPTH, BITS_PER_SAMPLE = 24, 258

#: The entry of a picture's ``info`` with the bits per channel of its file.
BITS = "bits per channel"

#: The alpha of a pixel that hides what is behind it.
OPAQUE = 255

#: The folders of training pictures; SVHN has two.
TRAINS = ("train", "extra")
#: The folders of test pictures, of which the first that has some is read.
TESTS = ("test", "val", "validation", "valid")

#: The most bytes of a picture's file: the pixels that Pillow decodes, in four channels.
LARGEST_FILE = 4 * (Image.MAX_IMAGE_PIXELS or 1 << 27)

#: Bytes of memory per byte of pixels: itself, in all rows, as float32 twice, and its square.
WORKING_COPIES = 14
FEWER = "keep fewer images, or make them smaller by --resize"

#: The place of what is missing in an empty folder.
EMPTY = "(no file)"

#: The files, folders and classes that a note names.
SHOWN = 3

#: A picture's path, or its bytes if it is in an archive; by its place.
Content = Path | bytes
Pictures = Mapping[PurePosixPath, Content]
#: The name, the size, and what reads the content of a file; None if it is no regular file.
Listed = tuple[str, int, Callable[[], Content] | None]


class Images(NamedTuple):
    """The pictures of a folder or an archive, by their paths in it.

    Attributes:
        train: those to train on; all if ``test`` is None.
        test: those to test on; None if the folders are classes and no parts.
        classes: the classes' names in alphabetical order.
        notes: a line on files that are left out.
    """

    train: Pictures
    test: Pictures | None
    classes: Sequence[str]
    notes: Sequence[str]

    def labels(self, pictures: Iterable[PurePosixPath]) -> Int[np.ndarray, " rows"]:
        """The class numbers of pictures."""
        numbers = {name: number for number, name in enumerate(self.classes)}
        return np.array([numbers[place.parts[-2]] for place in pictures])


def load_images(path: Path, seed: int, resize: int | None = None) -> Dataset:
    """Reads pictures of one size in folders ``train|test/CLASS`` (or ``val``), or ``CLASS`` alone.

    Args:
        path: a folder; or a tar or zip file, which is read in memory: nothing is unpacked.
        seed: draws a quarter of each class for the test, if the folders are ``CLASS`` alone.
        resize: the side of squares that pictures of any size become: their middle, resized. None
            for pictures of one size.
    """
    train, test, classes, notes = images = find_images(path)
    pictures = {**train, **(test or {})}
    y = images.labels(pictures)
    X, transparent, files = _pixels(path.name, pictures, resize)
    named = file_columns(files, y)
    notes = [*notes, *told_lines(path.name, *named, y, classes, FILES)[:1]]
    if transparent:
        notes = [
            *notes,
            f"{path.name}: the transparency of {len(transparent)} pictures is not read "
            f"({_some(transparent)}); lay them on a background if it shows what they are of.",
        ]
    held_out = np.arange(len(X)) >= len(train) if test else None
    return make_dataset(path.name, (X, y), held_out, seed, classes, notes)


def find_images(path: Path) -> Images:
    """Sorts the files of a folder or an archive by part and class; skips hidden ones.

    Raises:
        UserError: for folders that leave open what the classes are, for a class without pictures,
            and for one part alone.
    """
    name, files = path.name, dict(_files(path))
    empty = [place.parent for place in files if place.name == EMPTY]
    files = {place: content for place, content in files.items() if place.name != EMPTY}
    pictures = {place: content for place, content in files.items() if content is not None}
    train, test = _parts(name, pictures)
    kept = {**train, **(test or {})}
    left_out = [place for place in files if place not in kept]
    _check_every_class(name, kept, left_out)
    names = sorted({place.parent.name for place in kept})
    notes = [f"{name}: files left out: {len(left_out)} ({_some(left_out)})"] if left_out else []
    if empty:
        notes.append(f"{name}: empty folders, which are no classes: {_some(empty)}")
    notes.append(f"{name}: {len(kept)} pictures in {len(names)} classes: {_some(names)}")
    return Images(train, test, names, notes)


def _parts(name: str, pictures: Pictures) -> tuple[Pictures, Pictures | None]:
    """Returns the pictures to train on and those of the test; all and None without parts."""
    by_part: dict[str, dict[PurePosixPath, Content]] = {part: {} for part in (*TRAINS, *TESTS)}
    for place, content in pictures.items():
        if len(place.parts) > 2 and place.parts[-3] in by_part:
            by_part[place.parts[-3]][place] = content
    in_parts = {place: content for each in by_part.values() for place, content in each.items()}
    depth = 3 if in_parts else 2
    examples = {place.parts[:-depth]: str(place) for place in in_parts or pictures}
    unsorted = [str(place) for place in pictures if place.parts[-2:-1] in {(), *zip(by_part)}]
    if len(examples) != 1 or (unsorted and not in_parts):
        raise UserError(
            f"{name} has {_counted(pictures, [*unsorted, *examples.values()])}; wanted "
            "train/CLASS/* and test/CLASS/*, or CLASS/* alone: one folder for each class."
        )
    if not in_parts:
        return pictures, None
    train = {place: content for part in TRAINS for place, content in by_part[part].items()}
    test = next((by_part[part] for part in TESTS if by_part[part]), {})
    if not train or not test:
        raise UserError(
            f"{name} has {len(train)} pictures train/CLASS/* and {len(test)} test/CLASS/* (or "
            "val); wanted both parts, or folders CLASS/* alone, which are split."
        )
    return train, test


def _check_every_class(name: str, kept: Pictures, left_out: Iterable[PurePosixPath]) -> None:
    """Raises UserError for a folder beside the classes that has files, but no picture."""
    classes = {place.parent for place in kept}
    above, level = {folder.parent for folder in classes}, len(next(iter(kept)).parts) - 1
    for place in left_out:
        folder = PurePosixPath(*place.parts[:level])
        if len(place.parts) > level and folder.parent in above and folder not in classes:
            wanted = f"{', '.join(SUFFIXES)} in the folder of each class: convert them"
            if place.suffix.lower() in SUFFIXES:  # A link to nothing, a device.
                wanted = "files: mend the links, or pack the files that they name (tar -h)"
            raise UserError(
                f"{name}: the folder {folder} has {place.name} and no picture; wanted {wanted}, or "
                "take it out."
            )


def _some(names: Sequence[object]) -> str:
    shown = [text if text.isprintable() else repr(text) for text in map(str, names[:SHOWN])]
    return ", ".join(shown) + ", ..." * (len(names) > SHOWN)


def _counted(pictures: Pictures, examples: Sequence[str]) -> str:
    if not pictures:
        return f"no picture (*{', *'.join(SUFFIXES)})"
    return f"{len(pictures)} pictures, such as {', '.join(examples[:SHOWN])}"


def _files(path: Path) -> Iterator[tuple[PurePosixPath, Content | None]]:
    """The files that are not hidden, with the contents of pictures."""
    in_archive = _in_zip if path.suffix.lower() == ".zip" else _in_tar
    total, free = 0, free_memory()
    files, folders = set[PurePosixPath](), set[PurePosixPath]()
    with reading(path, "wanted a folder of images or an archive of it: pack it anew"):
        for name, size, content in _in_folder(path) if path.is_dir() else in_archive(path):
            place = PurePosixPath(name)
            if ".." in place.parts:
                raise ValueError(f"{name} is outside of the archive, whose names begin with ../")
            if any(part.startswith((".", "__MACOSX")) for part in place.parts):
                continue
            if name.endswith("/"):
                folders.add(place)
                continue
            if place in files:
                raise ValueError(f"it holds {place} twice")
            files.add(place)
            if content is None or place.suffix.lower() not in SUFFIXES:
                yield place, None
                continue
            if size > LARGEST_FILE:
                raise ValueError(f"{place} has {size:,} bytes, more than any picture")
            total += 0 if path.is_dir() else size
            refuse_too_large(f"what {path.name} holds up to {place}", total, FEWER, free)
            yield place, content()
    full = {folder for place in files | folders for folder in place.parents}
    yield from ((folder / EMPTY, None) for folder in sorted(folders - full))


def _in_folder(path: Path, above: Sequence[Path] = (), below: str = "") -> Iterator[Listed]:
    """The files and folders below a folder by name, not those in hidden folders.

    Args:
        path: the folder.
        above: the folders that it is in, without links, and its own.
        below: its place in the first of them, with a slash at the end.
    """
    above = above or [path.resolve()]
    folders = []
    for file in sorted(path.iterdir()):
        if file.is_dir():
            folders.append(file)
            continue
        regular = file.is_file()
        content = partial(Path, file) if regular else None
        yield below + file.name, file.stat().st_size if regular else 0, content
    for folder in folders:
        place, real = f"{below}{folder.name}/", folder.resolve()
        if real in above:
            raise ValueError(f"{place[:-1]} links to a folder that it is in: take the link out")
        yield place, 0, None
        if not folder.name.startswith("."):
            yield from _in_folder(folder, [*above, real], place)


def _in_tar(path: Path) -> Iterator[Listed]:
    """The members of a tar file, which must have the block of zeros at its end."""
    with tarfile.open(path) as tar:
        for member in tar:
            # The second name of a file in a tar is a link to its first.
            file = tar.extractfile(member) if member.isreg() or member.islnk() else None
            name = f"{member.name}/" if member.isdir() else member.name
            yield name, member.size, None if file is None else file.read
        assert tar.fileobj is not None, "an open tar has a file"
        tar.fileobj.seek(tar.offset)
        if tar.fileobj.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
            raise ValueError("it ends without the block that ends a tar: it is cut or damaged")


def _in_zip(path: Path) -> Iterator[Listed]:
    """The members of a zip file."""
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            regular = stat.S_IFMT(info.external_attr >> 16) in (0, stat.S_IFREG)
            content = partial(archive.read, info) if regular else None
            yield info.filename, info.file_size, content


def _opened(content: bytes) -> Image.Image:
    try:
        return Image.open(io.BytesIO(content), formats=FORMATS)
    except UnidentifiedImageError:
        kind = "empty" if not content else f"none of {', '.join(FORMATS)}"
        raise ValueError(f"its content is {kind}") from None


def read_picture(name: object, file: Content) -> Image.Image:
    """A picture with its pixels, turned as its EXIF data say.

    Raises:
        UserError: if Pillow cannot read the file or takes it for a bomb; for more than 8 bits per
            channel, which Pillow would cut; for several pictures in one file.
    """
    with reading(f"the image {name}", "wanted a whole picture of 8 bits: mend it or take it out"):
        content = file.read_bytes() if isinstance(file, Path) else file
        with _opened(content) as image:
            tiff: Mapping[int, Sequence[int]] = getattr(image, "tag_v2", {})
            png = [content[PNG_DEPTH]] if image.format == "PNG" else []
            bits = [*png, *tiff.get(BITS_PER_SAMPLE, ())]
            if max([8, *bits]) > 8 or image.mode.startswith("F"):
                raise ValueError(f"its channels have more than 8 bits (Pillow's mode {image.mode})")
            # Phones put the picture first, and others for their own use behind it (MPO).
            if image.format != "MPO" and getattr(image, "n_frames", 1) > 1:
                raise ValueError("it holds several pictures")
            ImageOps.exif_transpose(image, in_place=True)
            image.load()
            image.info[BITS] = max(bits, default=8)
            return image


def _pixels(
    name: str, pictures: Pictures, resize: int | None
) -> tuple[
    UInt8[np.ndarray, "rows height width channels"],
    list[PurePosixPath],
    list[dict[str, object]],
]:
    """The pixels of all pictures, the pictures that are transparent somewhere, and `properties`.

    Gray ones beside coloured ones get three channels.
    """
    pixels: dict[PurePosixPath, np.ndarray] = {}
    transparent, files = [], []
    size, free = 0, free_memory()
    for place, content in pictures.items():
        image = read_picture(place, content)
        files.append(properties(image))
        mode = "L" if image.mode in GRAY else "RGB"
        if image.has_transparency_data:
            image = image.convert("RGBA")
            transparent += [place] if np.asarray(image)[..., 3].min() < OPAQUE else []
        image = image.convert(mode)
        if resize is not None:
            image = ImageOps.fit(image, (resize, resize), Image.Resampling.BILINEAR)
        pixels[place] = np.atleast_3d(np.asarray(image))
        size += WORKING_COPIES * pixels[place].size
        refuse_too_large(f"what {name} holds up to {place}", size, FEWER, free)
    sizes = {each.shape[:2]: place for place, each in pixels.items()}
    if len(sizes) > 1:
        (first, one), (second, other) = sorted(sizes.items())[:2]
        raise UserError(
            f"{name}: {one} has shape {first} and {other} {second}; wanted one size: --resize "
            f"{min(first)} makes squares, or resize them yourself."
        )
    channels = max(each.shape[2] for each in pixels.values())
    rows = [np.broadcast_to(each, (1, *each.shape[:2], channels)) for each in pixels.values()]
    return np.concatenate(rows), transparent, files


def properties(image: Image.Image) -> dict[str, object]:
    """Returns how a picture's file was written, apart from what it shows."""
    width, height = image.size
    return {
        "format": str(image.format),
        "mode": image.mode,
        "width": width,
        "height": height,
        BITS: image.info.get(BITS, 8),
        "quality": str(getattr(image, "quantization", "")),
    }
