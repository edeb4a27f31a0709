"""A full disk: one line of error, and old files stay complete."""

import contextlib
import gc
import resource
import warnings

import jax.numpy as jnp
import numpy as np
import pytest

from experiments.errors import UserError
from experiments.runs.arrays import checksums, flatten
from experiments.runs.checkpoint_settings import CheckpointSettings
from experiments.runs.checkpoints import Checkpoints
from experiments.runs.files import prepare_folder, write_whole
from experiments.runs.keeper import keeping


@pytest.fixture(autouse=True)
def _writers_are_gone():
    """Orbax leaves writers that never began, and Python warns of them when it collects them."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()


@contextlib.contextmanager
def full_disk(room):
    """Keeps every file of this process below a size."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_file_is_whole_or_as_it_was(tmp_path):
    path = tmp_path / "results.csv"
    write_whole(path, "before")
    with full_disk(4096), pytest.raises(UserError, match=r"cannot write .*results.csv") as error:
        write_whole(path, "x" * 10_000)
    assert "\n" not in str(error.value)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_found_before_the_work(tmp_path):
    prepare_folder(tmp_path / "out")
    with full_disk(4096), pytest.raises(UserError, match=r"cannot write to .*out: .*another --out"):
        prepare_folder(tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())


def test_a_checkpoint_is_whole_or_not_there(tmp_path):
    state = {"x": jnp.arange(1 << 16, dtype=jnp.float32)}
    record = {"config": {}, "history": []}
    with Checkpoints(str(tmp_path)) as checkpoints:
        checkpoints.save(1, state, record)
    with (
        full_disk(4096),
        pytest.raises(UserError, match="cannot write checkpoints to") as error,
        Checkpoints(str(tmp_path)) as checkpoints,
    ):
        checkpoints.save(2, state, record)
    assert "free it or change --checkpoint-dir" in str(error.value)
    with Checkpoints(str(tmp_path)) as checkpoints:
        assert checkpoints.epochs == [1]
        blank = {"x": jnp.zeros(1 << 16)}
        np.testing.assert_array_equal(checkpoints.state(1, blank)["x"], state["x"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1"]


@pytest.mark.kept("200", "1024")
@pytest.mark.parametrize("room", [200, 300, 400, 600, 1024, 2048])
def test_a_full_disk_is_one_line(room, tmp_path):
    """Writes that are under way when one fails print no traces, which are errors in tests."""
    state = {"x": jnp.arange(1 << 13, dtype=jnp.float32), "y": jnp.ones(7)}
    settings = CheckpointSettings(str(tmp_path))
    checksums(flatten(state))  # compiled while the tests' own programs still have room
    with (
        pytest.raises(UserError, match="cannot write") as error,
        keeping(settings, {}, 2) as keeper,
        full_disk(room),
    ):
        all(keeper.checkpoints.save(epoch, state, {}) is None for epoch in (1, 2))
    assert "\n" not in str(error.value)
