"""Exporting weight-side nodes: `effective` once, and what runs is the plain network."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxnorm import effective, reparametrize
from jaxnorm.nnx import Functional, functionalize, replace_batch_norm
from tests.nnx import models
from tests.nnx.cases import CONVNET
from tests.nnx.cost import Cost, cost, cost_of
from tests.oracles import from_rows, rows
from tests.reparam.table import TABLE, Row

#: The promise, float32: three layers with sums over at most 72 weights, on values of order one.
FLOAT32 = {"rtol": 1e-5, "atol": 1e-5}
PLAIN = models.ConvNet(nnx.Rngs(0), normalized=False)
X = CONVNET.input()
ROWS = pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)


@pytest.fixture(scope="module")
def plain_cost() -> Cost:
    return cost(PLAIN, X)


@pytest.fixture(scope="module")
def network() -> Functional:
    """The network with its normalization taken out, as a pure function."""
    return functionalize(replace_batch_norm(CONVNET.model(), X))


def raw_parameters(row: Row, params: Any) -> Any:
    """Nodes in the place of all kernels, with every leaf random, as in the middle of training."""
    raw = reparametrize(params, lambda _, kernel, axes: row.make(kernel, axes))
    leaves, structure = jax.tree.flatten(raw)
    draw = np.random.default_rng(5)
    moved = [leaf + jnp.asarray(draw.normal(size=leaf.shape) / 5, leaf.dtype) for leaf in leaves]
    return jax.tree.unflatten(structure, moved)


def oracle_kernel(row: Row, node: Any) -> Any:
    """The node's kernel in float64 NumPy."""
    v, *scales = jax.tree.leaves(node)
    s = np.float64(scales[0]) if scales else None
    return from_rows(row.value(rows(v, node.fan_in_axes), s), v, node.fan_in_axes)


@ROWS
def test_outputs_are_those_of_the_plain_network_with_the_oracle_s_weights(
    row: Row, network: Functional
) -> None:
    apply, params, state = network
    raw = raw_parameters(row, params)
    got, _ = apply(effective(raw), state, X, train=False)
    plain = nnx.clone(PLAIN)
    for name in ("conv1", "conv2", "head"):
        kernel = oracle_kernel(row, raw[name]["kernel"])
        getattr(plain, name).kernel[...] = jnp.asarray(kernel, jnp.float32)
        getattr(plain, name).bias[...] = raw[name]["bias"]
    assert np.abs(np.asarray(got)).max() > 1e-2
    np.testing.assert_allclose(got, plain(X), **FLOAT32)


@ROWS
def test_export_has_the_plain_network_s_flops_and_bytes(
    row: Row, network: Functional, plain_cost: Cost
) -> None:
    apply, params, state = network
    raw = raw_parameters(row, params)

    def run(params: Any, x: Any) -> Any:
        return apply(params, state, x, train=False)[0]

    assert cost_of(run, effective(raw), X) == plain_cost
    # Not exported, the nodes' work is in every call.
    assert cost_of(lambda raw, x: run(effective(raw), x), raw, X).flops > plain_cost.flops
