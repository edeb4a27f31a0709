"""`fold_batch_norm` and `replace_batch_norm` on whole networks, and for every kind of layer."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxnorm.nnx import (
    BatchNorm,
    PopulationNorm,
    Standardization,
    fold_batch_norm,
    replace_batch_norm,
)
from tests.draws import draw
from tests.nnx.models import (
    CASES,
    RESNET,
    Activated,
    Case,
    Custom,
    dense,
    evaluated,
    kinds,
    norm,
    replaced,
    slashed,
    trained,
    variables,
)

#: Promised accuracy in float32: sums over at most 144 weights, on values of order one.
FLOAT32 = {"rtol": 1e-5, "atol": 1e-5}


class Network(NamedTuple):
    """Model, its folded form, and its replacements with and without example inputs."""

    case: Case
    model: Any
    folded: Any
    remaining: Any
    on_weights: Any
    on_activations: Any


@pytest.fixture(scope="module", params=CASES.values(), ids=CASES)
def network(request: pytest.FixtureRequest) -> Network:
    """Checks also that no call changes the model."""
    case = request.param
    model, x = trained(case.model()), case.input()
    graph, before = nnx.graphdef(model), variables(model)
    folded = fold_batch_norm(model, x)
    replaced(model, x), replaced(model)
    assert nnx.graphdef(model) == graph
    jax.tree.map(np.testing.assert_array_equal, variables(model), before)
    new = replace_batch_norm(case.model(), x), replace_batch_norm(case.model())
    return Network(case, model, *folded, *new)


def of_kind(model: Any, kind: str) -> set[str]:
    return {path for path, name in kinds(model).items() if name == kind}


@pytest.mark.kept("containers")
def test_folded_outputs_are_equal_and_remaining_layers_are_named(network: Network) -> None:
    case, x = network.case, network.case.input()
    expected = evaluated(network.model, x)
    # The statistics matter: the outputs of a new model are different.
    assert np.abs(expected - evaluated(case.model(), x)).max() > 0.1
    before = variables(network.folded)
    np.testing.assert_allclose(network.folded(x), expected, **FLOAT32)
    # In evaluation mode nothing is random, and nothing is written.
    np.testing.assert_array_equal(network.folded(x), network.folded(x))
    jax.tree.map(np.testing.assert_array_equal, variables(network.folded), before)
    assert sorted(map(slashed, network.remaining)) == sorted(case.others)
    assert of_kind(network.folded, "BatchNorm") == set(case.others)
    assert of_kind(network.folded, "Identity") == case.followed
    assert {name[:-5] for name in before if name.endswith("/mean")} == set(case.others)


@pytest.mark.kept("preactivation")
def test_every_normalization_is_replaced_and_no_other_module(network: Network) -> None:
    case, before = network.case, kinds(network.case.model())
    norms, carried = {*case.followed, *case.others}, case.followed - set(case.zeros)
    assert of_kind(network.on_weights, "Identity") == carried
    assert of_kind(network.on_weights, "ScaleAndBias") == norms - carried
    assert of_kind(network.on_activations, "ScaleAndBias") == norms
    for model in (network.on_weights, network.on_activations):
        after = kinds(model)
        assert list(after) == list(before)
        assert {path for path in before if before[path] != after[path]} == norms
        assert not jax.tree.leaves(nnx.state(model, nnx.BatchStat))


def test_a_scale_that_a_kernel_cannot_carry_becomes_a_layer_s() -> None:
    model = trained(RESNET.model())
    new: Any = replaced(model, RESNET.input())
    np.testing.assert_array_equal(new.bn_init.channel_scale[...], model.bn_init.scale[...])
    np.testing.assert_array_equal(new.bn_init.bias[...], model.bn_init.bias[...])
    assert new.conv_init.bias is None


UNITS, EPSILON = 4, 0.1
X = draw(0, 2, 5, 5, 3)
NEITHER = {"use_scale": False, "use_bias": False}


def library(**options: Any) -> Callable[[], Any]:
    return lambda: BatchNorm(UNITS, epsilon=EPSILON, **options)


def flax(**options: Any) -> Callable[[], Any]:
    return lambda: nnx.BatchNorm(UNITS, epsilon=EPSILON, rngs=nnx.Rngs(0), **options)


LAYERS: dict[str, Callable[[], Any]] = {
    "flax": flax(),
    "flax, no scale": flax(use_scale=False),
    "flax, no bias": flax(use_bias=False),
    "flax, neither": flax(**NEITHER),
    "full": library(),
    "ghost": library(groups=2),
    "mean": library(use_variance=False),
    "variance": library(use_mean=False),
    "neither": library(**NEITHER),
    "mean, neither": library(use_variance=False, **NEITHER),
    "population": lambda: PopulationNorm(UNITS, epsilon=EPSILON),
    "standardization": lambda: Standardization(UNITS, epsilon=EPSILON),
}
EACH = pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS.keys())
VALUES = {
    name: np.random.default_rng(seed).uniform(0.5, 2, UNITS)
    for seed, name in enumerate(("mean", "var", "scale", "bias"))
}


def with_convolution(make: Callable[[], Any], use_bias: bool = True) -> nnx.Sequential:
    """A zero-padded convolution, the layer with values as if trained, and an activation."""
    conv = nnx.Conv(3, UNITS, (3, 3), use_bias=use_bias, rngs=nnx.Rngs(0))
    layer = make()
    for name, values in VALUES.items():
        if getattr(layer, name) is not None:
            getattr(layer, name)[...] = jnp.asarray(values, jnp.float32)
    return nnx.Sequential(conv, layer, nnx.relu)


def in_numpy(model: nnx.Sequential) -> Any:
    """Output of the convolution itself, and then the parts that the layer has, in float64."""
    layer: Any = model.layers[1]
    has = {name: getattr(layer, name) is not None for name in VALUES}
    x = np.asarray(model.layers[0](X), np.float64)
    x = x - VALUES["mean"] if has["mean"] else x
    x = x / np.sqrt(VALUES["var"] + EPSILON) if has["var"] else x
    x = x * VALUES["scale"] if has["scale"] else x
    return np.maximum(x + VALUES["bias"] if has["bias"] else x, 0)


@EACH
@pytest.mark.parametrize("use_bias", [True, False])
def test_each_kind_folds_into_its_kernel(make: Any, use_bias: bool) -> None:
    model = with_convolution(make, use_bias)
    folded, remaining = fold_batch_norm(model, X)
    assert not remaining
    assert kinds(folded)["layers/1"] == "Identity"
    assert set(variables(folded)) == {"layers/0/kernel", "layers/0/bias"}
    np.testing.assert_allclose(folded(X), in_numpy(model), **FLOAT32)
    np.testing.assert_allclose(evaluated(model, X), in_numpy(model), **FLOAT32)


@EACH
def test_each_kind_leaves_its_scale_and_bias_or_nothing_after_a_kernel(make: Any) -> None:
    """A scale or bias that the normalization lacks is no parameter afterwards."""
    model = with_convolution(make)
    normalization: Any = model.layers[1]
    layer: Any = replaced(model).layers[1]
    assert type(layer).__name__ == "ScaleAndBias"
    pairs = [(normalization.scale, layer.channel_scale), (normalization.bias, layer.bias)]
    for before, after in pairs:
        assert (before is None) == (after is None)
        if before is not None:
            np.testing.assert_array_equal(before[...], after[...])
    if normalization.scale is not None:
        normalization.scale[...] = jnp.ones(UNITS)
    after_kernel = replaced(model, X)
    assert kinds(after_kernel)["layers/1"] == "Identity"
    shift = 0 if normalization.bias is None else VALUES["bias"]
    expected = np.maximum(np.asarray(model.layers[0](X), np.float64) + shift, 0)
    np.testing.assert_allclose(after_kernel(X), expected, **FLOAT32)


@pytest.mark.parametrize("kind", [nnx.BatchNorm, BatchNorm])
def test_a_normalization_by_the_batch_s_statistics_is_not_folded(kind: Any) -> None:
    """The call asks for them in any mode."""
    rngs, x = nnx.Rngs(0), draw(0, 4, 8)

    def forward(m: Any, x: Any) -> Any:
        return m.norm(m.dense(x), use_running_average=False)

    model = Custom(forward, dense=dense(rngs), norm=kind(8, rngs=rngs))
    folded, remaining = fold_batch_norm(model, x)
    assert remaining == [("norm",)]
    np.testing.assert_allclose(folded(x), model(x), **FLOAT32)
    assert kinds(replaced(model, x))["norm"] == "Identity"


INPUTS = pytest.mark.parametrize("with_inputs", [True, False])


@INPUTS
def test_a_subclass_with_its_own_call_needs_its_own_replacement(with_inputs: bool) -> None:
    """Otherwise its activation would be lost; folding leaves the layer where it is."""
    rngs, x = nnx.Rngs(0), draw(0, 4, 5)
    layers = [dense(rngs, 5), Activated(8, rngs=rngs), dense(rngs), norm(rngs)]
    model, inputs = nnx.Sequential(*layers), (x,) if with_inputs else ()
    folded, remaining = fold_batch_norm(model, x)
    assert remaining == [("layers", 1)]
    np.testing.assert_allclose(folded(x), evaluated(model, x), **FLOAT32)
    with pytest.raises(ValueError, match=r"Activated.*replacement="):
        replace_batch_norm(model, *inputs)
    new = replace_batch_norm(model, *inputs, replacement=lambda norm: nnx.Dropout(0.0))
    assert {kinds(new)[f"layers/{place}"] for place in (1, 3)} == {"Dropout"}


class Frozen(nnx.Param[Any]):
    """Parameter that an optimizer's filter leaves out."""


