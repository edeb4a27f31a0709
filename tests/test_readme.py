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


def test_the_readme_starts_with_the_call_and_installs() -> None:
    text = PAGES[0].read_text()
    first, *_ = re.findall(r"```py\n(.*?)```", text, re.DOTALL)
    assert first.startswith("apply_in_loss, raw, tx = jn.moving_average_normalization(")
    command, *_ = re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
    assert command.splitlines()[0] == "pip install -e '.[experiments]'"
    assert command.splitlines()[1].startswith("python -m experiments compare")


@pytest.mark.parametrize("page", [PAGES[0], DOCS / "index.md", WHICH], ids=lambda page: page.name)
def test_one_rule_says_which_call(page: Path) -> None:
    assert RULE in words(page.read_text())


def test_cells_of_the_table_of_methods_are_words_and_a_link() -> None:
    rows = [line for line in WHICH.read_text().splitlines() if line.startswith("| ")]
    assert len(rows) > 10
    for cell in (cell for row in rows for cell in row.strip("|").split("|")):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", cell)
        assert len(plain.split()) <= 20, cell
        assert not re.search(r"\d\.\d", plain), f"a figure, which belongs into the evidence: {cell}"
