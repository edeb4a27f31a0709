"""Losses that `replace_batch_norm` warns of: running statistics, and standardized data."""

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxnorm.nnx import (
    BatchNorm,
    PopulationNorm,
    ScaleAndBias,
    fold_batch_norm,
    functionalize,
    replace_batch_norm,
)
from tests.draws import draw
from tests.nnx.models import CASES, WIDTH, Custom, dense, evaluated, kinds, norm, trained

X = draw(0, 6, WIDTH)


def silent(call: Callable[..., Any], *args: Any, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return call(*args, **options)


def two(*norms: Any) -> Any:
    """Two layers, each with a normalization."""
    rngs = nnx.Rngs(0)
    return nnx.Sequential(dense(rngs), norms[0], nnx.relu, dense(rngs), norms[1])


def by_calls(model: Any) -> Any:
    """Model after an update in training, as its statistics move."""
    apply, params, state = functionalize(model)
    nnx.update(model, params, apply(params, state, X + 1, train=True)[1])
    return model


def refreshed(model: Any) -> Any:
    nnx.view(model, refresh=True)(X + 1)
    return model


KINDS: dict[str, Callable[[], Any]] = {
    "flax": lambda: norm(nnx.Rngs(0)),
    "jaxnorm": lambda: BatchNorm(WIDTH),
    "mean alone": lambda: BatchNorm(WIDTH, use_variance=False),
    "variance alone": lambda: BatchNorm(WIDTH, use_mean=False),
    "without scale and bias": lambda: BatchNorm(WIDTH, use_scale=False, use_bias=False),
}


@pytest.mark.parametrize("inputs", [(), (X,)], ids=["without inputs", "with inputs"])
@pytest.mark.parametrize("kind", KINDS)
def test_moved_statistics_are_warned_of_with_the_way_that_keeps_them(
    kind: str, inputs: Any
) -> None:
    model = two(KINDS[kind](), KINDS[kind]())
    silent(replace_batch_norm, model, *inputs)
    by_calls(model)
    with pytest.warns(UserWarning, match=r"2 of 2.*layers/1, layers/4.*fold_batch_norm"):
        replace_batch_norm(model, *inputs)
    folded, remaining = silent(fold_batch_norm, model, X)
    assert not remaining
    np.testing.assert_allclose(folded(X), evaluated(model, X), rtol=1e-5, atol=1e-5)


def test_population_statistics_are_warned_of() -> None:
    model = two(PopulationNorm(WIDTH), PopulationNorm(WIDTH))
    silent(replace_batch_norm, model)
    with pytest.warns(UserWarning, match="2 of 2"):
        replace_batch_norm(refreshed(model))


def test_only_moved_layers_are_named() -> None:
    """One value of one layer is enough; trained scales and biases are kept, so none counts."""
    model: Any = two(norm(nnx.Rngs(0)), norm(nnx.Rngs(0)))
    for place in (1, 4):
        model.layers[place].scale[...] = jnp.full(WIDTH, 2.0)
        model.layers[place].bias[...] = jnp.full(WIDTH, 3.0)
    layer = silent(replace_batch_norm, model).layers[4]
    assert layer.channel_scale[...].tolist() == WIDTH * [2.0]
    model.layers[4].var[...] = model.layers[4].var[...].at[3].set(1.5)
    with pytest.warns(UserWarning, match=r"1 of 2 BatchNorm layers \(layers/4\)"):
        replace_batch_norm(model)


def test_statistics_that_are_not_finite_are_not_those_of_the_start() -> None:
    model: Any = two(norm(nnx.Rngs(0)), norm(nnx.Rngs(0)))
    model.layers[1].mean[...] = jnp.full(WIDTH, jnp.nan)
    with pytest.warns(UserWarning, match="1 of 2"):
        replace_batch_norm(model)


def group_norm(layer: Any) -> nnx.Module:
    return nnx.GroupNorm(layer.num_features, num_groups=2, rngs=nnx.Rngs(0))


def with_statistics(layer: Any) -> nnx.Module:
    """The layer in evaluation, as a scale and a bias."""
    scale = layer.scale[...] / jnp.sqrt(layer.var[...] + layer.epsilon)
    new = ScaleAndBias(layer.num_features)
    new.channel_scale = nnx.Param(scale)
    new.bias = nnx.Param(layer.bias[...] - layer.mean[...] * scale)
    return new


def test_other_layers_in_their_place_lose_the_statistics_too() -> None:
    model = two(norm(nnx.Rngs(0)), norm(nnx.Rngs(0)))
    silent(replace_batch_norm, model, replacement=group_norm)
    with pytest.warns(UserWarning, match="2 of 2"):
        replace_batch_norm(trained(model), replacement=group_norm)
    silent(replace_batch_norm, model, replacement=lambda layer: layer)


def test_a_folded_model_is_replaced_in_silence_or_keeps_what_remains() -> None:
    """The advice for layers that no kernel can take in: a replacement of their statistics."""
    case = CASES["preactivation"]
    model, x = trained(case.model()), case.input()
    folded, remaining = fold_batch_norm(model, x)
    assert remaining == [("norm1",)]
    with pytest.warns(UserWarning, match=r"1 of 1.*remaining need a replacement="):
        new = replace_batch_norm(folded, x, replacement=with_statistics)
    assert kinds(new)["norm1"] == "ScaleAndBias"
    np.testing.assert_allclose(new(x), evaluated(model, x), rtol=1e-4, atol=1e-5)


class Reading(nnx.Module):
    """Normalization of a function of the inputs, a layer with another one, and a head."""

    def __init__(self, function: Callable[..., Any], features: int):
        rngs = nnx.Rngs(0)
        self.function = function
        self.first = nnx.BatchNorm(WIDTH, rngs=rngs)
        self.norm = nnx.BatchNorm(features, rngs=rngs)
        self.layer, self.other = nnx.Linear(features, WIDTH, rngs=rngs), dense(rngs)
        self.layer_norm = nnx.LayerNorm(WIDTH, rngs=rngs)
        self.embed = nnx.Embed(5, WIDTH, rngs=rngs)

    def __call__(self, *inputs: Any) -> Any:
        return self.first(self.layer(self.norm(self.function(self, *inputs))))


def cropped(m: Any, x: Any, y: Any) -> Any:
    return jnp.swapaxes(x[:4], 0, 1)[:, :WIDTH].reshape(-1, WIDTH)


#: Functions of two arrays that no kernel computes.
INPUTS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "one of two": lambda m, x, y: y,
    "reshaped": lambda m, x, y: x.reshape(3, 2, WIDTH),
    "cropped": cropped,
    "both": lambda m, x, y: jnp.concatenate([x, y], -1),
    "cast": lambda m, x, y: jnp.round(9 * x).astype(jnp.int32).astype(jnp.float32),
    "activation": lambda m, x, y: nnx.relu(x),
    "difference": lambda m, x, y: x - y,
    "masked by an input": lambda m, x, y: jnp.where(y > 0, x, 0.0),
    "scaled by parameters": lambda m, x, y: m.layer_norm(x),
    "beside a layer's output": lambda m, x, y: jnp.concatenate([x, m.other(y)], -1),
    "in a loop": lambda m, x, y: jax.lax.map(lambda row: 2 * row, x),
}


