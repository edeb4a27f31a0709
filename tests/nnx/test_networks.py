"""`fold_batch_norm` and `replace_batch_norm` on whole networks: one table, every property."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxnorm import Scaled, effective, reparametrize
from jaxnorm.nnx import fold_batch_norm, functionalize, replace_batch_norm
from tests.nnx.cases import (
    ALL,
    CONVNET,
    FOLDABLE,
    RESNET,
    Case,
    at,
    evaluated,
    kinds,
    slashed,
    trained,
    variables,
)

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


@pytest.fixture(scope="module", params=ALL, ids=lambda case: case.name)
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
    assert of_kind(network.folded, "Identity") == set(case.followed)
    assert {name[:-5] for name in before if name.endswith("/mean")} == set(case.others)


def test_every_normalization_is_replaced_and_nothing_else(network: Network) -> None:
    case, before = network.case, kinds(network.case.model())
    everything, carried = {*case.followed, *case.others}, set(case.followed) - set(case.zeros)
    assert of_kind(network.on_weights, "Identity") == carried
    assert of_kind(network.on_weights, "ScaleAndBias") == everything - carried
    assert of_kind(network.on_activations, "ScaleAndBias") == everything
    for model in (network.on_weights, network.on_activations):
        after = kinds(model)
        assert list(after) == list(before)
        assert {path for path in before if before[path] != after[path]} == everything
        assert not jax.tree.leaves(nnx.state(model, nnx.BatchStat))


def test_shapes_are_enough(network: Network) -> None:
    x = jax.ShapeDtypeStruct(network.case.shape, jnp.float32)
    folded, remaining = fold_batch_norm(network.model, x)
    assert remaining == network.remaining
    replaced = replace_batch_norm(network.case.model(), x)
    for got, wanted in ((folded, network.folded), (replaced, network.on_weights)):
        assert kinds(got) == kinds(wanted)
        jax.tree.map(np.testing.assert_array_equal, variables(got), variables(wanted))


def test_a_replaced_new_model_is_the_old_one_without_its_normalization(network: Network) -> None:
    """In place of (x - 0) / sqrt(1 + eps) there is x: with eps = 0 a new model is the same."""
    model, x = network.case.model(), network.case.input()
    for _, norm in nnx.iter_modules(model):
        if isinstance(norm, nnx.BatchNorm):
            norm.epsilon = 0.0
            norm.bias[...] = jnp.linspace(-1.0, 1.0, norm.num_features)
    for inputs in ((x,), ()):
        got = evaluated(replace_batch_norm(model, *inputs), x)
        np.testing.assert_allclose(got, evaluated(model, x), **FLOAT32)


@pytest.mark.parametrize("case", [RESNET, CONVNET], ids=lambda case: case.name)
def test_after_training_it_folds_to_the_network_that_has_no_normalization(case: Case) -> None:
    """With the statistics that training moved, and with the plain network's parameters."""
    model = case.model()
    apply, params, state = functionalize(model)
    step = jax.jit(lambda state, x: apply(params, state, x, train=True)[1])
    for shift in (0.5, 2.0):
        state = step(state, shift * case.input() + shift)
    nnx.update(model, state)
    folded, remaining = fold_batch_norm(model, case.input())
    assert not remaining
    wanted, _ = apply(params, state, case.input(), train=False)
    assert np.abs(wanted - evaluated(case.model(), case.input())).max() > 1e-2
    np.testing.assert_allclose(folded(case.input()), wanted, **FLOAT32)
    plain = case.make(nnx.Rngs(0), normalized=False)
    shapes = {path: leaf.shape for path, leaf in variables(folded).items()}
    assert shapes == {path: leaf.shape for path, leaf in variables(plain).items()}


@pytest.mark.parametrize("case", FOLDABLE[1:], ids=lambda case: case.name)
def test_a_scale_in_the_kernel_is_a_scale_on_the_activations(case: Case) -> None:
    """The same output and the same gradients, of the same random scales and biases.

    The ResNet is left out, whose scales that start at zero no kernel can carry.
    """
    on_weights = functionalize(replace_batch_norm(case.model(), case.input()))
    on_activations = functionalize(replace_batch_norm(case.model()))
    own = {norm: at(on_activations.params, norm)["bias"].shape for norm in case.followed}

    def weights(scales: Any, shifts: Any) -> Any:
        raw = reparametrize(on_weights.params, Scaled)
        for norm, layer in case.followed.items():
            parent, node = at(raw, layer), at(raw, layer)["kernel"]
            parent["kernel"] = Scaled(node.kernel, scales[norm], node.fan_in_axes)
            # The layer's own bias is before the normalization's scale, its new one after it.
            before = at(on_activations.params, layer).get("bias", jnp.zeros(()))
            parent["bias"] = shifts[norm] + scales[norm] * before
        return effective(raw)

    def activations(scales: Any, shifts: Any) -> Any:
        params = jax.tree.map(lambda leaf: leaf, on_activations.params)
        for norm in case.followed:
            at(params, norm).update(channel_scale=scales[norm], bias=shifts[norm])
        return params

    def run(functional: Any, params: Any) -> Any:
        def loss(scales: Any, shifts: Any) -> Any:
            given = params(scales, shifts), functional.state, case.input()
            output = functional.apply(*given, train=False)[0]
            return jnp.sin(output).mean(), output

        draw = np.random.default_rng(1)
        drawn = [
            {norm: jnp.asarray(draw.normal(size=size), jnp.float32) for norm, size in own.items()}
            for _ in range(2)
        ]
        return jax.jit(jax.grad(loss, (0, 1), has_aux=True))(*drawn)

    got, wanted = run(on_weights, weights), run(on_activations, activations)
    assert min(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(wanted)) > 1e-4
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **FLOAT32), got, wanted)


@pytest.mark.parametrize("inputs", [(RESNET.input(),), ()], ids=["inputs", "no inputs"])
def test_custom_replacement_is_used_for_every_one(inputs: Any) -> None:
    made = []

    def group_norm(norm: nnx.BatchNorm) -> nnx.GroupNorm:
        made.append(norm.num_features)
        return nnx.GroupNorm(norm.num_features, num_groups=2, rngs=nnx.Rngs(0))

    replaced = replace_batch_norm(RESNET.model(), *inputs, with_=group_norm)
    assert of_kind(replaced, "GroupNorm") == set(RESNET.followed)
    assert sorted(made) == [8, 8, 8, 16, 16, 16]


def test_a_scale_that_a_kernel_cannot_carry_becomes_a_layer_s() -> None:
    model = trained(CONVNET.model())
    replaced: Any = replace_batch_norm(model, CONVNET.input())
    np.testing.assert_array_equal(replaced.norm1.channel_scale[...], model.norm1.scale[...])
    np.testing.assert_array_equal(replaced.norm1.bias[...], model.norm1.bias[...])
    assert replaced.conv1.bias is None
