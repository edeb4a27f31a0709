"""`jaxnorm.nnx.fold_batch_norm`: the same outputs, the plain network's cost, what remains named."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxnorm.nnx import (
    BatchNorm,
    Identity,
    fold_batch_norm,
    functionalize,
    replace_batch_norm,
)
from tests.nnx import models
from tests.nnx.cases import (
    ALL,
    CONVNET,
    FOLDABLE,
    REMAINING,
    RESNET,
    Case,
    evaluated,
    kinds,
    slashed,
    trained,
    variables,
)
from tests.nnx.cost import cost

#: The promise, float32: a few layers with sums over at most 144 weights, on values of order one.
FLOAT32 = {"rtol": 1e-5, "atol": 1e-5}


class Folding(NamedTuple):
    case: Case
    model: Any
    folded: Any
    remaining: Any


@pytest.fixture(scope="module", params=ALL, ids=lambda case: case.name)
def folding(request: pytest.FixtureRequest) -> Folding:
    """A model and what it was folded to, which no test changes."""
    model = trained(request.param.model())
    return Folding(request.param, model, *fold_batch_norm(model, request.param.input()))


def test_outputs_are_equal(folding: Folding) -> None:
    case, wanted = folding.case, evaluated(folding.model, folding.case.input())
    # The statistics matter: with those of a new model the outputs would be others.
    assert np.abs(wanted - evaluated(case.model(), case.input())).max() > 0.1
    np.testing.assert_allclose(folding.folded(case.input()), wanted, **FLOAT32)


def test_what_remains_is_named_and_the_rest_is_gone(folding: Folding) -> None:
    case, found = folding.case, kinds(folding.folded)
    assert sorted(map(slashed, folding.remaining)) == sorted(case.others)
    assert {found[path] for path in case.followed} <= {"Identity"}
    assert {found[path] for path in case.others} <= {"BatchNorm"}
    names = variables(folding.folded)
    assert {name[:-5] for name in names if name.endswith("/mean")} == set(case.others)


def test_model_is_unchanged(folding: Folding) -> None:
    model = trained(folding.case.model())
    graph, before = nnx.graphdef(model), variables(model)
    fold_batch_norm(model, folding.case.input())
    assert nnx.graphdef(model) == graph
    jax.tree.map(np.testing.assert_array_equal, variables(model), before)


def test_shapes_are_enough(folding: Folding) -> None:
    x = folding.case.input()
    abstract, remaining = fold_batch_norm(folding.model, jax.ShapeDtypeStruct(x.shape, x.dtype))
    assert remaining == folding.remaining
    jax.tree.map(np.testing.assert_array_equal, variables(abstract), variables(folding.folded))


@pytest.mark.parametrize("case", [RESNET, CONVNET], ids=lambda case: case.name)
def test_flops_and_bytes_of_the_network_built_without_normalization(case: Case) -> None:
    model = trained(case.model())
    plain = cost(case.make(nnx.Rngs(0), normalized=False), case.input())
    folded, remaining = fold_batch_norm(model, case.input())
    assert not remaining
    assert cost(folded, case.input()) == plain
    normalized = cost(model, case.input())
    assert normalized.flops > plain.flops
    assert normalized.bytes_accessed > plain.bytes_accessed


@pytest.mark.parametrize("case", [RESNET, CONVNET], ids=lambda case: case.name)
def test_has_the_parameters_of_the_network_built_without_normalization(case: Case) -> None:
    folded, _ = fold_batch_norm(trained(case.model()), case.input())
    plain = case.make(nnx.Rngs(0), normalized=False)
    shapes = {path: leaf.shape for path, leaf in variables(folded).items()}
    assert shapes == {path: leaf.shape for path, leaf in variables(plain).items()}


@pytest.mark.parametrize("case", [RESNET, CONVNET], ids=lambda case: case.name)
def test_statistics_that_training_moved(case: Case) -> None:
    """The running averages are a training run's own, and the folded model is what was trained."""
    model = case.model()
    apply, params, state = functionalize(model)
    step = jax.jit(lambda state, x: apply(params, state, x, train=True)[1])
    for shift in (0.5, 1.0, 2.0):
        state = step(state, shift * case.input() + shift)
    nnx.update(model, state)
    folded, remaining = fold_batch_norm(model, case.input())
    assert not remaining
    wanted, _ = apply(params, state, case.input(), train=False)
    assert np.abs(wanted - evaluated(case.model(), case.input())).max() > 1e-2
    np.testing.assert_allclose(folded(case.input()), wanted, **FLOAT32)


