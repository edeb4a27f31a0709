"""The data of an item: the user's folder or the bundled digits."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from experiments.augmentation.published import POLICIES_FILE, POLICIES_SOURCE
from experiments.data.clouds import holds_clouds, holds_meshes
from experiments.data.dataset import Dataset
from experiments.data.load import SUFFIXES, load
from experiments.data.pictures import load_pictures
from experiments.errors import UserError

#: The data of the reduced presets without --data-dir.
BUNDLED = "digits, enlarged to 32 x 32"

SIDE = 32

#: The words of a report between its data and the paper's that they stand in for.
STANDING_IN = " in the place of "


def load_data(
    data_dir: Path | None,
    name: str,
    seed: int,
    train_rows: int | None,
    test_rows: int | None,
    held_out: int = 0,
    side: int = 0,
) -> Dataset:
    """Loads the data of a cell.

    Args:
        data_dir: a folder with ``NAME`` in one of the formats of `load`, such as ``NAME.npz``; or
            a folder ``train|test/CLASS/*.jpg`` itself; None for the bundled digits.
        name: the name of the dataset; "" for the only one.
        seed: the seed of the choice of rows, and of the split if the data have none.
        train_rows: the training rows to keep; None for all.
        test_rows: the test rows to keep; None for all.
        held_out: the training rows to leave out first.
        side: the side of the squares of streamed pictures, which are all used; 0 for data in
            memory.
    """
    if side and data_dir is not None:
        return load_pictures(Path(find(data_dir, name)), side)
    data = enlarged(load("digits", seed)) if data_dir is None else load(find(data_dir, name), seed)
    return subset(data, train_rows, test_rows, seed, held_out)


def described(data_dir: Path | None, names: Iterable[str]) -> str:
    """Names the data that a table of the datasets ``names`` is really trained on."""
    if data_dir is None:
        return BUNDLED
    return ", ".join(dict.fromkeys(Path(find(data_dir, name)).name for name in names))


def data_note(data_dir: Path | None, names: Iterable[str]) -> str:
    """Returns a sentence on the data of a report, and on the paper's data that they stand in for.

    Data of a dataset's own name in ``data_dir`` count as the paper's.
    """
    names = list(dict.fromkeys(names))
    used = described(data_dir, names)
    absent = [
        n for n in names if data_dir is None or Path(find(data_dir, n)).name.split(".")[0] != n
    ]
    standing = f"{STANDING_IN}{' and '.join(absent)}" if absent else ""
    return f"Trained and tested on: {used}{standing}."


def published_policies(data_dir: Path | None) -> str:
    """Returns the file name of Fast AutoAugment's sub-policies if the folder has the file."""
    return POLICIES_FILE if data_dir is not None and (data_dir / POLICIES_FILE).exists() else ""


def policies_note(file: str) -> str:
    """Returns a sentence on the sub-policies of a report, and on the way to the paper's."""
    if file:
        return f"Fast AutoAugment's sub-policies: those of {file} ({POLICIES_SOURCE})."
    return (
        "Fast AutoAugment's sub-policies: drawn uniformly from those that it searches. For the "
        f"published ones, put {POLICIES_FILE} into --data-dir ({POLICIES_SOURCE})."
    )


def find(data_dir: Path, name: str) -> str:
    """Returns the path of a dataset in a folder, or of a folder that is a dataset itself."""
    if (data_dir / "train").is_dir() or holds_meshes(data_dir) or holds_clouds(data_dir):
        return str(data_dir)
    if name:
        paths = [p for end in ("", *SUFFIXES) if (p := data_dir / f"{name}{end}").exists()]
    else:
        paths = sorted(p for p in data_dir.iterdir() if p.name.endswith(SUFFIXES) or p.is_dir())
    if not paths:
        raise UserError(
            f"{data_dir} holds no dataset {name!r}; wanted {name or 'NAME'} as a folder, or as a "
            f"file with one of {', '.join(SUFFIXES)}."
        )
    return str(paths[0])


def subset(
    data: Dataset, train_rows: int | None, test_rows: int | None, seed: int, held_out: int = 0
) -> Dataset:
    """Draws rows of each split, the same for every method under a seed.

    Args:
        data: the whole dataset.
        train_rows: the training rows to keep; None for all.
        test_rows: the test rows to keep; None for all.
        seed: the seed of the choice.
        held_out: the training rows to leave out first.

    Raises:
        UserError: if no training row is left.
    """
    if held_out >= len(data.X_train):
        raise UserError(
            f"the protocol holds {held_out:,} training rows out for validation, and {data.name} "
            f"has {len(data.X_train):,}; give the paper's data by --data-dir, or --preset cpu."
        )
    random = np.random.default_rng(seed)

    def draw(
        X: np.ndarray, y: np.ndarray, count: int | None, start: int = 0
    ) -> tuple[np.ndarray, np.ndarray]:
        kept = random.permutation(len(X))[start:][:count]
        return X[kept], y[kept]

    X_train, y_train = draw(data.X_train, data.y_train, train_rows, held_out)
    X_test, y_test = draw(data.X_test, data.y_test, test_rows)
    return data._replace(X_train=X_train, y_train=y_train, X_test=X_test, y_test=y_test)


def enlarged(data: Dataset) -> Dataset:
    """Repeats every pixel of small images, so that networks for 32 x 32 pixels take them."""
    factor = SIDE // data.X_train.shape[1]

    def larger(X: np.ndarray) -> np.ndarray:
        return X.repeat(factor, 1).repeat(factor, 2)

    return data._replace(X_train=larger(data.X_train), X_test=larger(data.X_test))
