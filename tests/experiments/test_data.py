"""Datasets: what is read, how it is split and standardized; `wrong/` has what fails."""

import errno
import os
import tarfile

import numpy as np
import pytest
from PIL import Image

from experiments.data.load import load
from experiments.errors import UserError
from experiments.reading import reading

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
    assert load(save(tmp_path, X=images[..., 0], y=y), 0).X_train.shape == (30, 4, 6, 1)


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


def test_folder_and_tar_of_images_are_the_same(tmp_path):
    """Images in the folder extra are training images too."""
    counts = {"train": 3, "test": 2, "extra": 1}
    pixels = RANDOM.integers(0, 256, (3, 2, 3, 4, 4, 3), dtype=np.uint8)
    for (part, count), of_part in zip(counts.items(), pixels, strict=True):
        for label, of_class in zip("ab", of_part, strict=True):
            (tmp_path / "toy" / part / label).mkdir(parents=True)
            for i in range(count):
                Image.fromarray(of_class[i]).save(tmp_path / "toy" / part / label / f"{i}.png")
    with tarfile.open(tmp_path / "toy.tar.xz", "w:xz") as tar:
        tar.add(tmp_path / "toy", "./toy")
    train = np.concatenate([pixels[0].reshape(-1, 4, 4, 3), pixels[2, :, 0]])
    expected = (train - train.mean((0, 1, 2))) / train.std((0, 1, 2))
    for name in ("toy", "toy.tar.xz"):
        data = load(str(tmp_path / name), 0)
        assert (data.num_classes, data.y_test.tolist()) == (2, [0, 0, 1, 1])
        found = np.column_stack([data.X_train.reshape(8, -1), data.y_train])
        rows = np.column_stack([expected.reshape(8, -1), [0, 0, 0, 1, 1, 1, 0, 1]])
        np.testing.assert_allclose(sorted(found.tolist()), sorted(rows.tolist()), atol=1e-5)


def test_means_of_many_rows_are_taken_in_float64(tmp_path):
    """A sum of 200,000 numbers near 3,000 is 6e8, where float32 numbers are 64 apart."""
    X = (3000 + RANDOM.normal(size=(200_000, 2))).astype(np.float32)
    y = np.arange(len(X)) % 2
    np.savez(tmp_path / "many.npz", X_train=X, y_train=y, X_test=X[:10], y_test=y[:10])
    data = load(str(tmp_path / "many.npz"), 0)
    # Near 3,000 the mean itself, as a float32 number, is right to 1.2e-4.
    np.testing.assert_allclose(np.float64(data.X_train).mean(0), 0, atol=3e-4)
    np.testing.assert_allclose(np.float64(data.X_train).std(0), 1, atol=1e-4)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.EMFILE])
def test_an_error_of_the_system_is_not_called_a_wrong_format(number):
    error = OSError(number, os.strerror(number))
    with pytest.raises(UserError, match=os.strerror(number)) as told, reading("a", "prepare it"):
        raise error
    assert "prepare it" not in str(told.value)
    with pytest.raises(UserError, match="prepare it"), reading("a", "prepare it"):
        raise OSError("not a picture")  # As Pillow tells of contents.


@pytest.mark.parametrize("header", ["a,b,kind", "Label,a,b", "a,Y,b"])
def test_a_csv_file_is_split_as_the_same_arrays_are(tmp_path, header):
    """The classes are in the column of that name, or in the last, as words or as numbers."""
    place = next(i for i, each in enumerate(header.split(",")) if each not in ("a", "b"))
    words, lines = ["ash", "birch", "cedar"], [header]
    for row, label in zip(X[:, :2], y, strict=True):
        values = [repr(float(value)) for value in row]
        lines.append(",".join([*values[:place], words[label], *values[place:]]))
    (tmp_path / "mine.csv").write_text("\n".join(lines))
    found = load(str(tmp_path / "mine.csv"), seed=3)
    expected = load(save(tmp_path, X=X[:, :2], y=y), seed=3)
    for mine, theirs in zip(found[:4], expected[:4], strict=True):
        np.testing.assert_array_equal(mine, theirs)
    numbers = "\n".join(lines)
    for word, number in zip(words, ("10", "9", "11"), strict=True):  # 9 comes first, not 10.
        numbers = numbers.replace(word, number)
    (tmp_path / "mine.csv").write_text(numbers.replace("\n", "\r\n\r\n", 3))
    found = load(str(tmp_path / "mine.csv"), seed=3)
    np.testing.assert_array_equal(found.y_train, np.array([1, 0, 2])[expected.y_train])


def test_the_case_of_keys_does_not_matter(tmp_path):
    upper = load(save(tmp_path, X_train=X[:30], y_train=y[:30], X_test=X[30:], y_test=y[30:]), 0)
    lower = load(save(tmp_path, x_train=X[:30], Y_TRAIN=y[:30], x_test=X[30:], Y_test=y[30:]), 0)
    for mine, theirs in zip(lower[:4], upper[:4], strict=True):
        np.testing.assert_array_equal(mine, theirs)
