"""Point clouds in HDF5 files: in the order of the lists, and cut."""

from pathlib import Path

import h5py
import numpy as np

from experiments.data.describe import describe_sources
from experiments.data.load import load

POINTS = 1500
RANDOM = np.random.default_rng(0)
CLOUDS = {
    name: RANDOM.uniform(-1, 1, (rows, POINTS, 3)).astype(np.float32)
    for name, rows in (("train0", 2), ("train1", 3), ("test0", 2))
}
LABELS = {"train0": [1, 0], "train1": [2, 2, 0], "test0": [0, 2]}


def write(folder: Path) -> Path:
    """As ModelNet40 comes; the lists name the files from a folder further up."""
    folder.mkdir()
    for name, clouds in CLOUDS.items():
        with h5py.File(folder / f"ply_data_{name}.h5", "w") as file:
            file["data"] = clouds
            file["label"] = np.array(LABELS[name], np.uint8)[:, None]
    for part, names in (("train", ("train1", "train0")), ("test", ("test0",))):
        lines = [f"data/{folder.name}/ply_data_{name}.h5\n" for name in names]
        (folder / f"{part}_files.txt").write_text("".join(lines))
    return folder


def test_a_folder(tmp_path: Path) -> None:
    data = load(str(write(tmp_path / "modelnet40")), seed=0)
    assert (data.name, data.num_classes) == ("modelnet40", 3)
    expected = np.concatenate([CLOUDS["train1"], CLOUDS["train0"]])[:, :1024]
    np.testing.assert_array_equal(data.X_train, expected)
    np.testing.assert_array_equal(data.y_train, [2, 2, 0, 1, 0])
    np.testing.assert_array_equal(data.X_test, CLOUDS["test0"][:, :1024])
    assert data.X_train.dtype == np.float32
    assert data.y_test.dtype == np.int32
    assert "train_files.txt" in describe_sources()
