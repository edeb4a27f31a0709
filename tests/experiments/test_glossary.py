"""The glossary of methods, its page, and the public functions that it names."""

import re
from functools import reduce

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import jaxnorm
from experiments.methods.glossary import GLOSSARY
from experiments.methods.table import DEFAULT_METHODS, METHODS
from experiments.models.mlp import MLP
from experiments.models.sizes import NetworkSizes
from experiments.models.style import Style
from experiments.training.state import run_keys
from experiments.training.trainer import make_trainer
from jaxnorm import effective
from tests.experiments.parallel import with_keys
from tests.experiments.toy import SETTINGS, toy_dataset
from tests.test_site import DOCS, hook
from tests.trees import quick_jit


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


def test_default_methods_have_code_of_twelve_lines() -> None:
    assert all(GLOSSARY[code].call for code in DEFAULT_METHODS.split(","))
    lines = {code: entry.call.splitlines() for code, entry in GLOSSARY.items()}
    assert max(sum(map(bool, code)) for code in lines.values()) <= 12


@pytest.mark.slow
@pytest.mark.usefixtures("standard_promotion")
@pytest.mark.parametrize("code", [code for code, entry in GLOSSARY.items() if entry.call])
def test_the_code_takes_the_step_of_the_method(code: str) -> None:
    """The page's code and the experiments start from one network, and train on one batch."""
    data, width = toy_dataset(), 32
    config = SETTINGS.changed(width=width, learning_rate=0.05, weight_decay=0.0)
    trainer = make_trainer(METHODS[code], config, data)
    batch = with_keys(jnp.asarray(data.X_train[:16]), jnp.asarray(data.y_train[:16]))
    start = trainer.init(np.uint32(0), data.X_train)
    state, _ = quick_jit(trainer.step)(start, batch)

    def network(**style: object) -> nnx.Module:
        sizes = NetworkSizes((6,), 3, config.depth, width, 1)
        return MLP(sizes, Style(**style), nnx.Rngs(run_keys(jnp.uint32(0))[0]))

    names = {"network": network, "optimizer": optax.sgd(0.05, momentum=0.9)}
    names |= {"examples": data.X_train, "x": batch.X, "y": batch.y, "key": batch.keys}
    exec(hook("_glossary").IMPORTS + GLOSSARY[code].call, names)
    before, after = (trainer.method.weights(s.params, s.method_state) for s in (start, state))
    for old, expected, actual in zip(
        *map(jax.tree.leaves, (before, after, effective(names["params"]))), strict=True
    ):
        assert not np.array_equal(old, expected)
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)
