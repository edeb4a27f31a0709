"""The form in which every dataset reaches training, and the one check that leads to it."""

import itertools
import reprlib
import unicodedata
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int, Num, Shaped

from experiments.data.doubts import doubts, other_scales
from experiments.data.label_maps import are_label_maps, number_maps, refuse_other_maps
from experiments.data.reading import reading
from experiments.errors import UserError

#: The sizes of columns whose squares, summed over any rows, float32 holds; numbers that stand for a
#: missing value (1e20, 1e30, 9.97e36) are beyond them.
SMALLEST, LARGEST = 1e-18, 1e15

#: Smallest variation of a column, relative to its size, that float32 keeps.
ROUNDING = 1e-6

#: Ratio of deviations beyond which training and test rows have two scales (255 : 1, 100 : 1).
SCALES = 20

#: The deviations of a column's training rows beyond which a test row is no row of the same table.
WILD = 1e4

#: The rows that tell a deviation.
DEVIATION_ROWS = 10

#: Texts that stand for a missing value, as spreadsheets, pandas and R write them.
MISSING = (
    *("", "NA", "N/A", "#N/A", "<NA>", "nan", "NaN", "NAN", "null", "NULL", "?"),
    *("#REF!", "#DIV/0!", "#VALUE!", "#NAME?", "#NUM!", "#NULL!"),
)

Rows = Shaped[np.ndarray, "rows *shape"]
Labels = Shaped[np.ndarray, "rows *positions"]
#: Before it is checked.
Array = Shaped[np.ndarray, "..."]
#: Rows and labels.
Split = tuple[Array, Array]


class Dataset(NamedTuple):
    """A training and a test split, standardized.

    Attributes:
        X_train: float32, (rows, features), (rows, points, 3) or (rows, height, width, channels);
            int32 tokens (rows, length).
        y_train: int32 class numbers 0 .. num_classes - 1; one per position for tokens, and one per
            pixel for label maps (rows, height, width).
        X_test: like X_train.
        y_test: like y_train.
        name: the file's or the dataset's name.
        num_classes: number of classes.
        stream: reader of rows that exceed memory; the arrays are a sample then.
        mean: mean per column or channel of streamed rows, which arrive as they are stored.
        scale: their deviation, or 1.
        classes: names of the classes; () for tokens.
        notes: lines for the user: how the file was read, and what was left out.
    """

    X_train: Num[np.ndarray, "rows *shape"]
    y_train: Int[np.ndarray, "rows *positions"]
    X_test: Num[np.ndarray, "test_rows *shape"]
    y_test: Int[np.ndarray, "test_rows *positions"]
    name: str
    num_classes: int
    stream: Any = None
    mean: np.ndarray | None = None
    scale: np.ndarray | None = None
    classes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def train_rows(self) -> int:
        """The number of training rows."""
        return len(self.X_train) if self.stream is None else len(self.stream.train)

    @property
    def signature(self) -> tuple[object, ...]:
        """All that a training's programs depend on; datasets of one signature share programs."""
        arrays = [(each.shape, str(each.dtype)) for each in self[:4]]
        return self.name, self.num_classes, self.train_rows, self.stream is None, *arrays

    @property
    def has_label_maps(self) -> bool:
        """True for images with a class at each pixel."""
        return are_label_maps(self.X_train, self.y_train)

    def with_rows(self, train_rows: int | None, test_rows: int | None) -> "Dataset":
        """Returns the dataset with fewer rows, always the same ones, standardized anew."""
        if train_rows is None and test_rows is None:
            return self
        train = self._some("train", self.X_train, self.y_train, train_rows)
        return self.split_anew(train, self._some("test", self.X_test, self.y_test, test_rows))

    def _some(self, part: str, X: Rows, y: Labels, count: int | None) -> Split:
        """Draws ``count`` rows of a split without the seed; copies all rows for None."""
        if count is None:
            return X.copy(), y
        if self.stream is not None or count > len(X):
            rows = f"has {len(X)}" if self.stream is None else "streams its"
            raise UserError(
                f"--{part}-rows is {count}, and {self.name} {rows} {part} rows; wanted as many or "
                "fewer, of rows in memory: take fewer, or leave the flag out."
            )
        order = np.random.default_rng(0).permutation(len(X))[:count]
        X, kept = X[order], y[order]
        if part == "train" and self.classes and len(lost := np.setdiff1d(y, kept)):
            raise UserError(
                f"--train-rows is {count}, and none of these rows of {self.name} has the class "
                f"{self.classes[lost[0]]}; wanted some of every class: take more."
            )
        return X, kept

    def split_anew(self, train: Split, test: Split) -> "Dataset":
        """Returns the dataset with these rows, standardized on the first; tokens stay numbers."""
        if np.issubdtype(self.X_train.dtype, np.integer):
            (X_train, y_train), (X_test, y_test) = train, test
            return self._replace(X_train=X_train, y_train=y_train, X_test=X_test, y_test=y_test)
        return make_dataset(self.name, train, test, classes=self.classes, notes=self.notes)


