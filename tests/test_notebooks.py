"""The notebooks as they are committed: executed whole, small, and the same from any machine.

That they still run is checked by `notebooks/run.py`, a step of `.ci/run`.
"""

import ast
import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
PATHS = sorted((ROOT / "notebooks").glob("*.ipynb"))
MACHINE = re.compile(r"/(?:home|root|Users|opt|tmp|usr|var|work|mnt)/|[A-Z]:\\\\|site-packages")
LARGEST_PICTURE = 60_000


def read(path: Path) -> dict[str, Any]:
    notebook: dict[str, Any] = json.loads(path.read_text())
    return notebook


def code(path: Path) -> list[dict[str, Any]]:
    return [cell for cell in read(path)["cells"] if cell["cell_type"] == "code"]


def outputs(path: Path) -> list[dict[str, Any]]:
    return [output for cell in code(path) for output in cell["outputs"]]


def text(value: str | list[str]) -> str:
    return "".join(value)


def test_the_page_of_the_papers_links_each() -> None:
    text = (ROOT / "docs" / "papers.md").read_text()
    links = re.findall(r"\]\(\.\./(notebooks/[^)]+)\)", text)
    assert sorted(links) == [f"notebooks/{path.name}" for path in PATHS]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
class TestNotebook:
    def test_can_be_copied_out_of_the_checkout(self, path: Path) -> None:
        """Nothing is imported but packages that an index has."""
        nodes = list(ast.walk(ast.parse("\n".join(text(cell["source"]) for cell in code(path)))))
        froms = {n.module for n in nodes if isinstance(n, ast.ImportFrom) if n.module}
        plain = {a.name for node in nodes if isinstance(node, ast.Import) for a in node.names}
        imported = {name.partition(".")[0] for name in froms | plain}
        ours = {path.stem for path in ROOT.iterdir() if path.is_dir()} - {"jaxnorm"}
        assert "jaxnorm" in imported
        assert not imported & ours

    def test_was_executed_from_top_to_bottom(self, path: Path) -> None:
        counts = [cell["execution_count"] for cell in code(path)]
        assert counts == list(range(1, len(counts) + 1))

    def test_neither_errors_nor_warnings(self, path: Path) -> None:
        assert not [o for o in outputs(path) if o["output_type"] == "error"]
        assert not [o for o in outputs(path) if o.get("name") == "stderr"]

    def test_small_pictures(self, path: Path) -> None:
        pictures = [
            o["data"]["image/png"] for o in outputs(path) if "image/png" in o.get("data", ())
        ]
        sizes = [len(base64.b64decode(text(picture))) for picture in pictures]
        assert len(sizes) >= 3
        assert max(sizes) < LARGEST_PICTURE

    def test_nothing_of_the_machine(self, path: Path) -> None:
        notebook = read(path)
        sources = [text(cell["source"]) for cell in notebook["cells"]]
        shown = [text(o.get("text", "")) for o in outputs(path)]
        data = [o.get("data", {}) for o in outputs(path)]
        shown += [text(each[kind]) for each in data for kind in each if kind.startswith("text/")]
        assert not [part for part in (*sources, *shown) if MACHINE.search(part)]
        assert set(notebook["metadata"]) == {"kernelspec", "language_info"}
        assert not [cell for cell in notebook["cells"] if cell["metadata"]]

    def test_is_small_by_default(self, path: Path) -> None:
        assert re.search(r"^FULL = False$", text(code(path)[0]["source"]), re.MULTILINE)
