"""TensorFlow Datasets without TensorFlow: read whole, or in batches while training."""

import os
import shutil
import sys

import jax
import numpy as np
import pytest
import tensorflow_datasets as tfds

from experiments.cli import main
from experiments.config import Config
from experiments.data import tfds as sources
from experiments.data.load import load
from experiments.errors import UserError
from experiments.methods.table import METHODS
from experiments.runs.comparison import Comparison
from experiments.runs.spec import rows_digest
from experiments.training.ahead_of_time import AheadOfTime
from experiments.training.fit import fit
from experiments.training.history import NoCheckpoints
from experiments.training.trainer import make_trainer
from tests.experiments.parallel import assert_same, with_keys

RANDOM = np.random.default_rng(0)
IMAGES = {
    part: RANDOM.integers(0, 256, (rows, 4, 4, 1), dtype=np.uint8)
    for part, rows in (("train", 50), ("test", 21))
}
LABELS = {part: RANDOM.integers(0, 3, len(images)) for part, images in IMAGES.items()}


class TinyPictures(tfds.core.GeneratorBasedBuilder):
    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        image = tfds.features.Tensor(shape=(4, 4, 1), dtype=np.uint8)
        features = {"image": image, "label": tfds.features.ClassLabel(num_classes=3)}
        return tfds.core.DatasetInfo(
            builder=self,
            features=tfds.features.FeaturesDict(features),
            supervised_keys=("image", "label"),
        )

    def _split_generators(self, dl_manager):
        return {part: self._generate_examples(part) for part in IMAGES}

    def _generate_examples(self, part):
        for i, (image, label) in enumerate(zip(IMAGES[part], LABELS[part], strict=True)):
            yield i, {"image": image, "label": int(label)}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Returns a folder with the set, written once without TensorFlow."""
    folder = str(tmp_path_factory.mktemp("tfds"))
    TinyPictures(data_dir=folder, file_format="array_record").download_and_prepare()
    return folder


@pytest.fixture
def whole(prepared, monkeypatch):
    """Loads the set in memory, as a small one."""
    monkeypatch.setenv("TFDS_DATA_DIR", prepared)
    return load("tiny_pictures", 0)


@pytest.fixture
def streamed(whole, monkeypatch):
    """Loads the set as a stream, as a large one."""
    monkeypatch.setattr(sources, "IN_MEMORY_BYTES", 0)
    return load("tiny_pictures", 0)


def sorted_rows(X, y):
    """Sorts rows and labels independently of the files' order."""
    rows = np.column_stack([X.reshape(len(X), -1), y])
    return rows[np.lexsort(rows.T)]


