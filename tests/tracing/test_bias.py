"""Pre-activations have their bias at any batch size, on one sample and under vmap."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxnorm import torch_layout
from jaxnorm.losses import collect_preactivations, variance_constancy_loss
from jaxnorm.nnx import functionalize
from tests.tolerances import FLOAT32

ROWS, INPUTS, UNITS = 6, 3, 5
RNG = np.random.default_rng(0)


def draw(*shape: int) -> jax.Array:
    return jnp.asarray(RNG.normal(size=shape), jnp.float32)


X, W, B = draw(ROWS, INPUTS), draw(INPUTS, UNITS), 10 + draw(UNITS)
WANTED = np.asarray(X, np.float64) @ np.asarray(W, np.float64) + np.asarray(B, np.float64)
PARAMS = {"kernel": W, "bias": B}
TURNED = {"weight": W.T, "bias": B}


def rows(p: Any, x: Any) -> Any:
    return jnp.tanh(x @ p["kernel"] + jnp.expand_dims(p["bias"], range(x.ndim - 1)))


def broadcast(p: Any, x: Any) -> Any:
    """Haiku's: the bias is spread over the rows before it is added."""
    h = x @ p["kernel"]
    return jnp.tanh(h + jnp.broadcast_to(p["bias"], h.shape))


def idiom(p: Any, x: Any) -> Any:
    """Equinox's, on one sample at a time: under vmap the product is (units, batch)."""
    return jax.vmap(lambda row: jnp.tanh(p["weight"] @ row + p["bias"]))(x)


def columns(p: Any, x: Any) -> Any:
    return jnp.tanh(p["weight"] @ x.T + p["bias"][:, None]).T


def jitted_bias(p: Any, x: Any) -> Any:
    return jnp.tanh(jax.jit(lambda h: h + p["bias"][None])(x @ p["kernel"]))


def rescaled_bias(p: Any, x: Any) -> Any:
    """As networks with an equalized learning rate have it."""
    return jnp.tanh(x @ p["kernel"] + (0.5 * p["bias"] + 0.5 * p["bias"])[None])


FORMS = {
    "rows": (rows, PARAMS),
    "broadcast": (broadcast, PARAMS),
    "jitted bias": (jitted_bias, PARAMS),
    "rescaled bias": (rescaled_bias, PARAMS),
    "vmap over samples": (idiom, TURNED),
    "columns": (columns, TURNED),
}


def collected(apply: Any, params: Any, x: Any) -> Any:
    layout = {"layout": torch_layout} if "weight" in params else {}
    output, layers = collect_preactivations(apply, params, x, **layout)
    np.testing.assert_allclose(output, apply(params, x), **FLOAT32)
    return next(iter(layers.values()))


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("count", [1, 2, ROWS])
def test_any_batch(name: str, count: int) -> None:
    apply, params = FORMS[name]
    np.testing.assert_allclose(collected(apply, params, X[:count]), WANTED[:count], **FLOAT32)


def test_one_sample() -> None:
    np.testing.assert_allclose(collected(rows, PARAMS, X[0]), WANTED[0], **FLOAT32)
    single = lambda p, x: p["weight"] @ x + p["bias"]  # noqa: E731
    np.testing.assert_allclose(collected(single, TURNED, X[0]), WANTED[0], **FLOAT32)


def test_without_a_bias_the_rows_are_first_too() -> None:
    """The product of `jax.vmap` has the units first."""
    apply = lambda p, x: jax.vmap(lambda row: jnp.tanh(p["weight"] @ row))(x)  # noqa: E731
    params = {"weight": W.T}
    wanted = WANTED - np.asarray(B)
    np.testing.assert_allclose(collected(apply, params, X), wanted, **FLOAT32)


def test_the_gradient_is_that_of_the_product_and_its_bias() -> None:
    def loss(p: Any) -> Any:
        return collected_rows(p).sum()

    def collected_rows(p: Any) -> Any:
        layers = collect_preactivations(idiom, p, X[:2], layout=torch_layout)[1]
        return layers["weight"]

    gradient = jax.grad(loss)(TURNED)
    wanted = np.broadcast_to(np.asarray(X[:2], np.float64).sum(0), (UNITS, INPUTS))
    np.testing.assert_allclose(gradient["weight"], wanted, **FLOAT32)
    np.testing.assert_allclose(gradient["bias"], np.full(UNITS, 2.0), **FLOAT32)


class Perceptron(eqx.Module):
    first: eqx.nn.Linear
    last: eqx.nn.Linear

    def __init__(self) -> None:
        keys = jax.random.split(jax.random.key(0))
        self.first = eqx.nn.Linear(INPUTS, UNITS, key=keys[0])
        self.last = eqx.nn.Linear(UNITS, 2, key=keys[1])

    def __call__(self, x: Any) -> Any:
        return self.last(jnp.tanh(self.first(x)))