@pytest.mark.parametrize("case", [FOLDABLE[2], REMAINING[0]], ids=lambda case: case.name)
def test_result_is_in_evaluation_mode(case: Case) -> None:
    """Dropout is off, remaining layers use their running averages, and nothing is written."""
    folded, _ = fold_batch_norm(trained(case.model()), case.input())
    before = variables(folded)
    first = folded(case.input())
    np.testing.assert_array_equal(folded(case.input()), first)
    jax.tree.map(np.testing.assert_array_equal, variables(folded), before)


@pytest.mark.parametrize("uses", [(True, False), (False, True), (False, False)])
def test_without_scale_or_shift(uses: tuple[bool, bool]) -> None:
    rngs = nnx.Rngs(0)
    norm = models.norm(rngs, use_scale=uses[0], use_bias=uses[1], epsilon=0.1)
    norm.mean[...], norm.var[...] = jnp.arange(8.0), jnp.arange(1.0, 9.0)
    model = nnx.Sequential(models.dense(rngs, use_bias=False), norm)
    x = jnp.asarray(np.random.default_rng(0).normal(size=(4, 8)), jnp.float32)
    folded, remaining = fold_batch_norm(model, x)
    assert not remaining
    layer: Any = model.layers[0]
    wanted = (np.float64(x) @ np.float64(layer.kernel[...]) - np.arange(8)) / np.sqrt(
        np.arange(1, 9) + 0.1
    )
    np.testing.assert_allclose(folded(x), wanted, **FLOAT32)


class Batchwise(nnx.Module):
    """Normalizes with the batch's statistics whatever the mode."""

    def __init__(self, kind: Any) -> None:
        self.dense, self.norm = models.dense(nnx.Rngs(0)), kind(8, rngs=nnx.Rngs(0))

    def __call__(self, x: Any) -> Any:
        return self.norm(self.dense(x), use_running_average=False)


@pytest.mark.parametrize("kind", [nnx.BatchNorm, BatchNorm])
def test_a_normalization_with_the_batch_s_statistics_remains(kind: Any) -> None:
    model = Batchwise(kind)
    x = jnp.asarray(np.random.default_rng(0).normal(size=(4, 8)), jnp.float32)
    folded, remaining = fold_batch_norm(model, x)
    assert remaining == [("norm",)]
    np.testing.assert_allclose(folded(x), model(x), **FLOAT32)
    replaced: Any = replace_batch_norm(model, x)
    assert isinstance(replaced.norm, Identity)


def test_a_subclass_that_does_more_remains() -> None:
    rngs = nnx.Rngs(0)
    layers = [
        nnx.Linear(5, 8, rngs=rngs),
        models.Activated(8, rngs=rngs),
        nnx.Linear(8, 8, rngs=rngs),
    ]
    model = trained(nnx.Sequential(*layers, nnx.BatchNorm(8, rngs=rngs)))
    x = jnp.asarray(np.random.default_rng(0).normal(size=(4, 5)), jnp.float32)
    folded, remaining = fold_batch_norm(model, x)
    assert remaining == [("layers", 1)]
    np.testing.assert_allclose(folded(x), evaluated(model, x), **FLOAT32)


def test_model_without_batch_norm() -> None:
    model = models.ConvNet(nnx.Rngs(0), normalized=False)
    with pytest.raises(ValueError, match=r"ConvNet has no BatchNorm layer.*nothing to take out"):
        fold_batch_norm(model, CONVNET.input())
