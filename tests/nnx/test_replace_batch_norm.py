"""`replace_batch_norm`: where the scale and bias go, and that both places compute the same."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxnorm.nnx import fold_batch_norm, replace_batch_norm
from tests.nnx import models
from tests.nnx.cases import ALL, CONVNET, RESNET, Case, evaluated, kinds, trained, variables

#: The promise, float32: a few layers with sums over at most 144 weights, on values of order one.
FLOAT32 = {"rtol": 1e-5, "atol": 1e-5}


class Replaced(NamedTuple):
    case: Case
    with_inputs: Any
    without_inputs: Any


@pytest.fixture(scope="module", params=ALL, ids=lambda case: case.name)
def replaced(request: pytest.FixtureRequest) -> Replaced:
    """A model's replacements, which no test changes."""
    case = request.param
    with_inputs = replace_batch_norm(case.model(), case.input())
    return Replaced(case, with_inputs, replace_batch_norm(case.model()))


def test_weight_side_exactly_where_a_kernel_is_followed(replaced: Replaced) -> None:
    case, found = replaced.case, kinds(replaced.with_inputs)
    carried = set(case.followed) - set(case.zeros)
    assert {path for path, kind in found.items() if kind == "Identity"} == carried
    layers = {path for path, kind in found.items() if kind == "ScaleAndBias"}
    assert layers == {*case.others, *case.zeros}
    assert "BatchNorm" not in found.values()


def test_without_inputs_every_one_is_a_layer(replaced: Replaced) -> None:
    case, found = replaced.case, kinds(replaced.without_inputs)
    layers = {path for path, kind in found.items() if kind == "ScaleAndBias"}
    assert layers == {*case.followed, *case.others}
    assert not {"Identity", "BatchNorm"} & set(found.values())


def test_every_other_module_stays(replaced: Replaced) -> None:
    case, before = replaced.case, kinds(replaced.case.model())
    for after in (kinds(replaced.with_inputs), kinds(replaced.without_inputs)):
        assert list(before) == list(after)
        changed = {path for path in before if before[path] != after[path]}
        assert changed == {*case.followed, *case.others}


def test_model_is_unchanged(replaced: Replaced) -> None:
    model = trained(replaced.case.model())
    graph, before = nnx.graphdef(model), variables(model)
    replace_batch_norm(model, replaced.case.input())
    replace_batch_norm(model)
    assert nnx.graphdef(model) == graph
    jax.tree.map(np.testing.assert_array_equal, variables(model), before)


def test_no_running_statistics(replaced: Replaced) -> None:
    assert jax.tree.leaves(nnx.state(replaced.case.model(), nnx.BatchStat))
    for model in (replaced.with_inputs, replaced.without_inputs):
        assert not jax.tree.leaves(nnx.state(model, nnx.BatchStat))


def test_shapes_are_enough(replaced: Replaced) -> None:
    x = replaced.case.input()
    abstract = replace_batch_norm(replaced.case.model(), jax.ShapeDtypeStruct(x.shape, x.dtype))
    assert kinds(abstract) == kinds(replaced.with_inputs)
    jax.tree.map(
        np.testing.assert_array_equal, variables(abstract), variables(replaced.with_inputs)
    )


@pytest.mark.parametrize("with_inputs", [True, False])
@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_new_model_is_the_old_one_without_its_normalization(case: Case, with_inputs: bool) -> None:
    """In place of (x - 0) / sqrt(1 + eps) there is x: with eps = 0 a new model is the same."""
    inputs = (case.input(),) if with_inputs else ()
    model = case.model()
    for _, norm in nnx.iter_modules(model):
        if isinstance(norm, nnx.BatchNorm):
            norm.epsilon = 0.0
            norm.bias[...] = jnp.linspace(-1.0, 1.0, norm.num_features)
    wanted = evaluated(model, case.input())
    got = evaluated(replace_batch_norm(model, *inputs), case.input())
    np.testing.assert_allclose(got, wanted, **FLOAT32)


def test_scale_that_a_kernel_cannot_carry_becomes_a_layer_s() -> None:
    model = trained(CONVNET.model())
    replaced: Any = replace_batch_norm(model, CONVNET.input())
    np.testing.assert_array_equal(replaced.norm1.channel_scale[...], model.norm1.scale[...])
    np.testing.assert_array_equal(replaced.norm1.bias[...], model.norm1.bias[...])
    assert replaced.conv1.bias is None


