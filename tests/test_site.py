"""The site, the citation and the project file: every public name has one place."""

import importlib.util
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import jaxnorm
from tests.public import NAMES
from tests.test_import import PUBLIC

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
SITE = (ROOT / "mkdocs.yml").read_text()
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LISTED = [
    name
    for page in sorted((DOCS / "api").glob("*.md"))
    for name in re.findall(r"^::: (\S+)$", page.read_text(), re.MULTILINE)
]


def hook(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_public_name_is_listed_once() -> None:
    assert len(LISTED) == len(set(LISTED))
    names = {name for name in NAMES if name.rpartition(".")[0] in PUBLIC}
    assert set(LISTED) == names


def test_every_page_is_in_the_navigation() -> None:
    pages = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}
    notebooks = {f"notebooks/{path.stem}.md" for path in (ROOT / "notebooks").glob("*.ipynb")}
    listed = set(re.findall(r"(\S+\.md)$", SITE, re.MULTILINE))
    assert pages | notebooks <= listed
    assert all((ROOT / page).exists() for page in listed - pages - notebooks)


@pytest.mark.parametrize(
    "words", ["MobileNet", "pretrained", "batch size of 2", "learning rate", "DQN", "NaN", "TPU"]
)
def test_words_that_people_search_for_are_on_a_page(words: str) -> None:
    pages = [DOCS / "index.md", *(DOCS / "guides").glob("*.md")]
    assert any(words in " ".join(page.read_text().split()) for page in pages)


def test_the_citation_has_this_version() -> None:
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {jaxnorm.__version__}\n" in citation
    assert f"license: {PROJECT['license']}" in citation
    assert all(f"name: {author['name']}" in citation for author in PROJECT["authors"])


def test_tools_are_pinned_to_one_version() -> None:
    extras = PROJECT["optional-dependencies"]
    assert all("==" in requirement for requirement in extras["docs"])
    ruffs = {line for lines in extras.values() for line in lines if line.startswith("ruff")}
    assert len(ruffs) == 1


def test_figures_stay_on_one_line() -> None:
    def cell(text: str) -> str:
        return f'<td style="text-align: right;">{text}</td>'

    def shown(text: str) -> str:
        return hook("_numbers").on_page_content(cell(text)).replace("&nbsp;", "_")

    assert shown("58.54 ± 0.30") == cell("58.54_±_0.30")
    assert shown("1.00 [0.98, 1.04]") == cell("1.00_[0.98,_1.04]")
    assert shown("0.01, 0.03, 0.01") == cell("0.01, 0.03, 0.01")


def test_files_of_the_checkout_have_a_place_on_the_site() -> None:
    name = hook("_checkout").site_name
    assert name("docs/guides/which.md") == "guides/which.md"
    assert name("notebooks/02_lcw.ipynb") == "notebooks/02_lcw.md"
    assert name("experiments/results/digits") == "experiments/results/digits/README.md"


def test_notebooks_become_pages_with_code_and_outputs() -> None:
    picture = {"data": {"image/png": "AAAA", "text/plain": "<Figure>"}}
    table = {"data": {"text/markdown": ["| a |"], "text/plain": "<Markdown>"}}
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "so\n", "$$x$$\n", "and"]},
        {"cell_type": "code", "source": ["f()"], "outputs": [{"text": ["1\n"]}, table, picture]},
    ]
    page = hook("_checkout").notebook_page({"cells": cells})
    head, rest = page.split("data:image/png;base64,AAAA")
    assert head.startswith("# Title\nso\n\n$$x$$\n\nand\n\n```python\nf()\n```\n\n")
    assert head.endswith('```text\n1\n```\n\n| a |\n\n<p><img src="')
    assert "Figure" not in rest
