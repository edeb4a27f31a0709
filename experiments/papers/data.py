"""Where an item's data come from, the user's folder or the bundled digits, and which they are."""

import zlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from experiments.augmentation.published import POLICIES_SOURCE
from experiments.data.dataset import Dataset
from experiments.data.load import load
from experiments.data.pictures import load_pictures
from experiments.errors import UserError
from experiments.names import POLICIES_FILE
from experiments.reading import reading

#: How the files of a dataset may end.
ENDINGS = ("", ".npz", ".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2")

#: What is trained on without --data-dir, in the reduced presets.
BUNDLED = "digits, enlarged to 32 x 32"

SIDE = 32

#: The bytes of a file that are read at once.
CHUNK = 1 << 20


def load_data(
    data_dir: Path | None,
    name: str,
    seed: int,
    rows: int,
    test_rows: int,
    held_out: int = 0,
    side: int = 0,
) -> Dataset:
    """The data of a cell.

    Args:
        data_dir: a folder with ``NAME/train|test/CLASS/*.jpg``, ``NAME.npz`` or ``NAME.tar*``, or
            such a folder of classes itself; None for the bundled digits.
        name: of the dataset; "" for the only one.
        seed: of the choice of rows, and of the split where the data leave it open.
        rows: the training rows to keep, or 0.
        test_rows: the test rows to keep, or 0.
        held_out: the training rows to leave out first.
        side: of the squares of streamed pictures, all of which are used; 0 for data read whole.
    """
    if side and data_dir is not None:
        return load_pictures(Path(find(data_dir, name)), side)
    data = enlarged(load("digits", seed)) if data_dir is None else load(find(data_dir, name), seed)
    return subset(data, rows, test_rows, seed, held_out)


def described(data_dir: Path | None, names: Iterable[str]) -> str:
    """What is really trained on where a table says ``names``."""
    if data_dir is None:
        return BUNDLED
    return ", ".join(dict.fromkeys(Path(find(data_dir, name)).name for name in names))


def published_policies(data_dir: Path | None) -> str:
    """The name of the file with the sub-policies of Fast AutoAugment, if it lies in the folder."""
    return POLICIES_FILE if data_dir is not None and (data_dir / POLICIES_FILE).exists() else ""


def said_of_policies(file: str) -> str:
    """For a report: whose sub-policies were taken, and how to get those of the paper."""
    if file:
        return f"Fast AutoAugment's sub-policies: those of {file} ({POLICIES_SOURCE})."
    return (
        "Fast AutoAugment's sub-policies: drawn uniformly from those that it searches. For the "
        f"published ones, put {POLICIES_FILE} into --data-dir ({POLICIES_SOURCE})."
    )


def find(data_dir: Path, name: str) -> str:
    """The path of a dataset in a folder."""
    if (data_dir / "train").is_dir():
        return str(data_dir)
    wanted = [data_dir / f"{name}{ending}" for ending in ENDINGS] if name else []
    found = [path for path in wanted if path.exists()]
    if not name:
        found = sorted(p for p in data_dir.iterdir() if p.name.endswith(ENDINGS[1:]) or p.is_dir())
    if not found:
        raise UserError(
            f"{data_dir} holds no dataset {name!r}: wanted {name or 'NAME'}.npz, a tar file, or a "
            "folder of images train|test/CLASS/*.png."
        )
    return str(found[0])


def subset(data: Dataset, rows: int, test_rows: int, seed: int, held_out: int = 0) -> Dataset:
    """Random rows of each split, the same for every method under a seed.

    Args:
        data: the whole.
        rows: the training rows to keep, or 0 for all.
        test_rows: the test rows to keep, or 0 for all.
        seed: of the choice.
        held_out: the training rows to leave out before.

    Raises:
        UserError: if no training row is left.
    """
    if held_out >= len(data.X_train):
        raise UserError(
            f"the protocol holds {held_out:,} training rows out for validation, and {data.name} "
            f"has {len(data.X_train):,}; give the paper's data by --data-dir, or --preset cpu."
        )
    random = np.random.default_rng(seed)

    def some(
        X: np.ndarray, y: np.ndarray, count: int, start: int = 0
    ) -> tuple[np.ndarray, np.ndarray]:
        kept = random.permutation(len(X))[start:][: count or None]
        return X[kept], y[kept]

    X_train, y_train = some(data.X_train, data.y_train, rows, held_out)
    X_test, y_test = some(data.X_test, data.y_test, test_rows)
    return data._replace(X_train=X_train, y_train=y_train, X_test=X_test, y_test=y_test)


def enlarged(data: Dataset) -> Dataset:
    """Small images with every pixel repeated, so that networks for 32 x 32 pixels take them."""
    factor = SIDE // data.X_train.shape[1]

    def larger(X: np.ndarray) -> np.ndarray:
        return X.repeat(factor, 1).repeat(factor, 2)

    return data._replace(X_train=larger(data.X_train), X_test=larger(data.X_test))


def data_of(data_dir: Path | None, names: Iterable[str]) -> dict[str, object]:
    """By the name of a dataset, what tells its data from others."""
    return {
        name: BUNDLED if data_dir is None else fingerprint(Path(find(data_dir, name)))
        for name in dict.fromkeys(names)
    }


def fingerprint(path: Path) -> int:
    """A number that other data change: of a file's bytes; of a folder's files, names and sizes."""
    with reading(path, "wanted the data: give their folder as --data-dir"):
        if path.is_file():
            return _of_bytes(path)
        files = sorted(each for each in path.rglob("*") if each.is_file())
        named = (f"{each.relative_to(path).as_posix()} {each.stat().st_size}\n" for each in files)
        return zlib.crc32("".join(named).encode(errors="surrogateescape"))


def _of_bytes(path: Path) -> int:
    number = 0
    with path.open("rb") as file:
        while content := file.read(CHUNK):
            number = zlib.crc32(content, number)
    return number
