"""The README and the pages of docs/: their examples run, and their links exist."""

import re
from pathlib import Path

import pytest

from tests.programs import ROOT, output_of

EVIDENCE, GUIDES = (sorted((ROOT / "docs" / name).glob("*.md")) for name in ("evidence", "guides"))
CONCEPTS = ROOT / "docs" / "concepts.md"  # run with the guides: its blocks belong together
GLOSSARY = ROOT / "docs" / "glossary.md"  # run in tests/experiments/test_glossary.py
OTHERS = sorted({*(ROOT / "docs").glob("*.md")} - {CONCEPTS, GLOSSARY})
PAGES = [ROOT / "README.md", *OTHERS, *EVIDENCE]
EXAMPLES = [
    (page.stem, code)
    for page in PAGES
    for code in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
]


def test_there_are_examples() -> None:
    assert [page for page, _ in EXAMPLES] == ["README", "index", "usage", "usage"]


@pytest.mark.slow
def test_the_program_of_the_readme_runs() -> None:
    """With a tenth of its updates; `tests/test_segmentation.py` ties its figures to their runs."""
    code = EXAMPLES[0][1]
    assert "jn.normalizer_free(" in code
    printed = output_of({"readme": code.replace("(800, 2)", "(80, 2)")})
    accuracy = re.fullmatch(r"pixels right: (\d+\.\d)%\n", printed)
    assert accuracy is not None
    assert float(accuracy[1]) > 60


@pytest.mark.slow
@pytest.mark.parametrize("numbers", [(1,), pytest.param((2, 3), marks=pytest.mark.slow)])
def test_other_examples_run(numbers: tuple[int, ...]) -> None:
    output_of({f"{EXAMPLES[number][0]} {number}": EXAMPLES[number][1] for number in numbers})


@pytest.mark.parametrize("page", [*PAGES, CONCEPTS, *GUIDES], ids=lambda page: page.name)
def test_links_exist(page: Path) -> None:
    links = re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text())
    assert links or page in GUIDES
    for link in links:
        assert (page.parent / link).exists(), link