def test_a_small_set_is_read_whole(whole):
    assert "tensorflow" not in sys.modules
    assert whole.num_classes == 3
    mean, deviation = IMAGES["train"].mean(), IMAGES["train"].std()
    for part, X, y in (("train", whole.X_train, whole.y_train), ("test", *whole[2:4])):
        expected = sorted_rows((IMAGES[part] - mean) / deviation, LABELS[part])
        np.testing.assert_allclose(sorted_rows(X, y), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("part", ["train", "test"])
def test_some_rows_of_a_stream_are_refused_by_their_flag(streamed, part):
    counts = {"train_rows": None, "test_rows": None, f"{part}_rows": 8}
    with pytest.raises(UserError, match=rf"--{part}-rows is 8, .* streams its {part} rows"):
        streamed.with_rows(**counts)


def test_an_epoch_reads_each_row_once_in_an_order_of_its_own(whole, streamed):
    assert streamed.train_rows == 50

    def epoch(seed, number):
        return [jax.device_get(batch) for batch in streamed.stream.batches(seed, number, 16)]

    first, again, later, other = epoch(1, 0), epoch(1, 0), epoch(1, 1), epoch(2, 0)
    assert [len(y) for _, y in first] == [16, 16, 16]
    for one, same in zip(first, again, strict=True):
        np.testing.assert_array_equal(one[0], same[0])
    for different in (later, other):
        assert not np.array_equal(first[0][0], different[0][0])
    rows = np.concatenate([X.reshape(len(X), -1) for X, _ in first])
    assert len(np.unique(rows, axis=0)) == 48
    assert {row.tobytes() for row in rows} <= {x.tobytes() for x in IMAGES["train"]}


def test_processes_read_their_own_places_of_each_batch(streamed):
    alone = [X for X, _ in streamed.stream.batches(0, 0, 16)]
    sent = []

    def put(batch):
        sent.append(len(batch[1]))
        return batch

    halves = [
        [X for X, _ in streamed.stream.batches(0, 0, 16, own, put)]
        for own in (np.arange(8), np.arange(8, 16))
    ]
    assert set(sent) == {8}
    for whole_batch, one, two in zip(alone, *halves, strict=True):
        np.testing.assert_array_equal(np.concatenate([one, two]), whole_batch)


@pytest.mark.slow
def test_streamed_training_is_training_on_the_same_batches(whole, streamed):
    settings = Config(depth=1, width=4, epochs=2, batch_size=16)
    trainer = make_trainer(METHODS["none"], settings, streamed)
    run = fit(trainer, streamed, 3)
    in_memory = make_trainer(METHODS["none"], settings, whole)
    step = AheadOfTime(in_memory.step)
    state = in_memory.init(np.uint32(3), whole.X_train)
    for number in range(2):
        order = np.random.default_rng([3, number]).permutation(50)[:48].reshape(3, 16)
        seen = trainer.epoch.batch(state._replace(epoch=np.int32(number)), *whole[:2], 2)
        np.testing.assert_allclose(seen[0], whole.X_train[order[2]], rtol=1e-5, atol=1e-6)
        for rows in order:
            state, _ = step(state, with_keys(whole.X_train[rows], whole.y_train[rows]))
        expected = in_memory.evaluate(state, whole.X_test, whole.y_test)
        assert run.curve[number].test_loss == pytest.approx(float(expected.loss), rel=1e-4)
    assert_same(run.state.params, state.params, 1e-4, 1e-5)


def test_the_test_rows_are_evaluated_in_parts_of_any_size(streamed):
    sizes = [len(y) for _, y in streamed.stream.test_batches(8)]
    assert sizes == [8, 8, 5]


def test_rows_that_are_relabelled_outside_of_the_sample_are_other_rows(
    streamed, prepared, tmp_path, monkeypatch
):
    """An edit of the same size changes the file's time, and the sample need not see it."""
    shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    assert rows_digest(load("tiny_pictures", 0)) == rows_digest(streamed)
    file = next(tmp_path.rglob("*train*"))
    os.utime(file, (0, 0))
    assert rows_digest(load("tiny_pictures", 0)) != rows_digest(streamed)


@pytest.mark.slow
def test_a_run_whose_files_are_edited_while_they_are_read_is_not_kept(
    streamed, prepared, tmp_path, monkeypatch
):
    shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    file = next(tmp_path.rglob("*train*"))
    config = Config(dataset="tiny_pictures", depth=1, width=4, epochs=1, batch_size=16)
    comparison = Comparison(config)
    (spec,) = comparison.specs([("none", (), 0)])
    with pytest.raises(UserError, match="its rows differ here from what the command began with"):
        comparison(spec, NoCheckpoints(), lambda line: os.utime(file, (0, 0)))


def test_what_cannot_be_read_is_said_in_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    assert main(["train", "--dataset", "mnist", "--out", str(tmp_path)]) == 2
    err = capsys.readouterr().err
    assert "pip install 'jaxnorm[tfds]'" in err
    assert err.count("\n") == 1


def test_a_file_that_is_missing_is_named(prepared, tmp_path, monkeypatch):
    """The error does not advise to prepare the whole set again, as for a wrong format."""
    folder = tmp_path / "tfds"
    shutil.copytree(prepared, folder)
    next(folder.glob("**/*-test.array_record*")).unlink()
    monkeypatch.setenv("TFDS_DATA_DIR", str(folder))
    with pytest.raises(UserError, match=r"cannot read .*test\.array_record") as error:
        load("tiny_pictures", 0)
    assert "format" not in str(error.value)