def test_scales_and_biases_keep_their_class_and_metadata() -> None:
    rngs, x = nnx.Rngs(0), jnp.ones((2, 5))
    frozen = norm(rngs)
    frozen.scale, frozen.bias = Frozen(jnp.ones(8), tag="scale"), Frozen(jnp.ones(8), tag="bias")
    model = nnx.Sequential(nnx.Linear(5, 8, use_bias=False, rngs=rngs), frozen)
    layer = replace_batch_norm(model).layers[1]
    in_linear = (
        replace_batch_norm(model, x).layers[0].bias,
        fold_batch_norm(model, x).model.layers[0].bias,
    )
    parameters = (layer.channel_scale, layer.bias, *in_linear)
    assert {type(variable) for variable in parameters} == {Frozen}
    tags = [variable.get_metadata("tag") for variable in parameters]
    assert tags == ["scale", "bias", "bias", "bias"]


@INPUTS
def test_shared_scales_and_biases_stay_shared(with_inputs: bool) -> None:
    """For example of several domains: each has its own statistics, and all one affine part."""
    rngs, x = nnx.Rngs(0), jnp.ones((2, 8))
    norms = [norm(rngs) for _ in range(2)]
    norms[1].scale, norms[1].bias = norms[0].scale, norms[0].bias
    model = nnx.Sequential(dense(rngs), norms[0], nnx.relu, dense(rngs), norms[1])
    new = replace_batch_norm(model, *((x,) if with_inputs else ()))
    first, second = new.layers[1], new.layers[4]
    assert first.bias is second.bias
    assert first.channel_scale is second.channel_scale
    assert first.bias is not norms[0].bias


