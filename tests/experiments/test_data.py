"""Datasets: what is read, how it is split and standardized; `wrong/` has what fails."""

import contextlib
import errno
import gzip
import os
import re
import subprocess
import sys
import tarfile
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from experiments.cli import at_home, main
from experiments.commands import Train
from experiments.config import Config
from experiments.data.load import (
    FORMATS,
    SUFFIXES,
    describe_sources,
    load,
    of_one_state,
    unknown_source,
)
from experiments.data.reading import reading
from experiments.errors import UserError
from experiments.runs.checkpoint_settings import CheckpointSettings

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(3.0, 2.0, (40, 5))
y = RANDOM.integers(0, 3, 40)


def save(folder, **arrays):
    path = folder / "toy.npz"
    np.savez(path, **arrays)
    return str(path)


@pytest.mark.parametrize("name", ["toy.npz", "arrays", "digits"])
def test_rows_of_all_seeds_are_of_one_state_of_the_files(name, tmp_path):
    (tmp_path / "arrays").mkdir()
    for key, value in {"X": X, "y": y}.items():
        np.save(tmp_path / "arrays" / f"{key}.npy", value)
    save(tmp_path, X=X, y=y)
    source = name if name == "digits" else str(tmp_path / name)
    of_seed = of_one_state(source, lambda seed: load(source, seed))
    first = of_seed(0)
    (tmp_path / "arrays" / "results.csv").touch()  # Reports may stand there.
    np.testing.assert_array_equal(of_seed(0).X_train, first.X_train)
    np.save(tmp_path / "arrays" / "X.npy", X + 1)
    save(tmp_path, X=X + 1, y=y)
    edited = contextlib.nullcontext() if name == "digits" else pytest.raises(UserError)
    with edited as error:
        of_seed(1)
    assert name == "digits" or "was edited while it was read" in str(error.value)


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
    # Committed results depend on these rows, in this order.
    sums = [zlib.crc32(labels) for labels in (first.y_train, first.y_test)]
    assert sums == [1066395134, 1917732140]
    # No image is in both splits: the classes of both add up to those of the file.
    counts = np.bincount(first.y_train) + np.bincount(first.y_test)
    np.testing.assert_array_equal(counts, np.bincount(other.y_train) + np.bincount(other.y_test))


def test_features_are_standardized_on_the_training_rows(tmp_path):
    # The last column has minutes in seconds since 1970, where float32 numbers are 128 apart.
    wide = np.column_stack([X, np.full(40, 7e6), 1.7e9 + 60 * (7 * np.arange(40) % 40)])
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
    np.testing.assert_allclose(data.X_train[:, 6].std(), 1, atol=1e-2)
    assert abs(data.X_train[:, 6].mean()) < 0.1


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
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.NPY", y)
    (tmp_path / "y.NPY.npy").rename(tmp_path / "y.NPY")
    for mine, theirs in zip(load(str(tmp_path), 0)[:4], load(path, 0)[:4], strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("seed", range(3))
def test_a_drawn_split_has_a_quarter_of_each_class_and_rows_of_all_to_train_on(tmp_path, seed):
    """Also if one class has a single row, which no random quarter of 1,000 rows may take."""
    counts = np.array([1, 2, 3, 40, 154, 800])
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(6), counts))
    data = load(save(tmp_path, X=np.arange(2000.0).reshape(1000, 2), y=labels), seed)
    train, test = (np.bincount(part, minlength=6) for part in (data.y_train, data.y_test))
    np.testing.assert_array_equal(train + test, counts)
    assert (abs(test - counts / 4) <= 1).all()
    assert (train > 0).all()
    assert len(np.unique(np.concatenate([data.X_train, data.X_test]), axis=0)) == 1000


WORDS = np.array(["ash", "elm", "fir"])


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (WORDS[y], ("ash", "elm", "fir")),
        (WORDS[y].astype("S"), ("ash", "elm", "fir")),
        (np.array(["9", "10", "11"])[y], ("9", "10", "11")),
        (y + 1, ("1", "2", "3")),
        (y[:, None] * 1.0, ("0", "1", "2")),
        (np.eye(3)[y], ("0", "1", "2")),
        (np.eye(3, dtype=bool)[y], ("0", "1", "2")),
        (3 * y + 2, ("2", "5", "8")),
    ],
    ids=["words", "bytes", "numerals", "from 1", "a column", "one-hot", "one-hot bool", "gaps"],
)
def test_labels_in_their_usual_forms(tmp_path, labels, classes):
    data = load(save(tmp_path, X=X, y=labels), 0)
    expected = load(save(tmp_path, X=X, y=y), 0)
    assert data.classes == classes
    np.testing.assert_array_equal(data.y_train, expected.y_train)
    np.testing.assert_array_equal(data.y_test, expected.y_test)


