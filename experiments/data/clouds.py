"""Reading clouds of points: meshes ``CLASS/train|test/*.off``, and HDF5 files named in lists."""

import importlib
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from experiments.data.dataset import Dataset, make_dataset
from experiments.data.reading import reading, refuse_too_large
from experiments.errors import UserError

#: The points of a cloud.
POINTS = 1024

Vertices = Float[np.ndarray, "vertices 3"]
Faces = Int[np.ndarray, "faces 3"]
Cloud = Float[np.ndarray, "points 3"]
Clouds = Float[np.ndarray, "rows points 3"]
Labels = Int[np.ndarray, " rows"]

#: The files that name the HDF5 files of each part.
LISTS = ("train_files.txt", "test_files.txt")


def holds_meshes(path: Path) -> bool:
    """Returns True if a folder has meshes to train on."""
    return any(path.glob("*/train/*.off"))


def load_meshes(path: Path, seed: int) -> Dataset:
    """A dataset of clouds (rows, points, 3) from a folder ``CLASS/train|test/*.off``.

    Args:
        path: the folder; the classes are in alphabetical order.
        seed: decides the points.

    Source: Ikami et al. 2021, section 4.2.1; Wang et al. 2019, section 5.1.
    """
    rng = np.random.default_rng(seed)
    train, test = (sorted(path.glob(f"*/{part}/*.off")) for part in ("train", "test"))
    if not train or not test:
        raise UserError(
            f"{path.name} has {len(train)} meshes CLASS/train/*.off and {len(test)} meshes "
            "CLASS/test/*.off; both parts need some."
        )
    names = [file.parts[-3] for file in (*train, *test)]
    classes, y = np.unique(names, return_inverse=True)
    clouds = [
        into_unit_ball(upright(sample(*read_off(file), POINTS, rng))) for file in train + test
    ]
    X, count = np.stack(clouds).astype(np.float32), len(train)
    return make_dataset(
        path.name, (X[:count], y[:count]), (X[count:], y[count:]), classes=tuple(classes)
    )


def read_off(path: Path) -> tuple[Vertices, Faces]:
    """The vertices and the triangles of an OFF file, also where its first line break is missing."""
    with reading(f"the mesh {path}", "wanted an OFF file of triangles: mend it or take it out"):
        text = path.read_text(encoding="utf-8")
        kind, numbers = text[:3], text[3:].split()
        vertices, faces = int(numbers[0]), int(numbers[1])
        end = 3 + 3 * vertices
        places = np.array(numbers[3:end], float).reshape(vertices, 3)
        corners = np.array(numbers[end : end + 4 * faces], int).reshape(faces, 4)
        if kind != "OFF" or (corners[:, 0] != 3).any():
            raise ValueError("it is no OFF file of triangles")
        if not 0 < _areas(places, corners[:, 1:]).sum() < np.inf:
            raise ValueError("its triangles have no area, or none that is finite")
        return places, corners[:, 1:]


def _areas(vertices: Vertices, faces: Faces) -> Float[np.ndarray, " faces"]:
    """Twice the area of each triangle."""
    corner, first, second = (vertices[faces[:, k]] for k in range(3))
    return np.linalg.norm(np.cross(first - corner, second - corner), axis=1)


def sample(vertices: Vertices, faces: Faces, points: int, rng: np.random.Generator) -> Cloud:
    """Points drawn uniformly by area from the triangles."""
    corner, first, second = (vertices[faces[:, k]] for k in range(3))
    first, second = first - corner, second - corner
    areas = _areas(vertices, faces)
    chosen = rng.choice(len(faces), points, p=areas / areas.sum())
    along = rng.uniform(size=(2, points, 1))
    # Half of the parallelogram is the other triangle, turned by half a turn.
    s, t = np.where(along.sum(0) > 1, 1 - along, along)
    return corner[chosen] + s * first[chosen] + t * second[chosen]


def upright(cloud: Cloud) -> Cloud:
    """The z axis, which points up in ModelNet40's meshes, becomes the y axis."""
    x, y, z = cloud.T
    return np.stack([x, z, -y], 1)


def into_unit_ball(cloud: Cloud) -> Cloud:
    """Centred at its mean, and scaled so that the farthest point is at distance 1."""
    cloud = cloud - cloud.mean(0)
    return cloud / np.linalg.norm(cloud, axis=1).max()


def holds_clouds(path: Path) -> bool:
    """Returns True if a folder has lists of HDF5 files."""
    return (path / LISTS[0]).is_file()


def load_clouds(path: Path, seed: int) -> Dataset:
    """A dataset of clouds (rows, points, 3) from a folder of HDF5 files and two lists of them.

    Each file holds ``data`` (rows, points or more, 3) and ``label`` (rows,) or (rows, 1). The files
    of ModelNet40 have y upwards and 2,048 points, in the unit ball already; they stay as they are.

    Args:
        path: the folder.
        seed: not used; the lists name both parts.

    Source: Wang et al. 2019, section 5.1, whose experiments read these files.
    """
    train, test = (_read_part(path / name) for name in LISTS)
    return make_dataset(path.name, train, test)


def _read_part(names: Path) -> tuple[Clouds, Labels]:
    """The clouds and labels of all files of a part, in the order of its list."""
    with reading(names, "wanted the name of an HDF5 file in each line, in UTF-8"):
        lines = filter(str.strip, names.read_text(encoding="utf-8").splitlines())
        # The lists name the files from another folder than their own.
        files = [names.parent / Path(line.strip()).name for line in lines]
        clouds, labels = zip(*map(_read, files), strict=True)
        return np.concatenate(clouds), np.concatenate(labels)


def _read(path: Path) -> tuple[Clouds, Labels]:
    """The clouds of a file, cut to their first points, and their labels."""
    h5py = importlib.import_module("h5py")
    what = f"data and label of {path}"
    way_out = f"wanted coordinates (rows, {POINTS} or more, 3) and one class number a row"
    with reading(what, way_out), h5py.File(path) as file:
        data, labels = file["data"], file["label"]
        size = len(data) * POINTS * 3 * (data.dtype.itemsize + 8)
        refuse_too_large(path, size, "keep fewer rows")
        clouds, numbers = data[:, :POINTS], labels[()].reshape(-1)
        right = clouds.shape == (len(data), POINTS, 3) and numbers.shape == (len(data),)
        if not right or clouds.dtype.kind not in "fiu" or numbers.dtype.kind not in "iu":
            raise ValueError(
                f"data are {clouds.dtype} of {clouds.shape}, label {numbers.dtype} of "
                f"{numbers.shape}"
            )
        return clouds.astype(np.float32), numbers.astype(np.int64)