def test_models_without_a_replaceable_layer_are_refused() -> None:
    rngs, x = nnx.Rngs(0), jnp.ones((2, 8))
    model = nnx.Sequential(dense(rngs), norm(rngs))
    model.layers[1].axis = (-2, -1)
    with pytest.raises(ValueError, match=r"\(-2, -1\).*replacement="):
        replace_batch_norm(model)
    for edit in (replace_batch_norm, fold_batch_norm):
        with pytest.raises(ValueError, match="Linear"):
            edit(dense(rngs), x)
    assert type(replace_batch_norm(norm(rngs))).__name__ == "ScaleAndBias"


def test_a_fold_that_overflows_float16_names_its_layer() -> None:
    """500 / sqrt(1e-5) exceeds 65504."""
    rngs, x = nnx.Rngs(0), jnp.ones((2, 8), jnp.float16)
    half = {"dtype": jnp.float16, "param_dtype": jnp.float16}
    model = nnx.Sequential(dense(rngs, **half), norm(rngs, dtype=jnp.float16))
    model.layers[0].kernel[...] = jnp.full((8, 8), 500.0, jnp.float16)
    model.layers[1].var[...] = jnp.zeros(8)
    with pytest.raises(ValueError, match="float16") as raised:
        fold_batch_norm(model, x)
    assert "layers/0" in "".join(raised.value.__notes__)


