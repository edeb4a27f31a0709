"""Fine-tuning of a trained network: what is kept, and the table of the page."""

import csv
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

import jaxnorm as jn
from examples import pretrained
from tests.programs import ROOT

RESULTS = ROOT / "experiments" / "results" / "pretrained"


@pytest.fixture(scope="module")
def model() -> nnx.Module:
    """A network with running statistics that are not those of the start, untrained."""
    network = pretrained.Network(nnx.Rngs(0), width=8)
    _, params, state = jn.nnx.functionalize(network)
    x = pretrained.tasks()[0].x[:64]
    nnx.update(network, jn.nnx.estimate_statistics(network, params, state, x))
    return network


def test_the_table_of_the_page_is_that_of_its_rows() -> None:
    rows = list(csv.DictReader((RESULTS / "runs.csv").read_text().splitlines()))
    table = pretrained.table(rows)
    assert table in (RESULTS / "README.md").read_text()
    assert table in (ROOT / "docs" / "guides" / "pretrained.md").read_text()


def test_the_call_without_its_start_keeps_the_folded_network_to_the_bit(model: Any) -> None:
    x = pretrained.tasks()[1].x[:16]
    folded, _ = jn.nnx.fold_batch_norm(model, x[:1])
    apply, params, state = jn.nnx.functionalize(folded)
    optimizer = pretrained.sgd(0.01, 10)
    made = pretrained.start("folded, normalizer-free", apply, params, state, optimizer, x)
    assert all(jax.tree.leaves(jax.tree.map(lambda a, b: bool((a == b).all()), made.raw, params)))
    averaged = pretrained.start("folded, moving averages", apply, params, state, optimizer, x)
    model.eval()
    for each in (made, averaged):
        assert jnp.allclose(each.evaluate(each.raw, state, x), model(x), atol=1e-4)


@pytest.mark.slow
@pytest.mark.usefixtures("standard_promotion")
@pytest.mark.parametrize("method", pretrained.METHODS)
def test_each_method_trains(model: Any, method: str) -> None:
    model.train()
    few, held_out, _ = pretrained.split(0)
    source = model
    if method.startswith("folded"):
        source, _ = jn.nnx.fold_batch_norm(model, few.x[:1])
    _, params, state = jn.nnx.functionalize(source)
    batches = jax.random.randint(jax.random.key(0), (200, 2), 0, len(few.x))
    run = pretrained.tuned(method, source, 200)
    _, fitted = run(params, state, 0.003, batches, few, held_out, few)
    assert fitted > 0.35  # a guess is right in a fifth
