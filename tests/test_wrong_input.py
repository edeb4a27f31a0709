"""A walk through wrong inputs: each is told in one line of what was got, is wanted, and to do."""

import subprocess
import sys
import zipfile

import numpy as np
import pytest

from experiments.checkpoints.keeper import keeping
from experiments.checkpoints.settings import CheckpointSettings
from experiments.config import Config
from experiments.data.load import load
from experiments.methods.table import METHODS
from experiments.reading import free_memory
from experiments.training.trainer import make_trainer
from tests.experiments.toy import toy_dataset
from tests.wrong import Wrong
from tests.wrong.files import FILES, X, Y
from tests.wrong.flags import FLAGS
from tests.wrong.library import LIBRARY
from tests.wrong.records import RECORDS


def huge(sizes):
    """Asks for a trainer of a network that no memory holds."""
    settings = Config(**sizes, batch_size=16)
    return lambda at: make_trainer(METHODS["none"], settings, toy_dataset())


SIZES = {
    f"a network of {sizes}": Wrong(huge(sizes), ("training a network of", "--width"))
    for sizes in ({"width": 2**20}, {"width": 2**19, "depth": 2})
}

WALK = FLAGS | FILES | RECORDS | SIZES | LIBRARY


@pytest.mark.parametrize("name", WALK)
def test_wrong_input_is_told_in_one_line(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    entry = WALK[name]
    with pytest.raises(entry.error) as raised:
        entry.call(tmp_path)
    assert type(raised.value) is entry.error
    said = str(raised.value)
    for part in entry.named:
        assert part in said
    assert "\n" not in said


#: What the types that annotate the library refuse before it can, while tests check them.
UNANNOTATED = {
    "jaxnorm.center(x, numpy.int64(3))": "ValueError: the kernel has 2 axes, and its fan-in",
    "jaxnorm.sphere_init(radius)": "TypeError: squared_radius is '2' for the init",
    "jaxnorm.nnx.BatchNorm(3, momentum=radius)": "TypeError: momentum is '2'; wanted a number from",
}


def test_types_are_told_where_annotations_are_not_checked():
    lines = [
        "import jaxnorm, jaxnorm.nnx, numpy",
        "x, radius = numpy.ones((4, 3)), '2'",
    ]
    for call in UNANNOTATED:
        lines += [f"try: {call}", "except Exception as e: print(type(e).__name__, e, sep=': ')"]
    program = "\n".join(lines)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert len(said) == len(UNANNOTATED)
    for line, wanted in zip(said, UNANNOTATED.values(), strict=True):
        assert line.startswith(wanted)
        assert "wanted" in line


def test_what_a_file_holds_beside_the_dataset_is_not_read(tmp_path):
    """However damaged it is."""
    path = tmp_path / "toy.npz"
    np.savez(path, X=X, y=Y)
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("junk.npy", b"\x93NUMPY\x01\x00")
    data = load(str(path), 0)
    assert len(data.X_train) + len(data.X_test) == len(Y)


def test_a_folder_is_free_again_after_its_run(tmp_path):
    for _ in range(2):
        with keeping(CheckpointSettings(str(tmp_path)), {}, 1):
            pass
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_some_memory_is_free():
    assert 2**20 < free_memory() < 2**50
