"""Files that would train without a word: leaks, broken quotes, lost folders and pictures."""

import io
import os
import tarfile
import unicodedata
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from experiments.data.dataset import number_labels
from experiments.data.doubts import class_codes, ordering_columns, telling_columns
from experiments.data.images import find_images
from experiments.data.load import load
from experiments.errors import UserError

RANDOM = np.random.default_rng(0)
ROWS = 120
NOISE = RANDOM.normal(size=(ROWS, 2))
SORTED = np.repeat(["a", "b", "c"], ROWS // 3)
GAPS = np.sort(RANDOM.choice(3 * ROWS, ROWS, replace=False))

SOME = np.arange(60) % 3


def save(path: Path, columns: dict, labels=SORTED) -> str:
    rows = zip(*columns.values(), labels, strict=True)
    lines = [",".join([*columns, "label"]), *(",".join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines))
    return str(path)


#: Columns that tell the class of a row of noise, and the labels in the order of the rows.
SHUFFLE = RANDOM.permutation(ROWS)
LEAKS = {
    "a number with gaps": (GAPS, SORTED),
    "a number without gaps": (np.arange(ROWS), SORTED),
    "a number that falls": (GAPS[::-1], SORTED),
    "a time": (1.5e3 + 0.1 * GAPS, SORTED),
    "a number in a file that was shuffled later": (GAPS[SHUFFLE], SORTED[SHUFFLE]),
    "a day of several rows": (np.arange(ROWS) // 7, SORTED),
    "a day that falls": (-np.arange(ROWS) // 7, SORTED),
    "a number in a file of two sorted halves": (GAPS, np.concatenate([SORTED[::2], SORTED[1::2]])),
}


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("kind", LEAKS)
def test_a_column_that_orders_the_rows_as_the_classes_do_is_no_feature(kind, place, tmp_path):
    numbers, labels = LEAKS[kind]
    columns = [("x", NOISE[:, 0]), ("z", NOISE[:, 1])]
    columns.insert(place, ("Id", numbers))
    data = load(save(tmp_path / "rows.csv", dict(columns), labels), 0)
    assert data.X_train.shape[1] == 2
    assert "Id" in data.notes[0]
    X = np.insert(NOISE, place, numbers, axis=1)
    np.savez(tmp_path / "rows.npz", X=X, y=labels)
    with pytest.raises(UserError, match=f"column {place} of X orders the rows"):
        load(str(tmp_path / "rows.npz"), 0)


def test_columns_that_only_look_like_it_stay():
    mixed = SORTED[SHUFFLE]
    features = {
        "a time, of rows in any order": (GAPS, mixed),
        "a feature that separates the classes": (RANDOM.random(ROWS)[np.argsort(mixed)], mixed),
        "a measurement by class": (10.0 * (SORTED == "b") + NOISE[:, 0], SORTED),
        "a code with ties": (np.repeat([1, 2, 3], ROWS // 3), SORTED),
        "a large number": (1000 * GAPS[SHUFFLE], SORTED[SHUFFLE]),
    }
    kept = {kind: ordering_columns(x[:, None], y) for kind, (x, y) in features.items()}
    assert kept == {kind: [] for kind in features}


def test_arrays_that_are_split_already_are_searched_too(tmp_path):
    X, y = np.insert(NOISE, 1, GAPS, axis=1)[SHUFFLE], SORTED[SHUFFLE]
    parts = {"X_train": X[:90], "y_train": y[:90], "X_test": X[90:], "y_test": y[90:]}
    np.savez(tmp_path / "rows.npz", **parts)
    with pytest.raises(UserError, match="column 1 of X_train orders the rows"):
        load(str(tmp_path / "rows.npz"), 0)


#: Columns that tell classes and are no function of them, and what they tell.
CLASS = np.unique(SORTED, return_inverse=True)[1]
TELLING = {
    "a number by cohorts": (1000.0 * CLASS + GAPS, "the class"),
    "a value for what is missing": (np.where(CLASS == 1, 0.0, NOISE[:, 1]), "the class b"),
}


@pytest.mark.parametrize("kind", TELLING)
def test_a_column_that_tells_the_class_is_named_and_stays(kind):
    column, what = TELLING[kind]
    X = np.stack([NOISE[:, 0], column], 1)
    found = telling_columns(X[SHUFFLE], CLASS[SHUFFLE], "abc")
    assert found == {1: what}


def test_columns_that_nearly_tell_the_class_are_features():
    shares = np.where((CLASS == 1) & (np.arange(ROWS) % 9 > 0), 0.0, NOISE[:, 1])
    X = np.stack([NOISE[:, 0], 1.5 * CLASS + NOISE[:, 1], shares, np.arange(ROWS) % 7], 1)
    copies = np.tile(X, (4, 1)), np.tile(CLASS, 4)
    for rows, labels in ((X, CLASS), copies):
        assert telling_columns(rows, labels, "abc") == {}


#: What is done to the test rows of noise alone, and whether a note says so.
MOVED = {
    "another unit in two of three columns": (
        lambda X: X * [1, 255, 255],
        "column 2 of 3, of 2 such",
    ),
    "a column that is not centred": (
        lambda X: X + np.array([0, 0, 50]),
        "column 3 of 3, of 1 such",
    ),
    "somewhat wider": (lambda X: 3 * X + 2, None),
    "one outlier": (lambda X: X + 40 * np.eye(len(X), 3), None),
}


@pytest.mark.parametrize("kind", MOVED)
@pytest.mark.parametrize("sides", [(), (4, 4)])
def test_test_rows_of_another_scale_are_said(kind, sides, tmp_path):
    move, words = MOVED[kind]
    X = np.random.default_rng(0).normal(size=(ROWS, *sides, 3))
    mask = np.arange(ROWS) % 4 == 0
    X[mask] = move(X[mask].reshape(-1, 3)).reshape(X[mask].shape)
    np.savez(tmp_path / "rows.npz", X=X, y=SORTED[SHUFFLE], test=mask)
    notes = "\n".join(load(str(tmp_path / "rows.npz"), 0).notes)
    assert ("deviations of the training rows" in notes) == (words is not None)
    assert (words or "") in notes


def test_two_arrays_that_may_be_the_labels_are_refused(tmp_path):
    np.savez(tmp_path / "case.npz", X=NOISE, y=CLASS, Y=CLASS)
    np.savez(tmp_path / "twice.npz", X=NOISE, y=CLASS)
    with zipfile.ZipFile(tmp_path / "twice.npz", "a") as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        file.writestr("y.npy", file.read("y.npy"))
    (tmp_path / "folder").mkdir()
    for name, array in {"X.npy": NOISE, "y.npy": CLASS, "Y.NPY": CLASS}.items():
        with (tmp_path / "folder" / name).open("wb") as file:
            np.save(file, array)
    for name in ("case.npz", "twice.npz", "folder"):
        with pytest.raises(UserError, match="either may be y; wanted one"):
            load(str(tmp_path / name), 0)


def test_arrays_that_decide_nothing_are_named(tmp_path):
    np.savez(tmp_path / "rows.npz", X=NOISE, y=CLASS, test_mask=CLASS == 1)
    assert "rows.npz: not read: test_mask" in load(str(tmp_path / "rows.npz"), 0).notes


@pytest.mark.parametrize("other", ["a\u200b", "a\u00ad", "\ufeffa"])
def test_a_class_with_an_invisible_character_is_no_class_of_its_own(other, tmp_path):
    labels = np.array(["a", other, "c"])[np.arange(ROWS) % 3]
    with pytest.raises(UserError, match="forms of Unicode, or with other spaces"):
        load(save(tmp_path / "rows.csv", {"x": NOISE[:, 0]}, labels), 0)


#: Columns that are the class in other words, whatever their place, type and values.
CODES = {
    "a number": 2.5 * np.unique(SORTED, return_inverse=True)[1] + 1,
    "a truth value of one class": SORTED == "b",
    "a negative number": np.array([-1.0, 1e6, 0.1])[np.unique(SORTED, return_inverse=True)[1]],
    "a number of two classes that share it": np.where(SORTED == "a", 7, 8),
}


@pytest.mark.parametrize("kind", CODES)
def test_a_column_that_is_the_class_in_other_words_is_named(kind, tmp_path):
    """In tables and arrays; it may be meant, so it stays."""
    mixed = {"x": NOISE[SHUFFLE, 0], "code": CODES[kind][SHUFFLE]}
    data = load(save(tmp_path / "rows.csv", mixed, SORTED[SHUFFLE]), 0)
    assert "column 1 has one value per class" in "\n".join(data.notes)
    assert data.X_train.shape[1] == 2
    X = np.stack([mixed["code"], mixed["x"]], 1).astype(float)
    np.savez(tmp_path / "rows.npz", X=X, y=SORTED[SHUFFLE])
    assert "column 0 has one value per class" in "\n".join(
        load(str(tmp_path / "rows.npz"), 0).notes
    )


def test_columns_that_nearly_are_the_class_are_features():
    y = np.repeat([0, 1, 2], 20)
    other = np.where(np.arange(60) == 30, 5.0, y)
    X = np.stack([other, np.ones(60), NOISE[:60, 0], y % 2], 1)
    assert class_codes(X, y) == [3]
    assert class_codes(X[::10], y[::10]) == []  # Two rows per class.


@pytest.mark.parametrize("pair", ["Yes yes", "A a", "straße STRASSE", "no No"])
def test_classes_that_differ_in_capitals_alone_are_named(pair, tmp_path):
    first, second = pair.split()
    labels = np.array([first, second, "other"])[np.arange(ROWS) % 3]
    data = load(save(tmp_path / "rows.csv", {"x": NOISE[:, 0]}, labels), 0)
    assert len(data.classes) == 3
    assert f"{first!r} and {second!r} differ in capitals" in data.notes[1] or (
        f"{second!r} and {first!r} differ in capitals" in data.notes[1]
    )


def test_a_file_whose_only_column_is_a_number_is_refused(tmp_path):
    with pytest.raises(UserError, match="has 'Id' beside its classes"):
        load(save(tmp_path / "rows.csv", {"Id": GAPS}), 0)


@pytest.mark.parametrize(
    ("first", "last"), [('"a', 'b"'), ('"', '"'), ('"a', '"'), ('"a b', 'c,d"')]
)
def test_a_stray_quote_swallows_no_rows(first, last, tmp_path):
    lines = [f"{x:.3f},{z:.3f},{y}" for (x, z), y in zip(NOISE, SORTED, strict=True)]
    lines[39] = lines[39].rpartition(",")[0] + f",{first}"
    lines[69] = lines[69].rpartition(",")[0] + f",{last}"
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(["x,z,label", *lines]))
    with pytest.raises(UserError, match=r"rows\.csv") as raised:
        load(str(path), 0)
    assert "\n" not in str(raised.value)


def test_a_quote_without_an_end_is_refused(tmp_path):
    path = Path(save(tmp_path / "rows.csv", {"x": NOISE[:, 0], "z": NOISE[:, 1]}))
    path.write_text(path.read_text().replace(",b", ',"b', 1))
    with pytest.raises(UserError, match=r"rows\.csv"):
        load(str(path), 0)


def test_words_in_whole_quotes_are_read(tmp_path):
    labels = [f'"{each}, ""of"" it"' for each in SORTED]
    data = load(save(tmp_path / "rows.csv", {"x": NOISE[:, 0], "z": NOISE[:, 1]}, labels), 0)
    assert data.classes == tuple(f'{each}, "of" it' for each in "abc")


@pytest.mark.parametrize(
    ("fields", "words"), [("1,2,a,", "more fields"), ("5", "'z' has no number in 1 rows")]
)
def test_a_line_with_other_fields_is_refused(fields, words, tmp_path):
    path = Path(save(tmp_path / "rows.csv", {"x": NOISE[:, 0], "z": NOISE[:, 1]}))
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:110], fields, *lines[110:]]))
    with pytest.raises(UserError, match=words):
        load(str(path), 0)


