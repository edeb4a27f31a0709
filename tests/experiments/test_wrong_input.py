"""Table of wrong flags, files and records: each error is one line that names them."""

import zipfile
from typing import get_args, get_type_hints

import numpy as np
import pytest

from experiments.bench.compiled.flags import Compiled
from experiments.commands import Bench, Compare, Train
from experiments.config import Config
from experiments.data.load import load
from experiments.data.reading import free_memory
from experiments.errors import UserError
from experiments.methods.table import METHODS
from experiments.ranges import RANGES, check_ranges
from experiments.runs.checkpoint_settings import CheckpointSettings
from experiments.runs.keeper import keeping
from experiments.training.trainer import make_trainer
from tests.experiments.toy import toy_dataset
from tests.experiments.wrong import Wrong
from tests.experiments.wrong.files import FILES, X, Y
from tests.experiments.wrong.flags import FLAGS
from tests.experiments.wrong.records import RECORDS


def huge(sizes):
    """Makes a trainer of a network too large for any memory."""
    settings = Config(**sizes, batch_size=16)
    return lambda at: make_trainer(METHODS["none"], settings, toy_dataset())


SIZES = {
    f"a network of {sizes}": Wrong(huge(sizes), ("training a network of", "--width"))
    for sizes in ({"width": 2**20}, {"width": 2**19, "depth": 2})
}

WALK = FLAGS | FILES | RECORDS | SIZES


# Each of the histories of a checkpoint takes half a second.
@pytest.mark.kept(*(name for name in WALK if not name.startswith("a history of {")))
@pytest.mark.parametrize("name", WALK)
def test_error_names_the_input_in_one_line(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    entry = WALK[name]
    with pytest.raises(UserError) as raised:
        entry.call(tmp_path)
    assert type(raised.value) is UserError
    message = str(raised.value)
    assert [part for part in entry.named if part not in message] == []
    assert "\n" not in message


#: Settings of papers alone: no flags.
HIDDEN = {"rate_decay", "alpha_dropout", "head_dropout", "norm_at"}


@pytest.mark.parametrize("command", [Compare, Train, Bench, Compiled])
def test_every_number_has_a_range_and_its_default_is_in_it(command):
    hints = get_type_hints(command) | get_type_hints(Config)
    numbers = {name for name, hint in hints.items() if {int, float} & {hint, *get_args(hint)}}
    assert numbers - HIDDEN - set(RANGES) == set()
    check_ranges(command(), command())


def test_a_damaged_array_beside_the_dataset_is_not_read(tmp_path):
    path = tmp_path / "toy.npz"
    np.savez(path, X=X, y=Y)
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("junk.npy", b"\x93NUMPY\x01\x00")
    data = load(str(path), 0)
    assert len(data.X_train) + len(data.X_test) == len(Y)


def test_a_run_frees_its_folder_at_the_end(tmp_path):
    for _ in range(2):
        with keeping(CheckpointSettings(str(tmp_path)), {}, 1):
            pass
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_some_memory_is_free():
    assert 2**20 < free_memory() < 2**50
