"""The glossary of methods, its page, and the public functions that it names."""

import re
from functools import reduce

import pytest

import jaxnorm
from experiments.methods.glossary import GLOSSARY
from experiments.methods.table import DEFAULT_METHODS, METHODS
from tests.test_site import DOCS, hook


def test_the_page_is_generated_from_the_tables() -> None:
    assert (DOCS / "glossary.md").read_text() == hook("_glossary").text(), (
        "run `python -m docs._glossary`"
    )


def test_the_page_has_every_method() -> None:
    page = (DOCS / "glossary.md").read_text()
    assert not [code for code in METHODS if f"`{code}`" not in page]


def test_entries_are_methods() -> None:
    assert GLOSSARY.keys() <= METHODS.keys()
    assert set(DEFAULT_METHODS.split(",")) <= GLOSSARY.keys()


@pytest.mark.parametrize("code", GLOSSARY)
def test_functions_are_public_and_linked(code: str) -> None:
    for name in GLOSSARY[code].functions:
        assert callable(reduce(getattr, name.split("."), jaxnorm))
    links = re.findall(r"\]\(([^)]+)\)", hook("_glossary").functions(GLOSSARY[code]))
    for name, link in zip(GLOSSARY[code].functions, links, strict=True):
        listed = re.search(rf"^::: jaxnorm\.\S*{name}$", (DOCS / link).read_text(), re.MULTILINE)
        assert listed, (name, link)
