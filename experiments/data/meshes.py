"""Reading meshes ``CLASS/train|test/*.off``, as ModelNet40 comes, as clouds of points."""

from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from experiments.data.dataset import Dataset, check_trained, make_dataset
from experiments.errors import UserError
from experiments.reading import reading

#: The points of a cloud.
POINTS = 1024

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
    train, test = (sorted(path.glob(f"*/{part}/*.off")) for part in ("train", "test"))
    if not train or not test:
        raise UserError(
            f"{path.name} has {len(train)} meshes CLASS/train/*.off and {len(test)} meshes "
            "CLASS/test/*.off; both parts need some."
        )
    classes = sorted({file.parts[-3] for file in train})
    check_trained(path.name, "meshes", classes, (file.parts[-3] for file in test))
    splits = []
    for files in (train, test):
        clouds = [into_unit_ball(upright(sample(*read_off(file), POINTS, rng))) for file in files]
        labels = np.array([classes.index(file.parts[-3]) for file in files])
        splits.append((np.stack(clouds).astype(np.float32), labels))
    return make_dataset(path.name, splits[0], splits[1], len(classes))


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