@pytest.mark.parametrize("name", INPUTS)
def test_a_normalization_of_the_inputs_is_warned_of(name: str) -> None:
    features = 2 * WIDTH if name in ("both", "beside a layer's output") else WIDTH
    model = Reading(INPUTS[name], features)
    with pytest.warns(UserWarning, match=r"layers norm read.*standardize.*training rows"):
        replace_batch_norm(model, X, X)


#: Functions of two arrays with a layer in them.
LAYERS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "layer": lambda m, x, y: nnx.relu(m.other(x)),
    "sum": lambda m, x, y: x + m.other(x),
    "gated": lambda m, x, y: m.other(x) * (y > 0).astype(jnp.float32),
    "masked": lambda m, x, y: jnp.where(y > 0, m.other(x), 0.0),
    "embedding": lambda m, x, y: m.embed((y > 0).astype(jnp.int32)[:, 0]),
    "layer of the other": lambda m, x, y: m.other(y),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_normalization_of_a_layer_s_output_is_not(name: str) -> None:
    silent(replace_batch_norm, Reading(LAYERS[name], WIDTH), X, X)


class ByChannel(nnx.Module):
    """Images with channels first, normalized before their convolution."""

    def __init__(self) -> None:
        rngs = nnx.Rngs(0)
        self.norm = nnx.BatchNorm(3, axis=1, rngs=rngs)
        self.conv = nnx.Conv(3, WIDTH, (3, 3), rngs=rngs)

    def __call__(self, image: Any) -> Any:
        return self.conv(jnp.moveaxis(self.norm(image), 1, -1))


