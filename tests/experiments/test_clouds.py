"""Clouds of points from meshes and HDF5 files: their order, and the number of points."""

from pathlib import Path

import h5py
import numpy as np
import pytest

from experiments.data.clouds import into_unit_ball, read_off, sample, upright
from experiments.data.load import describe_sources, load

#: A right triangle of area 2 at z = 0, and one of area 6 at z = 1.
VERTICES = [(0, 0, 0), (2, 0, 0), (0, 2, 0), (0, 0, 1), (3, 0, 1), (0, 4, 1)]
FACES = [(0, 1, 2), (3, 4, 5)]


def off(header: str = "OFF\n") -> str:
    lines = [f"{len(VERTICES)} {len(FACES)} 0", *(" ".join(map(str, v)) for v in VERTICES)]
    return header + "\n".join([*lines, *("3 " + " ".join(map(str, f)) for f in FACES)]) + "\n"


@pytest.mark.parametrize("header", ["OFF\n", "OFF"])
def test_files(tmp_path: Path, header: str) -> None:
    file = tmp_path / "x.off"
    file.write_text(off(header))
    vertices, faces = read_off(file)
    np.testing.assert_array_equal(vertices, VERTICES)
    np.testing.assert_array_equal(faces, FACES)


def test_points_are_uniform_by_area() -> None:
    count = 8000
    points = sample(np.array(VERTICES, float), np.array(FACES), count, np.random.default_rng(0))
    top = points[:, 2] == 1
    assert abs(top.mean() - 6 / 8) < 4 * np.sqrt(0.75 * 0.25 / count)
    x, y = points[top, 0] / 3, points[top, 1] / 4
    assert (x >= 0).all()
    assert (y >= 0).all()
    assert (x + y <= 1 + 1e-12).all()
    # Mean 1/3, variance 1/18 and covariance -1/36 of the uniform distribution on the triangle.
    error = 4 * np.sqrt(1 / 18 / top.sum())
    assert abs(x.mean() - 1 / 3) < error
    assert abs(y.mean() - 1 / 3) < error
    assert abs(np.cov(x, y)[0, 1] + 1 / 36) < error * np.sqrt(1 / 18)


def test_up_is_the_second_coordinate() -> None:
    """The rotation, not a reflection, takes z to y."""
    turned = upright(np.eye(3))
    np.testing.assert_array_equal(turned[2], [0, 1, 0])
    assert np.linalg.det(turned) == 1


def test_clouds_fill_the_unit_ball() -> None:
    cloud = np.random.default_rng(0).normal(size=(50, 3)) + 7
    got = into_unit_ball(cloud)
    np.testing.assert_allclose(got.mean(0), 0, atol=1e-12)
    assert np.linalg.norm(got, axis=1).max() == pytest.approx(1, rel=1e-12)
    ratio = np.ptp(got, axis=0) / np.ptp(cloud, axis=0)
    np.testing.assert_allclose(ratio, ratio[0])


def test_folder(tmp_path: Path) -> None:
    for place in ("chair/train", "chair/test", "bed/train", "bed/test"):
        (tmp_path / place).mkdir(parents=True)
        for index in range(2):
            (tmp_path / place / f"{index}.off").write_text(off())
    data = load(str(tmp_path), seed=3)
    assert data.X_train.shape == data.X_test.shape == (4, 1024, 3)
    assert data.X_train.dtype == np.float32
    np.testing.assert_array_equal(data.y_train, [0, 0, 1, 1])
    assert data.num_classes == 2
    np.testing.assert_allclose(np.linalg.norm(data.X_test, axis=-1).max(1), 1, rtol=1e-6)
    # Two heights, the second coordinates, and no standardization that would stretch them apart.
    assert all(len(np.unique(cloud[:, 1].round(5))) == 2 for cloud in data.X_train)
    np.testing.assert_array_equal(data.X_train, load(str(tmp_path), seed=3).X_train)
    assert not np.array_equal(data.X_train, load(str(tmp_path), seed=4).X_train)
    assert "CLASS/train|test/*.off" in describe_sources()


POINTS = 1500
RANDOM = np.random.default_rng(0)
CLOUDS = {
    name: RANDOM.uniform(-1, 1, (rows, POINTS, 3)).astype(np.float32)
    for name, rows in (("train0", 2), ("train1", 3), ("test0", 2))
}
LABELS = {"train0": [1, 0], "train1": [2, 2, 0], "test0": [0, 2]}


def write(folder: Path) -> Path:
    """Writes files like ModelNet40's, whose lists name the files from a folder further up."""
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
