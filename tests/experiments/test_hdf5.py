"""Point clouds in HDF5 files: in the order of the lists, cut, and what is refused."""

import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from experiments.data.describe import describe_sources
from experiments.data.hdf5 import load_clouds
from experiments.data.load import load
from experiments.errors import UserError

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


def replace(name: str, values: object) -> dict[str, object]:
    return {"data": CLOUDS["test0"], "label": np.array([[0], [2]], np.uint8)} | {name: values}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (replace("data", CLOUDS["test0"][:, :100]), r"\(2, 100, 3\).*wanted \(rows, 1024, 3\)"),
        (replace("data", CLOUDS["test0"][..., :2]), r"\(2, 1024, 2\)"),
        (replace("data", np.float32(1)), "cannot read data and label"),
        (replace("label", np.zeros((3, 1), np.uint8)), r"label of \(3, 1\)"),
        (replace("label", np.zeros((2, 1), np.float32)), "labels of type float32"),
        ({"points": CLOUDS["test0"]}, "cannot read data and label"),
    ],
)
def test_other_contents_are_refused(
    tmp_path: Path, content: dict[str, object], message: str
) -> None:
    folder = write(tmp_path / "x")
    with h5py.File(folder / "ply_data_test0.h5", "w") as file:
        for name, values in content.items():
            file[name] = values
    with pytest.raises(UserError, match=message):
        load_clouds(folder)


def test_missing_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path / "x")
    (folder / "ply_data_train0.h5").write_text("no HDF5")
    with pytest.raises(UserError, match=r"cannot read data and label of .*ply_data_train0\.h5"):
        load_clouds(folder)
    (folder / "ply_data_train0.h5").unlink()
    with pytest.raises(UserError, match=r"cannot read data and label of .*ply_data_train0\.h5"):
        load_clouds(folder)
    (folder / "train_files.txt").write_text("ply_data_train1.h5")
    (folder / "test_files.txt").unlink()
    with pytest.raises(UserError, match=r"x has no test_files\.txt that names its HDF5 files"):
        load_clouds(folder)
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(UserError, match=r"pip install 'jaxnorm\[experiments\]'"):
        load_clouds(folder)