def test_the_loss_of_an_equinox_model_against_numpy() -> None:
    params, static = eqx.partition(Perceptron(), eqx.is_array)
    apply = lambda p, x: jax.vmap(eqx.combine(p, static))(x)  # noqa: E731
    _, layers = collect_preactivations(apply, params, X, layout=torch_layout)
    p = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
    h = np.asarray(X, np.float64) @ p.first.weight.T + p.first.bias
    np.testing.assert_allclose(layers["first/weight"], h, **FLOAT32)
    got = variance_constancy_loss(layers["first/weight"], jnp.ones(UNITS), 3)
    variances = [part.var(0, ddof=1) for part in (h[:3], h[3:])]
    wanted = np.square(1 - variances[0] / (variances[1] + 1)).mean()
    np.testing.assert_allclose(got, wanted, **FLOAT32)


def test_a_library_s_layers_on_one_sample() -> None:
    """A bias of 10 is in row 0, alone or not."""
    model = nnx.Linear(INPUTS, UNITS, bias_init=nnx.initializers.constant(10.0), rngs=nnx.Rngs(0))
    apply, params, state = functionalize(model)
    forward = lambda p, x: apply(p, state, x, train=True)[0]  # noqa: E731
    whole = collected(forward, params, X)
    for x, wanted in ((X[:1], whole[:1]), (X[0], whole[0])):
        np.testing.assert_allclose(collected(forward, params, x), wanted, **FLOAT32)


def test_a_convolution_of_one_image() -> None:
    image, kernel, bias = draw(4, 4, 2), draw(1, 1, 2, 3), draw(3)
    params = {"kernel": kernel, "bias": bias}

    def apply(p: Any, x: Any) -> Any:
        h = jax.lax.conv_general_dilated(
            x[None], p["kernel"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )[0]
        return h + p["bias"][None, None]

    wanted = np.asarray(image, np.float64) @ np.asarray(kernel[0, 0], np.float64)
    wanted = wanted + np.asarray(bias)
    np.testing.assert_allclose(collected(apply, params, image), wanted, **FLOAT32)


@pytest.mark.parametrize("alone", [False, True], ids=["batch", "vmap of one"])
def test_units_come_last_where_channels_are_first(alone: bool) -> None:
    """Else the loss that takes all axes but the last for samples takes columns for units."""
    images, kernel, bias = draw(8, 2, 4, 3), draw(5, 2, 1, 1), draw(5, 1, 1)

    def convolved(p: Any, x: Any) -> Any:
        h = jax.lax.conv_general_dilated(
            x, p["weight"], (1, 1), "SAME", dimension_numbers=("NCHW", "OIHW", "NCHW")
        )
        return h + p["bias"][None]

    one = lambda p, x: convolved(p, x[None])[0]  # noqa: E731
    apply = (lambda p, x: jax.vmap(lambda x: one(p, x))(x)) if alone else convolved
    params = {"weight": kernel, "bias": bias}
    output, layers = collect_preactivations(apply, params, images, layout=torch_layout)
    wide = [np.asarray(a, np.float64) for a in (images, kernel[..., 0, 0], bias[:, 0, 0])]
    wanted = np.einsum("bihw,oi->bhwo", *wide[:2]) + wide[2]
    np.testing.assert_allclose(layers["weight"].reshape(wanted.shape), wanted, **FLOAT32)
    np.testing.assert_allclose(output, np.moveaxis(wanted, -1, 1), **FLOAT32)
    got = variance_constancy_loss(layers["weight"], jnp.ones(5), 4, sample_axes=None)
    first, second = (part.reshape(-1, 5).var(0, ddof=1) for part in (wanted[:4], wanted[4:]))
    np.testing.assert_allclose(got, np.square(1 - first / (second + 1)).mean(), **FLOAT32)


#: What is no bias: it depends on the inputs, however few numbers it has.
SHIFTED = {
    "a residual sum": lambda p, x: x @ p["kernel"] + x,
    "a condition": lambda p, x: x @ p["kernel"] + x.mean(0, keepdims=True),
    "a number": lambda p, x: x @ p["kernel"] + 0.5,
    "another product": lambda p, x: x @ p["kernel"] + jnp.ones((1, 3)) @ jnp.square(p["kernel"]),
    "after the activation": lambda p, x: jnp.tanh(x @ p["kernel"]) + p["bias"][None],
    "spread over more rows": lambda p, x: (
        jnp.broadcast_to(x @ p["kernel"], (2, *x.shape)) + p["bias"][None, None]
    ),
    "read before": lambda p, x: (h := x @ p["kernel"]) * (h + p["bias"][None]),
}


@pytest.mark.parametrize("name", SHIFTED)
@pytest.mark.parametrize("count", [1, ROWS])
def test_what_is_no_bias(name: str, count: int) -> None:
    x = draw(ROWS, INPUTS)[:count]
    params = {"kernel": draw(INPUTS, INPUTS), "bias": draw(INPUTS)}
    wanted = np.asarray(x, np.float64) @ np.asarray(params["kernel"], np.float64)
    np.testing.assert_allclose(collected(SHIFTED[name], params, x), wanted, **FLOAT32)
