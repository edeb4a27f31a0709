"""The committed runs of mechanisms: devices, processes, checkpoints, records."""

import csv
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "experiments" / "results" / "mechanisms"
MEASURES = ("train_loss", "train_accuracy", "test_loss", "test_accuracy")


def measures(name, method):
    """Returns the measures of a method's seeds."""
    with (FOLDER / name / "results.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["method"] == method]
    assert rows
    return [float(row[measure]) for row in rows for measure in MEASURES]


@pytest.mark.parametrize(
    ("method", "one", "other"),
    [("cwo", "jit", "shard_map"), ("cwo", "jit", "pmap"), ("bn", "shard_map", "pmap")],
)
def test_entries_agree(method, one, other):
    assert measures(one, method) == pytest.approx(measures(other, method), rel=1e-3)


def test_batch_normalization_uses_the_rows_of_a_device_outside_of_jit():
    assert measures("jit", "bn") != pytest.approx(measures("pmap", "bn"), rel=1e-2)


def test_two_processes_end_where_two_devices_of_one_process_do():
    alone = measures("jit", "cwo")[: len(MEASURES)]
    assert measures("processes", "cwo") == pytest.approx(alone, rel=1e-4)


def test_a_resumed_training_ends_where_one_without_a_stop_does():
    assert measures("checkpoints", "cwo") == measures("checkpoints-whole", "cwo")


@pytest.mark.parametrize("method", ["bn", "cwo"])
def test_trainings_on_records_end_above_a_guess(method):
    accuracies = measures("tfds", method)[MEASURES.index("test_accuracy") :: len(MEASURES)]
    assert len(accuracies) == 3
    assert np.mean(accuracies) > 0.1
