"""`fold_batch_norm` and `replace_batch_norm` on whole networks: one table, every property."""

from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from flax import nnx

from jaxnorm.nnx import fold_batch_norm, replace_batch_norm
from tests.nnx.cases import CASES, RESNET, Case, evaluated, kinds, slashed, trained, variables

#: The promise, float32: a few layers with sums over at most 144 weights, on values of order one.
FLOAT32 = {"rtol": 1e-5, "atol": 1e-5}


class Network(NamedTuple):
    """A model, what it is folded to, and what is left with and without example inputs."""

    case: Case
    model: Any
    folded: Any
    remaining: Any
    on_weights: Any
    on_activations: Any


@pytest.fixture(scope="module", params=CASES.values(), ids=CASES)
def network(request: pytest.FixtureRequest) -> Network:
    """None of them is changed by a test; nor was the model."""
    case = request.param
    model, x = trained(case.model()), case.input()
    graph, before = nnx.graphdef(model), variables(model)
    made = fold_batch_norm(model, x)
    replace_batch_norm(model, x), replace_batch_norm(model)
    assert nnx.graphdef(model) == graph
    jax.tree.map(np.testing.assert_array_equal, variables(model), before)
    replaced = replace_batch_norm(case.model(), x), replace_batch_norm(case.model())
    return Network(case, model, *made, *replaced)


def of_kind(model: Any, kind: str) -> set[str]:
    return {path for path, own in kinds(model).items() if own == kind}


def test_folded_outputs_are_equal_and_what_remains_is_named(network: Network) -> None:
    case, x = network.case, network.case.input()
    wanted = evaluated(network.model, x)
    # The statistics matter: with those of a new model the outputs would be others.
    assert np.abs(wanted - evaluated(case.model(), x)).max() > 0.1
    before = variables(network.folded)
    np.testing.assert_allclose(network.folded(x), wanted, **FLOAT32)
    # In evaluation mode: nothing is random, and nothing is written.
    np.testing.assert_array_equal(network.folded(x), network.folded(x))
    jax.tree.map(np.testing.assert_array_equal, variables(network.folded), before)
    assert sorted(map(slashed, network.remaining)) == sorted(case.others)
    assert of_kind(network.folded, "BatchNorm") == set(case.others)
    assert of_kind(network.folded, "Identity") == case.followed
    assert {name[:-5] for name in before if name.endswith("/mean")} == set(case.others)


def test_every_normalization_is_replaced_and_nothing_else(network: Network) -> None:
    case, before = network.case, kinds(network.case.model())
    everything, carried = {*case.followed, *case.others}, case.followed - set(case.zeros)
    assert of_kind(network.on_weights, "Identity") == carried
    assert of_kind(network.on_weights, "ScaleAndBias") == everything - carried
    assert of_kind(network.on_activations, "ScaleAndBias") == everything
    for model in (network.on_weights, network.on_activations):
        after = kinds(model)
        assert list(after) == list(before)
        assert {path for path in before if before[path] != after[path]} == everything
        assert not jax.tree.leaves(nnx.state(model, nnx.BatchStat))


def test_a_scale_that_a_kernel_cannot_carry_becomes_a_layer_s() -> None:
    model = trained(RESNET.model())
    replaced: Any = replace_batch_norm(model, RESNET.input())
    np.testing.assert_array_equal(replaced.bn_init.channel_scale[...], model.bn_init.scale[...])
    np.testing.assert_array_equal(replaced.bn_init.bias[...], model.bn_init.bias[...])
    assert replaced.conv_init.bias is None