BIG = 2**53


@pytest.mark.parametrize(
    "labels",
    [
        np.array([str(BIG), str(BIG + 1)] * 10),
        np.array([BIG, BIG + 1] * 10),
        np.array([2**64 - 1, 2**64 - 2] * 10, np.uint64),
    ],
)
def test_numbers_of_many_digits_are_classes_by_all_of_them(labels):
    (numbers,), classes = number_labels("x", [labels])
    assert len(set(classes)) == 2
    assert [classes[number] for number in numbers] == [str(each) for each in labels]
    assert int(classes[0]) < int(classes[1])


@pytest.mark.parametrize("offset", [25.0, -1e6])
@pytest.mark.parametrize("value", [0.0, 7.5, 1e3])
def test_a_column_that_only_the_test_rows_vary_in_is_refused(value, offset, tmp_path):
    X, mask = np.c_[NOISE, np.full(ROWS, value)], np.arange(ROWS) % 4 == 0
    path = str(tmp_path / "rows.npz")
    np.savez(path, X=X, y=SORTED, test=mask)
    load(path, 0)
    X[4, 2] += offset
    np.savez(path, X=X, y=SORTED, test=mask)
    with pytest.raises(UserError, match="column 2 of X is constant in the training rows"):
        load(path, 0)


def test_a_test_row_of_another_table_is_refused(tmp_path):
    X, mask = NOISE.copy(), np.arange(ROWS) % 4 == 0
    X[8, 1] = 1e7
    np.savez(tmp_path / "rows.npz", X=X, y=SORTED, test=mask)
    with pytest.raises(UserError, match="column 1 of X"):
        load(str(tmp_path / "rows.npz"), 0)