class Block(nnx.Module):
    def __init__(self, rngs: nnx.Rngs, layer: Any):
        self.layer, self.norm = layer(rngs), nnx.BatchNorm(8, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return nnx.relu(self.norm(self.layer(x)))


class Stacked(nnx.Module):
    """A first block, and three that a scan runs, without biases."""

    def __init__(self, rngs: nnx.Rngs, layer: Any):
        self.first = Block(rngs, layer)
        self.blocks = nnx.split_rngs(splits=3)(nnx.vmap(lambda rngs: Block(rngs, layer)))(rngs)

    def __call__(self, x: Any) -> Any:
        run = nnx.scan(lambda x, block: block(x), in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)
        return run(self.first(x), self.blocks)


@pytest.mark.kept("shape2")
@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (lambda rngs: nnx.Linear(8, 8, use_bias=False, rngs=rngs), (6, 8)),
        (lambda rngs: nnx.Conv(8, 8, (3,), use_bias=False, rngs=rngs), (2, 5, 8)),
        (lambda rngs: nnx.ConvTranspose(8, 8, (3, 3), use_bias=False, rngs=rngs), (2, 4, 4, 8)),
    ],
)
def test_folds_layers_of_a_scan_as_those_of_a_loop(layer: Any, shape: Any) -> None:
    model, x = Stacked(nnx.Rngs(0), layer), jax.random.normal(jax.random.key(0), shape)
    model(x)
    model.eval()
    folded, remaining = fold_batch_norm(model, x)
    assert remaining == []
    np.testing.assert_allclose(folded(x), model(x), atol=1e-5)
    plain = replaced(model, x)
    assert type(plain.blocks.norm).__name__ == "Identity"
    assert plain.blocks.layer.bias.shape == (3, 8)
    assert plain(x).shape == x.shape


def test_leaves_a_normalization_that_the_layers_of_a_scan_share() -> None:
    class Sharing(nnx.Module):
        def __init__(self, rngs: nnx.Rngs):
            make = nnx.vmap(lambda rngs: nnx.Linear(8, 8, rngs=rngs))
            self.layers = nnx.split_rngs(splits=8)(make)(rngs)
            self.norm = nnx.BatchNorm(8, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            axes = (nnx.Carry, 0, None)
            run = nnx.scan(lambda x, layer, norm: norm(layer(x)), in_axes=axes, out_axes=nnx.Carry)
            return run(x, self.layers, self.norm)

    model, x = Sharing(nnx.Rngs(0)), jnp.ones((6, 8))
    model.eval()
    folded, remaining = fold_batch_norm(model, x)
    assert remaining == [("norm",)]
    np.testing.assert_allclose(folded(x), model(x), atol=1e-5)
