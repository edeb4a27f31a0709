"""The rooms of `experiments`: imports go down only, so that there is no circle."""

import ast
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "experiments"

#: From the lowest room to the highest; a room imports itself and those before it.
ROOMS = (
    *(
        "errors",
        "config",
        "ranges",
        "listed",
        "data",
        "augmentation",
        "models",
        "methods",
        "training",
        "runs",
    ),
    *("training", "runs", "commands", "settings_file", "analysis", "compare", "train", "papers"),
    *("bench", "names"),
    *("cli", "__main__"),
)


def test_imports_go_down():
    upward = []
    for path in FOLDER.rglob("*.py"):
        room = path.relative_to(FOLDER).parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("experiments."):
                other = (node.module or "").split(".")[1]
                if ROOMS.index(other) > ROOMS.index(room):
                    upward.append(f"{path}: {node.module}")
    assert upward == []