def png(value: int = 0) -> bytes:
    content = io.BytesIO()
    Image.new("L", (8, 8), value).save(content, "PNG")
    return content.getvalue()


def folder(at: Path, names: dict[str, bytes]) -> Path:
    for name, content in names.items():
        (at / "set" / name).parent.mkdir(parents=True, exist_ok=True)
        (at / "set" / name).write_bytes(content)
    return at / "set"


def packed(at: Path, names: list[tuple[str, bytes]]) -> Path:
    with tarfile.open(at / "set.tar", "w") as tar:
        for name, content in names:
            info = tarfile.TarInfo(name)
            info.type = tarfile.DIRTYPE if name.endswith("/") else tarfile.REGTYPE
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return at / "set.tar"


def zipped(at: Path, names: list[tuple[str, bytes]]) -> Path:
    with zipfile.ZipFile(at / "set.zip", "w") as file:
        for name, content in names:
            file.writestr(zipfile.ZipInfo(name), content)
    return at / "set.zip"


FOUR = {f"{each}/{number}.png": png(number) for each in "ab" for number in range(4)}


@pytest.mark.parametrize("target", ["..", ".", "../..", "../b/../b"])
def test_links_to_folders_above_end(target, tmp_path):
    place = folder(tmp_path, FOUR)
    for each in "ab":
        (place / each / "up").symlink_to(target, target_is_directory=True)
    if target.startswith("../b"):  # To the other class, and from there to itself.
        target = "up"
    with pytest.raises(UserError, match="links to a folder that it is in"):
        find_images(place)


