"""Datasets: what is read, how it is split and standardized, and every way that fails."""

import tarfile

import numpy as np
import pytest
from PIL import Image

from experiments.data.describe import describe_sources
from experiments.data.load import load
from experiments.errors import UserError

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(3.0, 2.0, (40, 5))
y = RANDOM.integers(0, 3, 40)


def save(folder, **arrays):
    path = folder / "toy.npz"
    np.savez(path, **arrays)
    return str(path)


def test_digits_are_whole_and_split_by_the_seed():
    first, again, other = load("digits", 0), load("digits", 0), load("digits", 1)
    assert first.X_train.shape == (1348, 8, 8, 1)
    assert first.X_test.shape == (449, 8, 8, 1)
    assert set(first.y_train) == set(range(10))
    assert first.X_train.dtype == np.float32
    assert first.y_train.dtype == np.int32
    for mine, same, different in zip(first[:4], again[:4], other[:4], strict=True):
        np.testing.assert_array_equal(mine, same)
        assert not np.array_equal(mine, different)
    # No image is in both splits: the classes of both add up to those of the file.
    counts = np.bincount(first.y_train) + np.bincount(first.y_test)
    np.testing.assert_array_equal(counts, np.bincount(other.y_train) + np.bincount(other.y_test))


def test_features_are_standardized_on_the_training_rows(tmp_path):
    wide = np.column_stack([X, np.full(40, 7e6)])
    wide[30:, 5] = 7e6 + 2
    data = load(
        save(tmp_path, X_train=wide[:30], y_train=y[:30], X_test=wide[30:], y_test=y[30:]), 0
    )
    np.testing.assert_allclose(data.X_train[:, :5].mean(0), 0, atol=1e-6)
    np.testing.assert_allclose(data.X_train[:, :5].std(0), 1, atol=1e-6)
    expected = (wide[30:, :5] - wide[:30, :5].mean(0)) / wide[:30, :5].std(0)
    np.testing.assert_allclose(data.X_test[:, :5], expected, rtol=1e-4, atol=1e-5)
    # A column that is constant in training is centred and not divided by its deviation of 0.
    np.testing.assert_array_equal(data.X_train[:, 5], 0.0)
    np.testing.assert_array_equal(data.X_test[:, 5], 2.0)


def test_images_are_standardized_by_channel(tmp_path):
    images = RANDOM.integers(0, 256, (40, 4, 6, 3), dtype=np.uint8)
    data = load(save(tmp_path, X=images, y=y), 0)
    assert data.X_train.shape == (30, 4, 6, 3)
    np.testing.assert_allclose(data.X_train.mean((0, 1, 2)), 0, atol=1e-6)
    np.testing.assert_allclose(data.X_train.std((0, 1, 2)), 1, atol=1e-6)
    assert data.X_train.std((0, 1)).min() < 0.99


def test_grey_images_get_a_channel(tmp_path):
    assert load(save(tmp_path, X=RANDOM.normal(size=(40, 4, 6)), y=y), 0).X_train.shape[1:] == (
        4,
        6,
        1,
    )


def test_split_rules(tmp_path):
    masks = RANDOM.random((4, 40)) < 0.3
    data = load(save(tmp_path, X=X, y=y, test=masks[0]), seed=5)
    np.testing.assert_array_equal(data.y_test, y[masks[0]])
    np.testing.assert_array_equal(data.y_train, y[~masks[0]])
    path = save(tmp_path, X=X, y=y, test4=masks)
    for seed in (1, 6):
        np.testing.assert_array_equal(load(path, seed).y_test, y[masks[seed % 4]])
    path = save(tmp_path, X=X, y=y)
    assert len(load(path, 0).y_test) == 10
    assert load(path, 0).num_classes == 3
    assert not np.array_equal(load(path, 0).X_test, load(path, 1).X_test)


