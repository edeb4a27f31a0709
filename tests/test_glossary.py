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


def test_costs_are_of_steps_that_have_a_baseline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, file = script(), tmp_path / "compiled.csv"
    monkeypatch.setattr(module, "COSTS", file)
    assert module.costs("bn") == []
    file.write_text(
        "method,target,model,dtype,entry,hbm_ratio,collectives,what\n"
        "bn,v5e:4x4,resnet50,bfloat16,jit,2.3112,148,step\n"
        "bn,v5e:4x4,resnet50,bfloat16,jit,,148,step\n"
        "bn,v5e:4x4,resnet50,bfloat16,jit,1.5,2,update\n"
        "bn,v5e:4x4,resnet50,bfloat16,shard_map,1.5,2,step\n"
    )
    (cost,) = module.costs("bn")
    assert cost.startswith("2.31 times")
    assert "v5e:4x4" in cost
    assert "148 collectives" in cost
    assert module.costs("lcw") == []