def test_a_link_to_a_folder_elsewhere_is_read(tmp_path):
    place = folder(tmp_path, FOUR)
    (place / "b").rename(tmp_path / "elsewhere")
    (place / "b").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    assert find_images(place).classes == ["a", "b"]


def test_an_empty_folder_is_no_class_and_is_said(tmp_path):
    place = folder(tmp_path, FOUR)
    (place / "c" / "d").mkdir(parents=True)
    assert "no classes: c/d" in load(str(place), 0).notes[0]
    for pack in (packed, zipped):
        data = load(str(pack(tmp_path, [*FOUR.items(), ("c/", b"")])), 0)
        assert "empty folders, which are no classes: c" in data.notes[0]
        assert data.classes == ("a", "b")
    parts = ("train", "test")
    train = {f"{part}/{name}": content for part in parts for name, content in FOUR.items()}
    place = folder(tmp_path / "parts", train)
    (place / "train" / "c").mkdir()
    assert "no classes: train/c" in load(str(place), 0).notes[0]
    notes = load(str(folder(tmp_path / "full", FOUR)), 0).notes
    assert not any("no classes" in note for note in notes)


def test_of_many_names_a_note_shows_some(tmp_path):
    place = folder(tmp_path, FOUR)
    for number in range(100):
        (place / f"empty{number:02}").mkdir()
        (place / f"note{number:02}.txt").touch()
    for each in find_images(place).notes:
        assert len(each) < 200
        assert each.endswith(", ...") or each.endswith(", ...)") or "in 2 classes: a, b" in each


def test_the_classes_are_said(tmp_path):
    """Images and their masks, or two versions of one set, train as classes; the note shows them."""
    place = folder(
        tmp_path, {f"{each}/{i}.png": png(i) for each in ("images", "masks") for i in (1, 2)}
    )
    assert "set: 4 pictures in 2 classes: images, masks" in find_images(place).notes


@pytest.mark.parametrize("name", ["c\nd", "\x1b[31mred", "caf\udce9"])
def test_a_name_in_a_note_is_one_that_a_terminal_shows(name, tmp_path):
    (note,) = find_images(folder(tmp_path, {**FOUR, f"{name}/0.png": png()})).notes
    assert repr(name) in note
    assert note.isprintable()


def test_a_class_of_links_to_nothing_is_said(tmp_path):
    place = folder(tmp_path, FOUR)
    (place / "c").mkdir()
    (place / "c" / "0.png").symlink_to("absent.png")
    with pytest.raises(UserError, match=r"folder c has 0\.png and no picture; wanted files: mend"):
        find_images(place)


def test_a_second_name_of_a_file_in_a_tar_is_a_picture(tmp_path):
    """Tar packs it as a link to the first; the folder has both pictures, and so has the tar."""
    place = folder(tmp_path, FOUR)
    (place / "c").mkdir()
    for number in range(4):
        os.link(place / "a" / f"{number}.png", place / "c" / f"{number}.png")
    with tarfile.open(tmp_path / "set.tar", "w") as tar:
        tar.add(place, "set")
    data = [load(str(each), 0) for each in (place, tmp_path / "set.tar")]
    assert data[1].classes == ("a", "b", "c")
    for one, other in zip(data[0][:4], data[1][:4], strict=True):
        np.testing.assert_array_equal(one, other)