MASK = np.arange(40) < 10
SQUARE = RANDOM.integers(0, 256, (40, 8, 8, 3), dtype=np.uint8)
FAILURES = {
    "lengths": ({"X": X, "y": y[:39]}, "one label for each row"),
    "objects": ({"X": X.astype(object), "y": y}, "never unpickled"),
    "text": ({"X": X.astype(str), "y": y}, "wanted numbers"),
    "fractions": ({"X": X, "y": y + 0.5}, "integer class numbers"),
    "columns": ({"X": X, "y": np.stack([y, y], 1)}, "one label for each row"),
    "negative": ({"X": X, "y": y - 1}, "start at -1"),
    "huge": ({"X": X, "y": y + 1000}, "np.unique"),
    "huge split": ({"X_train": X, "y_train": y + 1000, "X_test": X, "y_test": y}, "np.unique"),
    "unseen": (
        {"X_train": X, "y_train": np.minimum(y, 1), "X_test": X, "y_test": y},
        "training rows",
    ),
    "missing": ({"X": X, "z": y}, "holds X, z; wanted X_train"),
    "mask type": ({"X": X, "y": y, "test": MASK.astype(int)}, "wanted bool"),
    "mask shape": ({"X": X, "y": y, "test4": MASK}, r"wanted bool of shape \(4, 40\)"),
    "no training": ({"X": X, "y": y, "test": np.ones(40, bool)}, "no training rows"),
    "no test": ({"X": X, "y": y, "test": np.zeros(40, bool)}, "no test rows"),
    "nan": ({"X": np.where(X > 3, np.nan, X), "y": y}, "NaN"),
    "rank": ({"X": X[:, 0], "y": y}, r"wanted \(rows, features\)"),
    "bytes beside floats": (
        {"X_train": SQUARE, "y_train": y, "X_test": SQUARE / 255, "y_test": y},
        "X_train has type uint8 and X_test float64",
    ),
    "channels first": ({"X": SQUARE.transpose(0, 3, 1, 2), "y": y}, r"X.transpose\(0, 2, 3, 1\)"),
    # Seconds since 1970: float32 numbers there are 128 apart.
    "times": (
        {"X": np.column_stack([X, 1.7e9 + np.arange(40)]), "y": y},
        "column 5 of X is from 1.7e\\+09 to 1.70000004e\\+09",
    ),
    "widths": ({"X_train": X, "y_train": y, "X_test": X[:, 1:], "y_test": y}, "make them equal"),
}


@pytest.mark.parametrize("case", FAILURES)
def test_what_is_wrong_with_a_file_is_said(tmp_path, case):
    arrays, message = FAILURES[case]
    with pytest.raises(UserError, match=message) as error:
        load(save(tmp_path, **arrays), 0)
    assert "\n" not in str(error.value)


def test_what_is_not_there_is_said(tmp_path):
    with pytest.raises(UserError, match="did you mean 'digits'"):
        load("digit", 0)
    with pytest.raises(UserError, match="there is no file"):
        load(str(tmp_path / "absent.npz"), 0)
    with pytest.raises(UserError, match="there is no folder"):
        load(str(tmp_path / "absent"), 0)
    (tmp_path / "text.npz").write_text("not a zip file")
    with pytest.raises(UserError, match="cannot read"):
        load(str(tmp_path / "text.npz"), 0)


def make_images(folder, skip=()):
    for part, label, name in [
        (part, label, f"{i}.png") for part in ("train", "test") for label in "ab" for i in range(3)
    ]:
        if (part, label) not in skip:
            (folder / part / label).mkdir(parents=True, exist_ok=True)
            pixels = RANDOM.integers(0, 256, (4, 4, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / part / label / name)


def test_folder_and_tar_of_images_are_the_same(tmp_path):
    make_images(tmp_path / "toy")
    with tarfile.open(tmp_path / "toy.tar.xz", "w:xz") as tar:
        for part in ("train", "test"):
            tar.add(tmp_path / "toy" / part, f"./{part}")
    folder, tar = load(str(tmp_path / "toy"), 0), load(str(tmp_path / "toy.tar.xz"), 0)
    assert folder.X_train.shape == (6, 4, 4, 3)
    assert folder.num_classes == 2
    assert sorted(folder.y_test) == [0, 0, 0, 1, 1, 1]
    rows = [np.column_stack([d.X_train.reshape(6, -1), d.y_train]) for d in (folder, tar)]
    np.testing.assert_allclose(*(sorted(row.tolist()) for row in rows), atol=1e-6)


def test_wrong_images_are_named(tmp_path):
    make_images(tmp_path / "untested", skip=[("test", "a"), ("test", "b")])
    with pytest.raises(UserError, match="no images test/CLASS"):
        load(str(tmp_path / "untested"), 0)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="empty has no images train/CLASS"):
        load(str(tmp_path / "empty"), 0)
    make_images(tmp_path / "unseen", skip=[("train", "b")])
    with pytest.raises(UserError, match="has no training images"):
        load(str(tmp_path / "unseen"), 0)
    make_images(tmp_path / "sizes")
    Image.fromarray(np.zeros((5, 4, 3), np.uint8)).save(tmp_path / "sizes/test/a/9.png")
    with pytest.raises(UserError, match=r"test/a/9.png has shape \(5, 4, 3\)"):
        load(str(tmp_path / "sizes"), 0)
    deep = np.full((4, 4), 40_000, np.uint16)
    Image.fromarray(deep).save(tmp_path / "sizes/test/a/9.png")
    with pytest.raises(UserError, match=r"test/a/9\.png: its pixels are of more than 8 bits"):
        load(str(tmp_path / "sizes"), 0)
    (tmp_path / "sizes/test/a/9.png").write_bytes(b"no image")
    with pytest.raises(UserError, match="cannot read the image"):
        load(str(tmp_path / "sizes"), 0)
    (tmp_path / "broken.tar").write_bytes(b"no tar")
    with pytest.raises(UserError, match="cannot read"):
        load(str(tmp_path / "broken.tar"), 0)


