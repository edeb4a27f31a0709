"""The glossary: it is what its tables say, and what they name exists."""

import importlib.util
import re
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

import jaxnorm
import jaxnorm.nnx
from experiments.methods.glossary import GLOSSARY
from experiments.methods.table import METHODS

DOCS = Path(__file__).parent.parent / "docs"


def script() -> Any:
    spec = importlib.util.spec_from_file_location("_glossary", DOCS / "_glossary.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_written_from_the_tables() -> None:
    assert (DOCS / "glossary.md").read_text() == script().text(), "run `python -m docs._glossary`"


def test_every_code_is_on_the_page() -> None:
    page = (DOCS / "glossary.md").read_text()
    assert not [code for code in METHODS if f"`{code}`" not in page]


def test_the_codes_are_those_of_methods() -> None:
    assert GLOSSARY.keys() <= METHODS.keys()
    assert {code for code, method in METHODS.items() if method.default} <= GLOSSARY.keys()


@pytest.mark.parametrize("code", GLOSSARY)
def test_the_functions_are_public(code: str) -> None:
    for name in GLOSSARY[code].functions:
        assert callable(reduce(getattr, name.split("."), jaxnorm))
    links = re.findall(r"\]\(([^)]+)\)", script().functions(GLOSSARY[code]))
    for name, link in zip(GLOSSARY[code].functions, links, strict=True):
        listed = re.search(rf"^::: jaxnorm\.\S*{name}$", (DOCS / link).read_text(), re.MULTILINE)
        assert listed, (name, link)