PACKS: list[Callable[[Path, list[tuple[str, bytes]]], Path]] = [packed, zipped]


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("pack", PACKS)
def test_archives_say_what_they_hold(pack, tmp_path):
    for again in ("a/0.png", "./a/0.png", "a//0.png"):
        with pytest.raises(UserError, match=r"it holds a/0\.png twice"):
            find_images(pack(tmp_path, [*FOUR.items(), (again, png(9))]))
    outside = [(f"../{name}", content) for name, content in FOUR.items()]
    with pytest.raises(UserError, match=r"\.\./a/0\.png is outside of the archive"):
        find_images(pack(tmp_path, outside))
    with pytest.raises(UserError, match=r"has no picture \(\*\.jpg, "):
        find_images(pack(tmp_path, [("a/notes.txt", b"")]))


def test_one_name_in_two_forms_of_unicode_is_one_class(tmp_path):
    name = "caf\u00e9"
    names = [unicodedata.normalize(form, name) for form in ("NFC", "NFD")]
    place = folder(tmp_path, {f"{each}/{i}.png": png(i) for each in names for i in range(4)})
    with pytest.raises(UserError, match="two forms of Unicode"):
        load(str(place), 0)
    labels = np.array(names)[np.arange(ROWS) % 2]
    with pytest.raises(UserError, match="two forms of Unicode"):
        load(save(tmp_path / "rows.csv", {"x": NOISE[:, 0], "z": NOISE[:, 1]}, labels), 0)
    np.savez(tmp_path / "rows.npz", X=NOISE, y=np.array(["\ufb01", "fi"])[np.arange(ROWS) % 2])
    with pytest.raises(UserError, match="two forms of Unicode"):
        load(str(tmp_path / "rows.npz"), 0)


@pytest.mark.parametrize("content", [b"", b"no picture", png()[:40]])
def test_a_damaged_picture_is_named_by_its_path(content, tmp_path):
    place = folder(tmp_path, {**FOUR, "b/bad.png": content})
    for path in (place, packed(tmp_path, [*FOUR.items(), ("b/bad.png", content)])):
        with pytest.raises(UserError, match=r"b/bad\.png") as raised:
            load(str(path), 0)
        assert "0x" not in str(raised.value)


@pytest.mark.parametrize(
    ("y", "words"),
    [
        (np.where(SOME == 1, np.nan, SOME), "20 rows without a label"),
        (np.where(SOME == 1, np.inf, SOME), r"20 rows .* \(inf\)"),
        (np.where(SOME == 1, 1e19, SOME), r"20 rows .* \(1e\+19\)"),
    ],
)
def test_numbers_that_are_no_labels_are_named(y, words, tmp_path):
    np.savez(tmp_path / "x.npz", X=np.random.default_rng(0).normal(size=(60, 3)), y=y)
    with pytest.raises(UserError, match=words):
        load(str(tmp_path / "x.npz"), 0)


@pytest.mark.parametrize("error", ["#REF!", "#DIV/0!", "#VALUE!", "#NAME?", "#NUM!", "#NULL!"])
def test_errors_of_a_spreadsheet_are_no_class(error, tmp_path):
    rows = "".join(f"{i * i},{7 * i % 11},{error if i % 2 else 'a'}\n" for i in range(20))
    (tmp_path / "x.csv").write_text(f"u,v,label\n{rows}")
    with pytest.raises(UserError, match="10 rows without a label"):
        load(str(tmp_path / "x.csv"), 0)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("suffix", ["csv", "npz"])
def test_no_warning_comes_before_the_refusal_of_an_infinite_column(value, suffix, tmp_path):
    """Tests take warnings for errors, which would come in place of the refusal."""
    X = np.where(np.arange(ROWS)[:, None] // 4 % 2 == [0, 2], value, NOISE)
    save(tmp_path / "rows.csv", {"x": X[:, 0], "z": X[:, 1]})
    np.savez(tmp_path / "rows.npz", X=X, y=SORTED)
    with pytest.raises(UserError, match=r"no NaN"):
        load(str(tmp_path / f"rows.{suffix}"), 0)


def test_a_name_of_data_that_is_a_folder_too_is_said(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert load("digits", 0).notes == ()
    (tmp_path / "digits").mkdir()
    assert "./digits" in load("digits", 0).notes[-1]