def test_axes_keywords_and_replacements_make_no_difference() -> None:
    """With ``replacement=`` the model is traced for this alone; a layer that it returns stays."""
    images, model = draw(1, 2, 3, 5, 5), ByChannel()
    with pytest.warns(UserWarning, match="layers norm read"):
        replace_batch_norm(model, image=images)
    with pytest.warns(UserWarning, match="layers norm read"):
        replace_batch_norm(model, images, replacement=lambda _: nnx.Dropout(0.0))
    assert kinds(silent(replace_batch_norm, model))["norm"] == "ScaleAndBias"
    kept = silent(replace_batch_norm, model, images, replacement=lambda layer: layer)
    assert kinds(kept)["norm"] == "BatchNorm"


def test_two_normalizations_in_a_row_both_read_the_inputs() -> None:
    rngs = nnx.Rngs(0)
    layers = {"a": norm(rngs), "b": norm(rngs), "layer": dense(rngs)}
    model = Custom(lambda m, x: m.layer(m.b(m.a(x))), **layers)
    with pytest.warns(UserWarning, match="layers a, b read"):
        replace_batch_norm(model, X)


def abstract(make: Callable[[], Any]) -> Any:
    return nnx.eval_shape(make)


def test_abstract_models_are_replaced_as_shapes_and_warn_of_nothing() -> None:
    """No scale is known to be 1, so a layer keeps each; without scales nothing is left."""
    make = lambda: two(norm(nnx.Rngs(0)), norm(nnx.Rngs(0), use_scale=False))  # noqa: E731
    for model in (
        silent(replace_batch_norm, abstract(make), X),
        silent(abstract, lambda: replace_batch_norm(make(), X)),
    ):
        assert kinds(model)["layers/1"] == "ScaleAndBias"
        assert kinds(model)["layers/4"] == "Identity"
        leaves = jax.tree.leaves(nnx.to_pure_dict(nnx.state(model)))
        assert {type(leaf) for leaf in leaves} == {jax.ShapeDtypeStruct}
    shapes = nnx.to_pure_dict(nnx.state(silent(replace_batch_norm, abstract(make))))
    values = nnx.to_pure_dict(nnx.state(replace_batch_norm(make())))
    assert jax.tree.map(jnp.shape, shapes) == jax.tree.map(jnp.shape, values)


def test_an_abstract_layer_without_a_bias_gets_the_shape_of_one() -> None:
    def make() -> Any:
        rngs = nnx.Rngs(0)
        conv = nnx.Conv(3, WIDTH, (3, 3), use_bias=False, param_dtype=jnp.bfloat16, rngs=rngs)
        return nnx.Sequential(conv, norm(rngs, use_scale=False))

    layer = silent(
        replace_batch_norm, abstract(make), draw(0, 1, 5, 5, 3).astype(jnp.bfloat16)
    ).layers[0]
    assert layer.bias.get_value() == jax.ShapeDtypeStruct((WIDTH,), jnp.bfloat16)


def test_abstract_models_are_not_folded() -> None:
    make = lambda: trained(two(norm(nnx.Rngs(0)), norm(nnx.Rngs(0))))  # noqa: E731
    with pytest.raises(ValueError, match=r"'layers/0/bias' first.*eval_shape.*with its values"):
        fold_batch_norm(abstract(make), X)
    shapes = abstract(lambda: fold_batch_norm(make(), X).model)
    assert kinds(shapes) == kinds(fold_batch_norm(make(), X).model)
