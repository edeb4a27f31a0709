"""The README and the pages of docs/: their examples run, and their links exist."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
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
    assert [page for page, _ in EXAMPLES] == ["README", "README", "index", "usage", "usage"]


def output_of(code: str) -> str:
    # In a process of its own: a user's settings, not the strict ones of the tests.
    command = [sys.executable, "-W", "error", "-c", code]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


def accuracy_of(code: str) -> float:
    printed = re.fullmatch(r"test accuracy (\d+\.\d)%\n", output_of(code))
    assert printed is not None
    return float(printed[1])


@pytest.mark.slow
def test_the_program_of_the_readme_is_short_and_its_contrast_holds() -> None:
    """Both numbers of the README, with the swap that it names."""
    code = EXAMPLES[0][1]
    constrained = "params, tx = jn.linearly_constrain(params, optax.sgd(0.1, momentum=0.9))"
    assert constrained in code
    assert len(code.splitlines()) <= 30
    assert 90 < accuracy_of(code) < 97  # 92.6 to 95.0 under five seeds
    assert 8 < accuracy_of(code.replace(constrained, "tx = optax.sgd(0.1, momentum=0.9)")) < 12


@pytest.mark.parametrize(
    "number", [1, 2, *(pytest.param(n, marks=pytest.mark.slow) for n in (3, 4))]
)
def test_examples_run(number: int) -> None:
    output_of(EXAMPLES[number][1])


@pytest.mark.parametrize("page", [*PAGES, CONCEPTS, *GUIDES], ids=lambda page: page.name)
def test_links_exist(page: Path) -> None:
    links = re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text())
    assert links or page in GUIDES
    for link in links:
        assert (page.parent / link).exists(), link


def test_the_readme_is_short_and_starts_with_installation_and_compare() -> None:
    text = PAGES[0].read_text()
    assert len(text.splitlines()) <= 100
    first = re.search(r"```bash\n(.*?)```", text, re.DOTALL)
    assert first is not None
    assert first[1].splitlines() == [
        "pip install -e '.[experiments]'",
        "python -m experiments compare",
    ]
