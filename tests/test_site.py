"""The site, its glossary, and what goes with a release: every public name has its place."""

import importlib.util
import re
import tomllib
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

import jaxnorm
from experiments.methods.glossary import GLOSSARY
from experiments.methods.table import METHODS
from experiments.names import DEFAULT_METHODS
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
    assert set(re.findall(r"(\S+\.md)$", SITE, re.MULTILINE)) == pages


def test_no_page_leads_to_an_address_that_does_not_exist() -> None:
    """The project is published nowhere yet: links are relative, and no index or site is named."""
    pages = [*ROOT.glob("*.md"), *DOCS.rglob("*.md"), ROOT / "CITATION.cff"]
    places = r"github\.com/jaxnorm|jaxnorm\.github\.io|pip install '?jaxnorm"
    assert not [page for page in pages if re.search(places, page.read_text())]
    assert not re.search(places, SITE)
    assert "urls" not in PROJECT


def test_the_citation_is_of_this_version() -> None:
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {jaxnorm.__version__}\n" in citation
    assert f"license: {PROJECT['license']}" in citation
    assert all(f"name: {author['name']}" in citation for author in PROJECT["authors"])


def test_tools_are_pinned_and_alike() -> None:
    extras = PROJECT["optional-dependencies"]
    assert all("==" in requirement for requirement in extras["docs"])
    ruffs = {line for lines in extras.values() for line in lines if line.startswith("ruff")}
    assert len(ruffs) == 1


def test_a_figure_stays_on_one_line_and_a_list_does_not() -> None:
    def cell(text: str) -> str:
        return f'<td style="text-align: right;">{text}</td>'

    def shown(text: str) -> str:
        return hook("_numbers").on_page_content(cell(text)).replace("&nbsp;", "_")

    assert shown("58.54 ± 0.30") == cell("58.54_±_0.30")
    assert shown("1.00 [0.98, 1.04]") == cell("1.00_[0.98,_1.04]")
    assert shown("0.01, 0.03, 0.01") == cell("0.01, 0.03, 0.01")


def test_a_file_of_the_checkout_is_named_by_its_place() -> None:
    link = hook("_pictures").LINK
    named = hook("_pictures").named_place
    written = "[Results](../experiments/results/x), and ([figures](../experiments/results/y.csv))"
    shown = "Results (`experiments/results/x`), and (figures: `experiments/results/y.csv`)"
    assert link.sub(named, written) == shown


def test_the_page_is_written_from_the_tables() -> None:
    assert (DOCS / "glossary.md").read_text() == hook("_glossary").text(), (
        "run `python -m docs._glossary`"
    )


def test_every_code_is_on_the_page() -> None:
    page = (DOCS / "glossary.md").read_text()
    assert not [code for code in METHODS if f"`{code}`" not in page]


def test_the_codes_are_those_of_methods() -> None:
    assert GLOSSARY.keys() <= METHODS.keys()
    assert set(DEFAULT_METHODS.split(",")) <= GLOSSARY.keys()


@pytest.mark.parametrize("code", GLOSSARY)
def test_the_functions_are_public(code: str) -> None:
    for name in GLOSSARY[code].functions:
        assert callable(reduce(getattr, name.split("."), jaxnorm))
    links = re.findall(r"\]\(([^)]+)\)", hook("_glossary").functions(GLOSSARY[code]))
    for name, link in zip(GLOSSARY[code].functions, links, strict=True):
        listed = re.search(rf"^::: jaxnorm\.\S*{name}$", (DOCS / link).read_text(), re.MULTILINE)
        assert listed, (name, link)