def test_two_labels_may_be_any_numbers(tmp_path):
    data = load(save(tmp_path, X=X, y=np.where(y > 0, 1, -1)), 0)
    assert (data.classes, data.num_classes) == (("-1", "1"), 2)


def test_bytes_beside_the_same_numbers_are_one_scale(tmp_path):
    images = RANDOM.integers(0, 256, (40, 4, 4, 3), dtype=np.uint8)
    path = save(tmp_path, X_train=images, y_train=y, X_test=images * 1.0, y_test=y)
    data = load(path, 0)
    np.testing.assert_array_equal(data.X_train, data.X_test)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_a_file_takes_two_and_a_half_times_its_size(tmp_path, kind):
    """In a process of its own: the execution of annotations keeps arguments alive."""
    path = save(tmp_path, X=RANDOM.random((5_000, 500)).astype(kind), y=np.arange(5_000) % 10)
    code = (
        "import tracemalloc; from experiments.data.load import load\n"
        f"tracemalloc.start(); load({path!r}, 0); print(tracemalloc.get_traced_memory()[1])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert int(done.stdout) < 2.5 * os.path.getsize(path)


def test_paths_begin_at_home(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HOME", str(tmp_path))
    save(tmp_path, X=X, y=y)
    (tmp_path / "toy.npz").rename(tmp_path / "TOY.NPZ")
    assert load("~/TOY.NPZ", 0).num_classes == 3
    assert main(["report", "--folder", "~/absent"]) == 2
    assert str(tmp_path / "absent") in capsys.readouterr().err
    checkpoints, config = CheckpointSettings("~/saved"), Config(tensorboard=Path("~/events"))
    flags = at_home(Train(checkpoints=checkpoints, config=config))
    assert flags.checkpoints.checkpoint_dir == str(tmp_path / "saved")
    assert flags.config.tensorboard == tmp_path / "events"


def test_a_folder_and_its_archives_are_the_same(tmp_path):
    """Images in the folder extra are training images too; those in val are test images."""
    counts = {"train": 3, "val": 2, "extra": 1}
    pixels = RANDOM.integers(0, 256, (3, 2, 3, 4, 4, 3), dtype=np.uint8)
    for (part, count), of_part in zip(counts.items(), pixels, strict=True):
        for label, of_class in zip("ab", of_part, strict=True):
            (tmp_path / "toy" / part / label).mkdir(parents=True)
            for i in range(count):
                Image.fromarray(of_class[i]).save(tmp_path / "toy" / part / label / f"{i}.png")
    with tarfile.open(tmp_path / "toy.tar.xz", "w:xz") as tar:
        tar.add(tmp_path / "toy", "./toy")
    with zipfile.ZipFile(tmp_path / "TOY.ZIP", "w") as archive:
        for path in (tmp_path / "toy").glob("*/*/*"):
            archive.write(path, Path("archive", path.relative_to(tmp_path)))
        archive.writestr("__MACOSX/archive/toy/train/a/._0.png", b"a Mac's own")
    train = np.concatenate([pixels[0].reshape(-1, 4, 4, 3), pixels[2, :, 0]])
    expected = (train - train.mean((0, 1, 2))) / train.std((0, 1, 2))
    for name in ("toy", "toy.tar.xz", "TOY.ZIP"):
        data = load(str(tmp_path / name), 0)
        assert (data.classes, sorted(data.y_test)) == (("a", "b"), [0, 0, 1, 1])
        assert data.notes == (f"{name}: 12 pictures in 2 classes: a, b",)
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
    """The classes are in the column of that name, or in the only one of words."""
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
    assert found.classes == ("ash", "birch", "cedar")


def table(separator=",", head="a,b,kind", end="\n", labels=WORDS[y], first=()):
    """X[:, :2] and labels, written as a program would."""
    lines = [head.replace(",", separator)]
    for number, (row, label) in enumerate(zip(X[:, :2], labels, strict=True)):
        cells = [*[each[number] for each in first], *[f"{float(v)!r}" for v in row], label]
        lines.append(separator.join(map(str, cells)))
    return end.join(lines) + end


INDEX = (range(40),)
ORDER = (RANDOM.permutation(40),)


@pytest.mark.parametrize(
    ("name", "content"),
    {
        "plain.csv": table(),
        "UPPER.CSV": table(),
        "tabs.tsv": table("\t"),
        "windows.csv": table(end="\r\n"),
        "marked.csv": table().encode("utf-8-sig"),
        "spaces.csv": table(", "),
        "quoted.csv": re.sub(r"([^,\n]+)", r'"\1"', table()),
        "pandas.csv": table(head=",a,b,kind", first=INDEX),
        "pandas shuffled.csv": table(head=",a,b,kind", first=ORDER),
        "r.csv": table(head='"",a,b,kind', first=([f'"row {i}"' for i in range(40)],)),
        "sorted.csv": table(head="Id,a,b,kind", first=(np.argsort(np.argsort(y)),)),
        "empty.csv": table().replace("\n", "\r\n\r\n", 3) + ",,\n,,\n",
        "rows[1].csv": table(),
        "packed.csv.gz": gzip.compress(table().encode()),
    }.items(),
)
def test_tables_as_programs_write_them(tmp_path, name, content):
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    data = load(str(tmp_path / name), 3)
    expected = load(save(tmp_path, X=X[:, :2], y=y), 3)
    for mine, theirs in zip(data[:4], expected[:4], strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert data.classes == ("ash", "elm", "fir")
    assert ("left out" in data.notes[0]) == (name in LEFT_OUT)


LEFT_OUT = ("pandas.csv", "pandas shuffled.csv", "r.csv", "sorted.csv")


def test_the_column_of_classes(tmp_path):
    """It is the one that --label names, or the one called so, or the only one of words."""
    path = tmp_path / "mine.csv"
    places = RANDOM.permutation(np.arange(40) % 2)
    rows = zip(WORDS[y], X[:, 0], places, strict=True)
    path.write_text("\n".join(["kind,a,place", *(f"{w},{float(v)},{p}" for w, v, p in rows)]))
    assert load(str(path), 0).classes == ("ash", "elm", "fir")
    with pytest.raises(UserError, match="'kind' has no number in 40 rows"):
        load(str(path), 0, label="place")
    path.write_text(path.read_text().replace("ash", "1").replace("elm", "2").replace("fir", "4"))
    with pytest.raises(UserError, match=r"no column for classes, .* name it by --label"):
        load(str(path), 0)
    assert load(str(path), 0, label="kind").classes == ("1", "2", "4")
    path.write_text(path.read_text().replace("kind", "Target"))
    assert load(str(path), 0).classes == ("1", "2", "4")


def test_truth_values_are_features_of_0_and_1(tmp_path):
    (tmp_path / "mine.csv").write_text("a,kind\n" + 4 * "True,ash\nFalse,fir\n")
    data = load(str(tmp_path / "mine.csv"), 0)
    np.testing.assert_array_equal(data.X_train[:, 0] > 0, data.y_train == 0)


def test_the_case_of_keys_does_not_matter(tmp_path):
    upper = load(save(tmp_path, X_train=X[:30], y_train=y[:30], X_test=X[30:], y_test=y[30:]), 0)
    lower = load(save(tmp_path, x_train=X[:30], Y_TRAIN=y[:30], x_test=X[30:], Y_test=y[30:]), 0)
    for mine, theirs in zip(lower[:4], upper[:4], strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_every_format_is_in_help_and_refusals_and_on_its_page():
    root = Path(__file__).parents[2]
    page, words = (
        (root / "docs/quickstart.md").read_text(),
        (root / "experiments/config.py").read_text(),
    )
    assert all(f"`{suffix}`" in page or f"`FILE{suffix}`" in page for suffix in SUFFIXES)
    for each in FORMATS:
        assert each.name.split()[0] in words
        assert each.name in str(unknown_source("x"))
        assert f"\n{each.name}: " in describe_sources()


def test_images_of_arrays_become_means_of_blocks(tmp_path):
    X = np.random.default_rng(0).integers(0, 256, (48, 8, 8, 3)).astype(np.uint8)
    path, y = tmp_path / "photographs.npz", np.arange(48) % 3
    np.savez(path, X_train=X[:36], y_train=y[:36], X_test=X[36:], y_test=y[36:])
    blocks = [X[:, i::2, j::2].astype(float) for i in (0, 1) for j in (0, 1)]
    small = np.round(sum(blocks) / 4)[:36]
    expected = (small - small.mean((0, 1, 2))) / small.std((0, 1, 2))
    np.testing.assert_allclose(load(str(path), 0, resize=4).X_train, expected, rtol=1e-4, atol=1e-5)
    for side in (3, 16):
        with pytest.raises(UserError, match=f"--resize is {side}, and X_train of photographs.npz"):
            load(str(path), 0, resize=side)
