"""Meshes of simple solids, which stand in for ModelNet40.

``python -m experiments.data.solids FOLDER`` writes them. Solids are stretched and turned about the
upright axis at random, as a pure function of the seed.
"""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

#: The steps around a solid, and the meshes of each class to train on and to test on.
STEPS, TRAIN_MESHES, TEST_MESHES = 16, 40, 20

Vertices = Float[np.ndarray, "vertices 3"]
Profile = Callable[[np.random.Generator], Float[np.ndarray, "levels 2"]]


def _arc(start: float, end: float, radius: float, centre: float) -> Float[np.ndarray, "levels 2"]:
    """Returns radii and heights along an arc."""
    angles = np.linspace(start, end, STEPS)
    return np.stack([centre + radius * np.cos(angles), radius * np.sin(angles)], 1)


#: Radii and heights of each class's outline, which is turned about the upright axis.
PROFILES: Mapping[str, Profile] = {
    "ball": lambda random: _arc(-np.pi / 2, np.pi / 2, 1.0, 0.0),
    "bowl": lambda random: _arc(-np.pi / 2, random.uniform(-0.3, 0.1), 1.0, 0.0),
    "cone": lambda random: np.array([[0, 0], [1, 0], [0, random.uniform(1, 2)]]),
    "cylinder": lambda random: np.array([[0, 0], [1, 0], [1, 1], [0, 1]]),
    "ring": lambda random: _arc(0, 2 * np.pi, random.uniform(0.2, 0.4), 1.0),
    "vase": lambda random: np.array([[0, 0], [1, 0], [random.uniform(0.2, 0.4), 1], [0.8, 2]]),
}


def solid(name: str, random: np.random.Generator) -> tuple[Vertices, Int[np.ndarray, "faces 3"]]:
    """Returns vertices and triangles of a solid of a class, stretched and turned at random."""
    radii, heights = PROFILES[name](random).T
    angles = random.uniform(0, 2 * np.pi) + np.arange(STEPS) * 2 * np.pi / STEPS
    circle = np.stack([np.cos(angles), np.sin(angles)])
    across = radii[:, None, None] * circle.T
    upright = np.broadcast_to(heights[:, None, None], (len(radii), STEPS, 1))
    vertices = np.concatenate([across, upright], 2).reshape(-1, 3)
    level, step = np.indices((len(radii) - 1, STEPS)).reshape(2, -1)
    here, beside = level * STEPS + step, level * STEPS + (step + 1) % STEPS
    above, across_above = here + STEPS, beside + STEPS
    faces = np.concatenate(
        [np.stack([here, beside, above], 1), np.stack([beside, across_above, above], 1)]
    )
    return vertices * random.uniform(0.7, 1.4, 3), faces


def write_solids(
    folder: Path, train: int = TRAIN_MESHES, test: int = TEST_MESHES, seed: int = 0
) -> None:
    """Writes meshes ``CLASS/train|test/NUMBER.off``, which `load_meshes` reads.

    Args:
        folder: the folder to write into.
        train: the meshes of each class to train on.
        test: the meshes of each class to test on.
        seed: the seed of the shapes.
    """
    random = np.random.default_rng(seed)
    for name in PROFILES:
        for number in range(train + test):
            place = folder / name / ("train" if number < train else "test") / f"{number:04d}.off"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(_as_off(*solid(name, random)), encoding="utf-8")


def _as_off(vertices: Vertices, faces: Int[np.ndarray, "faces 3"]) -> str:
    """Formats a mesh as an OFF file."""
    lines = ["OFF", f"{len(vertices)} {len(faces)} 0"]
    lines += [" ".join(f"{x:.6g}" for x in vertex) for vertex in vertices]
    lines += [" ".join(["3", *map(str, face)]) for face in faces.tolist()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    write_solids(Path(sys.argv[1]))