def make_dataset(
    name: str,
    train: Split,
    test: Split | Array | None,
    seed: int = 0,
    classes: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> Dataset:
    """Checks rows and labels of any source, splits them, and standardizes them in place.

    Point clouds keep their coordinates, which have one unit of length and a reader's scale. Images
    whose labels have their shape, (rows, height, width), have a class at each pixel.

    Args:
        name: of the source, for messages.
        train: rows and labels. Float32 rows are overwritten, and a caller that keeps no reference
            to them saves their memory.
        test: likewise; or a mask (rows,), True for rows of ``train`` that are for the test; or None
            to draw a quarter of each class, or of the images with label maps.
        seed: of that draw.
        classes: the names of the classes, if the labels are their places; () if the labels are
            names themselves, in any form that `number_labels` reads.
        notes: see `Dataset`.

    Raises:
        UserError: for rows and labels that do not belong together, and for splits that differ in
            shape, scale or classes.
    """
    splits = [train, test] if isinstance(test, tuple) else [train]
    del train
    for split in splits:
        _check_pair(name, *split)
    labels, has_maps = [y for _, y in splits], are_label_maps(*splits[0])
    if not classes:
        labels, classes = (number_maps if has_maps else number_labels)(name, labels)
    if isinstance(test, tuple):
        with np.errstate(over="ignore"):  # Infinities are refused with other large values.
            rows = [np.asarray(X, np.float32) for X, _ in splits]
    else:
        strata = np.zeros(len(labels[0]), int) if has_maps else labels[0]
        held_out = draw_quarter(strata, seed) if test is None else test
        if held_out.shape != strata.shape:
            raise UserError(
                f"{name}: the mask of test rows has shape {held_out.shape}; wanted one value for "
                f"each row, {strata.shape}."
            )
        masks = ~held_out, held_out
        labels = [labels[0][mask] for mask in masks]
        with np.errstate(over="ignore"):
            rows = [np.asarray(splits[0][0][mask], np.float32) for mask in masks]
    del splits, split, test
    X_train, X_test = rows
    _check_splits(name, X_train, X_test)
    y_train, y_test = (y.astype(np.int32) for y in labels)
    check_classes(name, y_train, y_test, classes)
    lines = doubts(name, X_train, y_train, classes)
    if X_train.ndim != 3:
        standardize(X_train, X_test)
        _check_scales(name, X_train, X_test)
        lines += other_scales(name, X_test)
    return Dataset(
        *(X_train, y_train, X_test, y_test, name, len(classes)),
        classes=tuple(classes),
        notes=tuple(dict.fromkeys([*notes, *lines])),
    )


def number_labels(
    name: str, labels: Sequence[Array]
) -> tuple[list[Int[np.ndarray, "..."]], tuple[str, ...]]:
    """Class numbers of labels in their usual forms, and the names of the classes.

    Labels are words, whole numbers or one-hot rows, also as a column (rows, 1). Classes are in the
    order of the numbers, or of the alphabet.

    Args:
        name: of the source, for messages.
        labels: those of all splits, in one form.
    """
    plain = [_plain(name, y) for y in labels]
    if len({np.issubdtype(y.dtype, np.str_) for y in plain}) > 1:
        raise UserError(f"{name} has words and numbers for labels; wanted one of them everywhere.")
    names, places = np.unique(np.concatenate(plain), return_inverse=True)
    order = _order(name, names)
    if 2 * len(names) > len(places):
        raise UserError(
            f"{name} has {len(names)} different labels in {len(places)} rows; wanted classes, each "
            "of several rows: give these (--label names a table's column)."
        )
    ends = np.cumsum([len(y) for y in plain])[:-1]
    numbers = np.argsort(order)[places]
    return np.split(numbers, ends), tuple(map(str, names[order]))


def _plain(name: str, y: Array) -> Array:
    """Words or whole numbers, one per row."""
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if (
        y.ndim == 2
        and y.dtype.kind in "fiub"
        and np.isin(y, (0, 1)).all()
        and (y.sum(1) == 1).all()
    ):
        return y.argmax(1)
    if y.dtype.kind == "S":
        with reading(f"the labels of {name}", "wanted words in UTF-8: save them as text"):
            y = np.char.decode(y, "utf-8")
    if y.dtype.kind == "U" and y.ndim == 1:
        y = np.char.strip(y)
        missing = y[np.isin(y, MISSING)]
        if len(missing):
            raise UserError(
                f"{name} has {len(missing)} rows without a label ({str(missing[0])!r}); wanted one "
                "for each row: fill them, or drop the rows."
            )
        return y
    if y.ndim == 1 and y.dtype.kind == "f" and not (fits := np.abs(y) < 2**63).all():
        raise UserError(
            f"{name} has {np.count_nonzero(~fits)} rows without a label, or with one that is no "
            f"class number ({y[~fits][0]}); wanted one for each row: fill them, or drop the rows."
        )
    if y.ndim != 1 or y.dtype.kind not in "fiub" or np.any(np.mod(y * 1.0, 1)):
        raise UserError(
            f"{name} has labels of type {y.dtype} and shape {y.shape}; wanted one per row, words "
            "or whole numbers, or one-hot rows: np.unique(y, return_inverse=True)[1] makes numbers."
        )
    # Larger numbers than int64 has are classes by their digits.
    return y.astype(str) if y.dtype == np.uint64 and y.max() >= 2**63 else y.astype(np.int64)


def _order(name: str, names: Shaped[np.ndarray, " classes"]) -> Int[np.ndarray, " classes"]:
    """The order of different labels; UserError for numbers that name no classes."""
    try:
        values = [_exact(each) for each in names.tolist()]
    except ValueError:
        return np.arange(len(names))
    order = np.array(sorted(range(len(values)), key=values.__getitem__))
    same = [one for one, other in itertools.pairwise(order) if values[one] == values[other]]
    if same:
        first, second = (names[each] for each in order[order.tolist().index(same[0]) :][:2])
        raise UserError(
            f"{name} has the labels {str(first)!r} and {str(second)!r}, which are one number; "
            "wanted one spelling per class."
        )
    negative = min(values) < 0 and sorted(values) != [-1, 1]  # Often none at all.
    if negative or any(value % 1 for value in values):
        raise UserError(
            f"{name} has labels {reprlib.repr(names[order].tolist())}; wanted words, or whole "
            "numbers from 0 or 1 (np.unique(y, return_inverse=True)[1] makes them)."
        )
    return order


def _exact(number: str | int) -> int | float:
    """A number with all of its digits, which float64 rounds from 2^53 on."""
    try:
        return int(number)
    except ValueError:
        return float(number)


def draw_quarter(y: Int[np.ndarray, " rows"], seed: int) -> Bool[np.ndarray, " rows"]:
    """Marks a random quarter of the rows of each class, but never the only row of a class."""
    order = np.random.default_rng(seed).permutation(len(y))
    order = order[np.argsort(y[order], kind="stable")]
    order = order[np.bincount(y)[y[order]] > 1]
    held_out = np.zeros(len(y), bool)
    held_out[order[1::4]] = True
    return held_out


def standardize(train: Rows, test: Shaped[np.ndarray, "test_rows *shape"]) -> None:
    """Gives training rows zero mean and unit variance per column or channel; in place.

    Test rows are transformed by the same numbers. A column that is constant on the training rows is
    only centred.
    """
    mean, scale = deviations(train)
    for X in (train, test):
        X -= mean
        X /= scale


def deviations(train: Rows) -> tuple[np.ndarray, np.ndarray]:
    """The mean and the deviation of each column or channel; 1 for the deviation of a constant."""
    axes = tuple(range(train.ndim - 1))
    mean = train.mean(axes, dtype=np.float64).astype(np.float32)
    # Centre first: the deviation of a large constant column is then exactly zero.
    centred = np.subtract(train, mean, dtype=np.float32)
    deviation = np.sqrt(np.square(centred, out=centred).mean(axes, dtype=np.float64))
    return mean, np.where(deviation > 0, deviation, 1.0).astype(np.float32)


def _check_pair(name: str, X: Array, y: Array) -> None:
    """Raises unless the rows are numbers with one label each."""
    if X.ndim == 0 or y.ndim == 0 or len(X) != len(y) or len(X) == 0:
        raise UserError(
            f"{name}: X has shape {X.shape} and y {y.shape}; wanted rows with one label each: save "
            "them from the same rows."
        )
    if X.dtype.kind not in "fiub":
        raise UserError(f"{name}: X has type {X.dtype}; wanted numbers: encode text as columns.")
    if X.ndim == 4 and X.shape[1] <= 4 < min(X.shape[2:]):
        raise UserError(
            f"{name}: X has shape {X.shape}, as of images whose channels come first; wanted (rows, "
            "height, width, channels): save X.transpose(0, 2, 3, 1)."
        )
    refuse_other_maps(name, X, y)
    if X.ndim == 2 and X.size and X.dtype.kind != "b":
        _check_precision(name, X)


def _check_precision(name: str, X: Array) -> None:
    """Raises for columns whose variation float32 rounds away, such as times in seconds."""
    low, high = X.min(0).astype(float), X.max(0).astype(float)
    with np.errstate(invalid="ignore"):  # NaN and infinity are refused with other large values.
        lost = np.flatnonzero((high > low) & (high - low < ROUNDING * np.maximum(-low, high)))
    if len(lost):
        column = lost[0]
        raise UserError(
            f"{name}: column {column} of X is from {low[column]:.9g} to {high[column]:.9g}, and "
            "float32 holds seven digits; wanted columns around 0: subtract its mean."
        )


def _check_splits(name: str, X_train: Array, X_test: Array) -> None:
    """Raises for splits that float32 cannot standardize, and for two shapes."""
    for part, X in {"training": X_train, "test": X_test}.items():
        if len(X) == 0:
            raise UserError(f"{name}: there are no {part} rows; both splits need some.")
        if X.ndim not in (2, 3, 4) or 0 in X.shape:
            raise UserError(
                f"{name}: the {part} rows have shape {X.shape}; wanted (rows, features) or "
                "(rows, height, width[, channels]), or point clouds (rows, points, 3)."
            )
        axes = tuple(range(X.ndim - 1))
        sizes = np.maximum(X.max(axes), -X.min(axes))  # NaN if there is one.
        fits = (sizes == 0) | ((sizes >= SMALLEST) & (sizes <= LARGEST))
        if not fits.all():
            column = np.argmin(fits)
            raise UserError(
                f"{name}: the {part} rows reach {sizes[column]:.3g} in column {column + 1} of "
                f"{len(fits)}, counted without the classes; wanted "
                f"sizes from {SMALLEST:g} to {LARGEST:g}, and no NaN: rescale the columns, and "
                "fill or drop what stands for missing values."
            )
    if X_train.shape[1:] != X_test.shape[1:]:
        raise UserError(
            f"{name}: training rows have shape {X_train.shape[1:]} and test rows "
            f"{X_test.shape[1:]}; make them equal."
        )


def check_classes(name: str, y_train: Array, y_test: Array, classes: Sequence[str]) -> None:
    """Raises for a class that has test rows and no training rows."""
    check_range(name, y_train, y_test, classes)
    untrained = np.setdiff1d(y_test, y_train)
    if len(untrained):
        raise UserError(
            f"{name} has test rows of the class {classes[untrained[0]]} and none to train on; "
            "wanted some for every class: add or keep more rows, or take the class out."
        )


def check_range(name: str, y_train: Array, y_test: Array, classes: Sequence[str]) -> None:
    """Raises for fewer than two classes, and for labels that are numbers of none."""
    forms: dict[str, str] = {}
    for each in classes:
        if (other := forms.setdefault(_visible(each), each)) != each:
            raise UserError(
                f"{name} has the classes {other!a} and {each!a}, which are one name in two "
                "forms of Unicode, or with other spaces; wanted one spelling per class: rename one."
            )
    if len(classes) < 2:
        raise UserError(
            f"{name} has {len(classes)} class; wanted 2 or more: there is nothing to tell apart."
        )
    for part, y in {"training": y_train, "test": y_test}.items():
        if y.min() < 0 or y.max() >= len(classes):
            raise UserError(
                f"{name}: {part} labels are from {y.min()} to {y.max()}; wanted class numbers 0 to "
                f"{len(classes) - 1}: take a part that has labels, as validation often is."
            )


def _visible(name: str) -> str:
    """Returns a name as it is seen: in one form of Unicode, with single spaces, as printed."""
    form = unicodedata.normalize("NFKC", name)
    return " ".join("".join(c for c in form if unicodedata.category(c) != "Cf").split())


def _check_scales(name: str, X_train: Array, X_test: Array) -> None:
    """Raises if no column varies, or if every one varies too little or too much in the test."""
    if not X_train.any():
        raise UserError(
            f"{name}: the training rows are the same number in each column or channel (of "
            "pictures, transparency is not read); wanted some that vary."
        )
    if X_train.ndim == 2:
        constant, reach = ~X_train.any(0), np.abs(X_test).max(0)
        wild = np.flatnonzero(reach > np.where(constant, SCALES, WILD))
        if len(wild):
            column = int(wild[0])
            kind = "within its deviation" if X_train[:, column].any() else "constant"
            raise UserError(
                f"{name}: column {column} of X is {kind} in the training rows and "
                f"{reach[column]:.3g} away from its mean in the test rows; wanted one that the "
                "training rows show: leave it out, or mend its values."
            )
    if X_test.size < DEVIATION_ROWS * X_test.shape[-1]:
        return
    spread = X_test.std(tuple(range(X_test.ndim - 1)), dtype=np.float64)
    spread = spread[spread > 0]
    if len(spread) and (spread.max() < 1 / SCALES or spread.min() > SCALES):
        raise UserError(
            f"{name}: in every column the test rows vary {np.median(spread):.2g} times as much as "
            "the training rows; wanted one scale, both 0 to 255 or both 0 to 1: save both from one "
            "array."
        )