def test_sources_are_described():
    text = describe_sources()
    assert "digits" in text
    assert "1348 training and 449 test rows of 8 x 8 x 1" in text
    assert "test4" in text


def test_means_of_many_rows_are_taken_in_float64(tmp_path):
    """A sum of 200,000 numbers near 3,000 is 6e8, where float32 numbers are 64 apart."""
    X = (3000 + RANDOM.normal(size=(200_000, 2))).astype(np.float32)
    y = np.arange(len(X)) % 2
    np.savez(tmp_path / "many.npz", X_train=X, y_train=y, X_test=X[:10], y_test=y[:10])
    data = load(str(tmp_path / "many.npz"), 0)
    # Near 3,000 the mean itself, as a float32 number, is right to 1.2e-4.
    np.testing.assert_allclose(np.float64(data.X_train).mean(0), 0, atol=3e-4)
    np.testing.assert_allclose(np.float64(data.X_train).std(0), 1, atol=1e-4)


def test_extra_images_are_training_images(tmp_path):
    make_images(tmp_path / "toy")
    pixels = np.full((4, 4, 3), 200, np.uint8)
    (tmp_path / "toy/extra/b").mkdir(parents=True)
    Image.fromarray(pixels).save(tmp_path / "toy/extra/b/9.png")
    with tarfile.open(tmp_path / "toy.tar", "w") as tar:
        tar.add(tmp_path / "toy", "toy")
    for name in ("toy", "toy.tar"):
        data = load(str(tmp_path / name), 0)
        assert len(data.X_train) == 7
        assert sorted(data.y_train) == [0, 0, 0, 1, 1, 1, 1]
        assert len(data.X_test) == 6


def table(folder, text):
    path = folder / "mine.csv"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("header", ["a,b,kind", "Label,a,b", "a,Y,b"])
def test_a_csv_file_is_split_as_the_same_arrays_are(tmp_path, header):
    """The classes are in the column of that name, or in the last, as words or as numbers."""
    place = next(i for i, each in enumerate(header.split(",")) if each not in ("a", "b"))
    words, lines = ["ash", "birch", "cedar"], [header]
    for row, label in zip(X[:, :2], y, strict=True):
        values = [repr(float(value)) for value in row]
        lines.append(",".join([*values[:place], words[label], *values[place:]]))
    found = load(table(tmp_path, "\n".join(lines)), seed=3)
    expected = load(save(tmp_path, X=X[:, :2], y=y), seed=3)
    for mine, theirs in zip(found[:4], expected[:4], strict=True):
        np.testing.assert_array_equal(mine, theirs)
    numbers = "\n".join(lines)
    for word, number in zip(words, ("10", "9", "11"), strict=True):  # 9 comes first, not 10.
        numbers = numbers.replace(word, number)
    np.testing.assert_array_equal(
        load(table(tmp_path, numbers), seed=3).y_train, np.array([1, 0, 2])[expected.y_train]
    )


WRONG_TABLES = {
    "": "begins with '', before 0 rows; wanted the names",
    "a,b": "before 0 rows",
    "1,2\n3,4": "begins with '1,2', before 1 rows",
    "a,label\n1,0\n2\n": "row 2 has 1 values; wanted 2",
    "label,a,y\n0,1,0\n": "several columns for classes, label, y",
    "a,label\n1,0\n,0\n": "the column 'a' has '' in row 2; wanted numbers",
    "a,label\n1,0\nred,0\n": "the column 'a' has 'red' in row 2; wanted numbers",
    "label,price\n1,0.5\n2,0.5\n": "2 different values in 2 rows",
    "a,b\n1,0.5\n2,0.5\n": "the column 'b' is taken for the classes",
    "a,label\n1,0\n2,\n1,0\n2,\n": "wanted words or whole numbers",
    'a,label\n"1,0\n': "wanted a table in UTF-8, with commas",
}


@pytest.mark.parametrize("text", WRONG_TABLES)
def test_a_csv_file_that_is_no_table_is_refused(tmp_path, text):
    with pytest.raises(UserError) as error:
        load(table(tmp_path, text), seed=0)
    assert WRONG_TABLES[text] in str(error.value)


def test_the_case_of_keys_does_not_matter(tmp_path):
    upper = load(save(tmp_path, X_train=X[:30], y_train=y[:30], X_test=X[30:], y_test=y[30:]), 0)
    lower = load(save(tmp_path, x_train=X[:30], Y_TRAIN=y[:30], x_test=X[30:], Y_test=y[30:]), 0)
    for mine, theirs in zip(lower[:4], upper[:4], strict=True):
        np.testing.assert_array_equal(mine, theirs)
