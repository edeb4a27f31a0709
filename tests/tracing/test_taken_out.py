"""Where a BatchNorm's bias may go: what is seen in training only, and transposed convolutions."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxnorm import Scaled, constraint_drift, project, reparametrize, traced_layout
from jaxnorm.nnx import fold_batch_norm, functionalize, replace_batch_norm
from tests.nnx.cases import evaluated, kinds, slashed, trained
from tests.nnx.models import WIDTH, Custom, dense, norm
from tests.tolerances import DRIFT

#: One or two layers with sums over at most 72 weights, values of order one.
FLOAT32 = {"rtol": 1e-5, "atol": 1e-5}


def draw(*shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(0).normal(size=shape), jnp.float32)


class Trained(nnx.Module):
    """A layer and its normalization, with something that is done in training alone."""

    def __init__(self, forward: Any, rngs: nnx.Rngs) -> None:
        self.layer, self.norm = dense(rngs), norm(rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)
        self.seen = nnx.Variable(jnp.zeros(()))
        self.forward = forward

    def __call__(self, x: Any, train: bool = False) -> Any:
        return self.forward(self, x, train)


def dropped(m: Any, x: Any, train: bool) -> Any:
    """The bias in front of the dropout would be dropped too."""
    del train
    return m.norm(m.dropout(m.layer(x)))


def returned(m: Any, x: Any, train: bool) -> Any:
    y = m.layer(x)
    return (m.norm(y), y) if train else m.norm(y)


def stored(m: Any, x: Any, train: bool) -> Any:
    y = m.layer(x)
    if train:
        m.seen[...] = y.mean()
    return m.norm(y)


def decayed(m: Any, x: Any, train: bool) -> Any:
    y = m.norm(m.layer(x))
    return y + (m.layer.bias[...] ** 2).sum() if train else y


@pytest.mark.parametrize("forward", [dropped, returned, stored, decayed])
def test_what_is_read_in_training_only_keeps_its_layer(forward: Any) -> None:
    model = Trained(forward, nnx.Rngs(0))
    model.norm.bias[...] = jnp.linspace(-1.0, 1.0, WIDTH)
    x = draw(6, WIDTH)
    replaced: Any = replace_batch_norm(model, x)
    assert kinds(replaced)["norm"] == "ScaleAndBias"
    np.testing.assert_array_equal(replaced.layer.bias[...], model.layer.bias[...])
    # In evaluation it is the kernel's all the same.
    folded, remaining = fold_batch_norm(trained(model), x)
    assert not remaining
    np.testing.assert_allclose(folded(x), evaluated(model, x), **FLOAT32)


def test_in_training_the_replaced_network_has_the_bias_that_it_had() -> None:
    """Behind the dropout: where everything is dropped, the bias alone is left."""
    model = Trained(dropped, nnx.Rngs(0))
    model.dropout.rate = 1.0
    model.norm.bias[...] = jnp.linspace(-1.0, 1.0, WIDTH)
    replaced: Any = replace_batch_norm(model, draw(6, WIDTH))
    replaced.train()
    wanted = np.broadcast_to(np.linspace(-1.0, 1.0, WIDTH), (6, WIDTH))
    np.testing.assert_allclose(replaced(draw(6, WIDTH), train=True), wanted, **FLOAT32)


def test_a_model_that_cannot_be_called_in_training_says_what_it_needs() -> None:
    """Its dropout gets its random numbers with the call."""

    class Model(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.layer, self.norm, self.dropout = dense(rngs), norm(rngs), nnx.Dropout(0.5)

        def __call__(self, x: Any, rngs: Any = None) -> Any:
            return self.dropout(self.norm(self.layer(x)), rngs=rngs)

    model, x = Model(nnx.Rngs(0)), draw(6, WIDTH)
    with pytest.raises(ValueError, match=r"read in training too.*rngs=nnx\.Rngs\(0\)"):
        replace_batch_norm(model, x)
    assert kinds(replace_batch_norm(model, x, rngs=nnx.Rngs(1)))["norm"] == "Identity"
    assert kinds(replace_batch_norm(model))["norm"] == "ScaleAndBias"


def by_hand(m: Any, x: Any) -> Any:
    """A kernel that is used without its layer, whose bias nothing would add."""
    return m.norm(x @ m.layer.kernel[...])


@pytest.mark.parametrize("use_bias", [True, False])
def test_a_layer_that_is_never_called_keeps_its_kernel(use_bias: bool) -> None:
    rngs = nnx.Rngs(0)
    model = trained(Custom(by_hand, layer=dense(rngs, use_bias=use_bias), norm=norm(rngs)))
    x = draw(6, WIDTH)
    folded, remaining = fold_batch_norm(model, x)
    assert list(map(slashed, remaining)) == ["norm"]
    np.testing.assert_allclose(folded(x), evaluated(model, x), **FLOAT32)


def test_a_layer_inside_a_loop_keeps_its_kernel() -> None:
    """Its kernel may be one of many, stacked."""
    rngs = nnx.Rngs(0)

    def forward(m: Any, x: Any) -> Any:
        return jax.lax.scan(lambda h, _: (m.norm(m.layer(h)), None), x, length=2)[0]

    model = trained(Custom(forward, layer=dense(rngs), norm=norm(rngs)))
    _, remaining = fold_batch_norm(model, draw(6, WIDTH))
    assert list(map(slashed, remaining)) == ["norm"]


#: Ways to add a layer's own bias by hand that are not one value a unit.
ASKEW: dict[str, Any] = {
    "one for all": lambda b: jnp.broadcast_to(b[:1], (WIDTH, WIDTH)),
    "one a row": lambda b: jnp.broadcast_to(b[:, None], (WIDTH, WIDTH)),
    "turned round": lambda b: jax.lax.rev(b, (0,))[None],
}


@pytest.mark.parametrize("name", ASKEW)
def test_a_bias_that_is_not_one_a_unit_stays(name: str) -> None:
    rngs = nnx.Rngs(0)

    def forward(m: Any, x: Any) -> Any:
        return m.norm(x @ m.layer.kernel[...] + ASKEW[name](m.layer.bias[...]))

    model = trained(Custom(forward, layer=dense(rngs), norm=norm(rngs)))
    model.layer.bias[...] = jnp.linspace(-1.0, 1.0, WIDTH)
    x = draw(WIDTH, WIDTH)
    folded, remaining = fold_batch_norm(model, x)
    assert list(map(slashed, remaining)) == ["norm"]
    np.testing.assert_allclose(folded(x), evaluated(model, x), **FLOAT32)


def test_layers_that_share_a_bias_keep_it() -> None:
    """Folded into both kernels, it would have to be two biases."""
    rngs = nnx.Rngs(0)
    layers = {"layer": dense(rngs), "norm": norm(rngs), "second": dense(rngs)}
    layers["second"].bias = layers["layer"].bias
    model = trained(Custom(lambda m, x: m.second(nnx.relu(m.norm(m.layer(x)))), **layers))
    model.layer.bias[...] = jnp.linspace(-1.0, 1.0, WIDTH)
    x = draw(6, WIDTH)
    folded, remaining = fold_batch_norm(model, x)
    assert list(map(slashed, remaining)) == ["norm"]
    np.testing.assert_allclose(folded(x), evaluated(model, x), **FLOAT32)


#: Forms of a layer's output whose last axis does not count its units, in their order.
MOVED: dict[str, Any] = {
    "turned round": lambda y: jax.lax.rev(y, (1,)),
    "a half of them": lambda y: y.reshape(12, WIDTH // 2),
    "one of them": lambda y: y[:, :1],
    "beside a copy": lambda y: jnp.concatenate([y, y], -1).reshape(-1, WIDTH),
    "transposed": lambda y: jnp.tile(y, (2, 1))[:WIDTH].T,
    "sorted": lambda y: jnp.sort(y, axis=1),
}


@pytest.mark.parametrize("name", MOVED)
def test_units_that_are_moved_are_not_those_of_the_normalization(name: str) -> None:
    rngs = nnx.Rngs(0)
    features = MOVED[name](jnp.ones((6, WIDTH))).shape[-1]
    layers = {"layer": dense(rngs), "norm": nnx.BatchNorm(features, rngs=rngs)}
    model = trained(Custom(lambda m, x: m.norm(MOVED[name](m.layer(x))), **layers))
    x = draw(6, WIDTH)
    folded, remaining = fold_batch_norm(model, x)
    assert list(map(slashed, remaining)) == ["norm"]
    np.testing.assert_allclose(folded(x), evaluated(model, x), **FLOAT32)


#: Transposed convolutions: (settings, shape of the input, whether the BatchNorm goes into them).
TRANSPOSED: dict[str, tuple[dict[str, Any], tuple[int, ...], bool]] = {
    "as it is": ({}, (2, 5, 5, 4), True),
    "strided, without bias": ({"strides": 2, "use_bias": False}, (2, 5, 5, 4), True),
    "with its kernel": ({"transpose_kernel": True, "strides": 2}, (2, 5, 5, 4), True),
    "dilated": ({"kernel_dilation": 2, "padding": "VALID"}, (2, 5, 5, 4), True),
    "one image": ({"transpose_kernel": True}, (5, 5, 4), True),
    "more batch axes": ({}, (2, 3, 5, 5, 4), True),
    "circular: summed after the product": ({"padding": "CIRCULAR"}, (2, 5, 5, 4), False),
    "masked": ({"mask": jnp.ones((3, 3, 4, WIDTH)).at[0].set(0.0)}, (2, 5, 5, 4), False),
}


def deconvolution(**settings: Any) -> Any:
    rngs = nnx.Rngs(0)
    layer = nnx.ConvTranspose(4, WIDTH, (3, 3), rngs=rngs, **settings)
    if layer.bias is not None:
        layer.bias[...] = jnp.linspace(-1.0, 1.0, WIDTH)
    return Custom(lambda m, x: m.norm(m.layer(x)), layer=layer, norm=norm(rngs))


@pytest.mark.parametrize("name", TRANSPOSED)
def test_a_transposed_convolution_folds(name: str) -> None:
    settings, shape, folds = TRANSPOSED[name]
    model, x = trained(deconvolution(**settings)), draw(*shape)
    folded, remaining = fold_batch_norm(model, x)
    assert list(map(slashed, remaining)) == ([] if folds else ["norm"])
    np.testing.assert_allclose(folded(x), evaluated(model, x), **FLOAT32)


@pytest.mark.parametrize("transpose_kernel", [False, True])
def test_a_transposed_convolution_goes_to_the_weight_side(transpose_kernel: bool) -> None:
    """Its units, as traced, have the scale; the network computes what it did, and is projected."""
    model, x = deconvolution(transpose_kernel=transpose_kernel, use_bias=False), draw(2, 5, 5, 4)
    model.norm.bias[...] = jnp.linspace(-1.0, 1.0, WIDTH)
    model.norm.epsilon = 0.0
    replaced = replace_batch_norm(model, x)
    assert kinds(replaced)["norm"] == "Identity"
    np.testing.assert_allclose(replaced(x), evaluated(model, x), **FLOAT32)
    apply, params, state = functionalize(replaced)
    layout = traced_layout(lambda p, x: apply(p, state, x, train=False)[0], params, x)
    raw = project(reparametrize(params, Scaled, layout), layout=layout)
    assert raw["layer"]["kernel"].scale.shape == (WIDTH,)
    assert max(map(float, constraint_drift(raw, layout=layout).values())) < DRIFT
