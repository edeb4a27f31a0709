"""The README and the pages of docs/: their examples run, and their links exist."""

import re
from pathlib import Path

import pytest

from tests.programs import ROOT, output_of

DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    *(
        page
        for folder in ("", "guides", "evidence")
        for page in sorted((DOCS / folder).glob("*.md"))
    ),
]
WHICH = DOCS / "guides" / "which.md"
#: The rule by which a user chooses between the two calls, the same on each page.
RULE = (
    "`moving_average_normalization`; with fewer than about 16 rows per step, or if examples may "
    "not interact in the backward pass either (privacy, gradients per example, online "
    "reinforcement learning), `normalizer_free`"
)


def blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.slow
def test_the_program_of_the_readme_runs() -> None:
    """With a quarter of its updates; the guides' blocks run in `tests/guides`."""
    (code,) = blocks(ROOT / "README.md")
    assert "jn.moving_average_normalization(" in code
    printed = output_of({"readme": code.replace("200", "50")})
    accuracy = re.fullmatch(r"right: (\d+\.\d)%\n", printed)
    assert accuracy is not None
    assert float(accuracy[1]) > 60


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_exist(page: Path) -> None:
    for link in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text()):
        assert (page.parent / link).exists(), link


@pytest.mark.parametrize("page", [PAGES[0], DOCS / "index.md", WHICH], ids=lambda page: page.name)
def test_one_rule_says_which_call(page: Path) -> None:
    assert RULE in words(page.read_text())


MOVING = ROOT / "experiments" / "results" / "networks" / "moving"


@pytest.mark.parametrize("page", [PAGES[0], DOCS / "evidence.md", MOVING / "README.md"])
def test_differences_over_whole_networks_are_those_of_their_table(page: Path) -> None:
    """Moving averages and GroupNorm less batch normalization, 1,000 updates, over pairs."""
    table = (MOVING / "table.md").read_text()
    for method in ("moving averages", "gn"):
        row = re.search(rf"^\| {method} \| 5 \| ([^|]+) \|", table, re.MULTILINE)
        assert row is not None
        assert row[1] in words(page.read_text())