@pytest.mark.parametrize("with_inputs", [True, False])
def test_custom_replacement_is_used_for_every_one(with_inputs: bool) -> None:
    inputs = (RESNET.input(),) if with_inputs else ()
    made = []

    def group_norm(norm: nnx.BatchNorm) -> nnx.GroupNorm:
        made.append(norm.num_features)
        return nnx.GroupNorm(norm.num_features, num_groups=2, rngs=nnx.Rngs(0))

    replaced = replace_batch_norm(RESNET.model(), *inputs, with_=group_norm)
    found = kinds(replaced)
    assert {found[path] for path in RESNET.followed} == {"GroupNorm"}
    assert sorted(made) == [8, 8, 8, 16, 16, 16]
    assert np.isfinite(replaced(RESNET.input())).all()


def test_model_that_is_a_batch_norm() -> None:
    replaced = replace_batch_norm(models.norm(nnx.Rngs(0)), jnp.ones((2, models.WIDTH)))
    assert type(replaced).__name__ == "ScaleAndBias"


def test_model_without_batch_norm() -> None:
    model = models.ConvNet(nnx.Rngs(0), normalized=False)
    with pytest.raises(ValueError, match=r"ConvNet has no BatchNorm layer.*nothing to take out"):
        replace_batch_norm(model, CONVNET.input())


@pytest.mark.parametrize("with_inputs", [True, False])
def test_a_subclass_that_does_more_needs_a_replacement_of_one_s_own(with_inputs: bool) -> None:
    """Its activation was gone without a word."""
    rngs, inputs = nnx.Rngs(0), (jnp.ones((2, 5)),) if with_inputs else ()
    model = nnx.Sequential(nnx.Linear(5, 8, rngs=rngs), models.Activated(8, rngs=rngs))
    with pytest.raises(ValueError, match=r"Activated has a __call__ of its own.*with_="):
        replace_batch_norm(model, *inputs)
    replaced = replace_batch_norm(model, *inputs, with_=lambda norm: nnx.Dropout(0.0))
    assert kinds(replaced)["layers/1"] == "Dropout"


class Frozen(nnx.Param[Any]):
    """What an optimizer's filter leaves out."""


def test_scales_and_biases_stay_of_their_own_kind() -> None:
    """A frozen bias became a parameter like any other, and was trained."""
    rngs, x = nnx.Rngs(0), jnp.ones((2, 5))
    norm = nnx.BatchNorm(8, rngs=rngs)
    norm.scale, norm.bias = Frozen(jnp.ones(8), tag="scale"), Frozen(jnp.ones(8), tag="bias")
    model = nnx.Sequential(nnx.Linear(5, 8, use_bias=False, rngs=rngs), norm)
    layer = replace_batch_norm(model).layers[1]
    in_layer = (layer.channel_scale, layer.bias)
    in_linear = (replace_batch_norm(model, x).layers[0].bias,)
    folded = (fold_batch_norm(model, x).model.layers[0].bias,)
    assert {type(variable) for variable in in_layer + in_linear + folded} == {Frozen}
    tags = [variable.get_metadata("tag") for variable in in_layer + in_linear + folded]
    assert tags == ["scale", "bias", "bias", "bias"]


@pytest.mark.parametrize("with_inputs", [True, False])
def test_normalizations_that_share_scale_and_bias_share_them_still(with_inputs: bool) -> None:
    """As those of several domains: each has statistics of its own, and the affine part is one."""
    rngs, x = nnx.Rngs(0), jnp.ones((2, 8))
    norms = [nnx.BatchNorm(8, rngs=rngs) for _ in range(2)]
    norms[1].scale, norms[1].bias = norms[0].scale, norms[0].bias
    first, last = (nnx.Linear(8, 8, rngs=rngs) for _ in range(2))
    model = nnx.Sequential(first, norms[0], nnx.relu, last, norms[1])
    replaced = replace_batch_norm(model, *((x,) if with_inputs else ()))
    one, other = replaced.layers[1], replaced.layers[4]
    assert one.bias is other.bias
    assert one.channel_scale is other.channel_scale
    assert one.bias is not norms[0].bias


def test_several_feature_axes_need_a_replacement_of_one_s_own() -> None:
    model = CONVNET.model()
    model.norm2.axis = (-2, -1)
    with pytest.raises(ValueError, match=r"axes \(-2, -1\); wanted one feature axis.*with_="):
        replace_batch_norm(model)
    identical = replace_batch_norm(model, with_=lambda norm: nnx.Dropout(0.0))
    assert kinds(identical)["norm2"] == "Dropout"
