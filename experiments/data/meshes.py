"""Reading meshes ``CLASS/train|test/*.off``, as ModelNet40 comes, as clouds of points."""

from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from experiments.data.dataset import Dataset, check_trained, make_dataset
from experiments.errors import UserError
from experiments.reading import reading

#: The points of a cloud.
POINTS = 1024

WAY_OUT = "mend it or take it out"

Vertices = Float[np.ndarray, "vertices 3"]
Faces = Int[np.ndarray, "faces 3"]
Cloud = Float[np.ndarray, "points 3"]


def holds_meshes(path: Path) -> bool:
    """Whether a folder has meshes to train on."""
    return any(path.glob("*/train/*.off"))


def load_meshes(path: Path, seed: int) -> Dataset:
    """A dataset of clouds (rows, points, 3) from a folder ``CLASS/train|test/*.off``.

    Args:
        path: the folder; the classes are in alphabetical order.
        seed: decides the points.

    Source: Ikami et al. 2021, section 4.2.1; Wang et al. 2019, section 5.1.
    """
    rng = np.random.default_rng(seed)
    classes = sorted({file.parts[-3] for file in path.glob("*/train/*.off")})
    tested = {file.parts[-3] for file in path.glob("*/test/*.off")}
    check_trained(path.name, "meshes", classes, tested)
    splits = []
    for part in ("train", "test"):
        files = [
            (i, file) for i, label in enumerate(classes) for file in _meshes(path, label, part)
        ]
        if not files:
            raise UserError(f"{path.name} has no meshes CLASS/{part}/*.off; both parts need some.")
        clouds = [
            into_unit_ball(upright(sample(*read_off(file), POINTS, rng))) for _, file in files
        ]
        splits.append((np.stack(clouds).astype(np.float32), np.array([i for i, _ in files])))
    train, test = splits
    return make_dataset(path.name, train, test, len(classes))


def _meshes(path: Path, label: str, part: str) -> list[Path]:
    return sorted((path / label / part).glob("*.off"))


def read_off(path: Path) -> tuple[Vertices, Faces]:
    """The vertices and the triangles of an OFF file, also where its first line break is missing."""
    with reading(f"the mesh {path}", f"wanted an OFF file of triangles: {WAY_OUT}"):
        text = path.read_text(encoding="utf-8")
        kind, numbers = text[:3], text[3:].split()
        vertices, faces = int(numbers[0]), int(numbers[1])
        if kind != "OFF" or vertices < 1 or faces < 1:
            raise ValueError("it is no OFF file of triangles")
        end = 3 + 3 * vertices
        places = np.array(numbers[3:end], float).reshape(vertices, 3)
        sides, corners = np.split(
            np.array(numbers[end : end + 4 * faces], int).reshape(faces, 4), [1], axis=1
        )
    if (sides != 3).any() or corners.min() < 0 or corners.max() >= vertices:
        raise UserError(
            f"{path} is no OFF file of triangles; wanted faces 3 i j k of vertices 0 to "
            f"{vertices - 1}: {WAY_OUT}."
        )
    return _solid(path, places, corners)


def _solid(path: Path, vertices: Vertices, faces: Faces) -> tuple[Vertices, Faces]:
    """The mesh itself; raises UserError where no point of it could be drawn."""
    with np.errstate(over="ignore", invalid="ignore"):
        area = _areas(vertices, faces).sum()
    if not 0 < area < np.inf:
        raise UserError(
            f"the mesh {path} has the area {area:g}; wanted finite vertices, and triangles of "
            f"some area: {WAY_OUT}."
        )
    return vertices, faces


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
