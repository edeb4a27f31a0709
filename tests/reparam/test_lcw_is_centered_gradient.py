"""LCW trains as plain kernels with centred gradients do under SGD, and not under Adam."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxnorm import LinearlyConstrained, centered_gradient, effective, reparametrize
from tests.reparam.table import DIFFERENT, normal
from tests.trees import assert_close, largest_difference

STEPS = 200
#: Two hundred float32 steps, whose rounding errors the momentum sums up: what is promised.
SAME = {"rtol": 0.0, "atol": 5e-6}

Train = Callable[[Any], Any]


def mlp(params: Any, x: jax.Array) -> jax.Array:
    hidden = jnp.tanh(x @ params["first"]["kernel"] + params["first"]["bias"][None])
    return hidden @ params["second"]["kernel"] + params["second"]["bias"][None]


def conv(params: Any, x: jax.Array) -> jax.Array:
    kernel, images = params["kernel"], x.reshape(-1, 4, 4, 2)
    dimensions = ("NHWC", "HWIO", "NHWC")
    out = jax.lax.conv_general_dilated(images, kernel, (1, 1), "SAME", dimension_numbers=dimensions)
    return jnp.tanh(out + params["bias"][None, None, None]).mean((1, 2))


def _mlp_start() -> Any:
    first = {"kernel": 0.2 * normal(0, (32, 8)), "bias": jnp.zeros(8)}
    return {"first": first, "second": {"kernel": 0.4 * normal(1, (8, 3)), "bias": jnp.zeros(3)}}


def _conv_start() -> Any:
    return {"kernel": 0.2 * normal(2, (3, 3, 2, 3)), "bias": jnp.zeros(3)}


MODELS = {"mlp": (mlp, _mlp_start()), "conv": (conv, _conv_start())}
X, Y = 1 + normal(3, (16, 32)), normal(4, (16, 3))


SGD = optax.chain(optax.add_decayed_weights(1e-2), optax.sgd(0.05, momentum=0.9))


def train(
    model: Any, kernels_of: Train, raw: Any, optimizer: optax.GradientTransformation
) -> tuple[Any, Any]:
    """The raw parameters and the kernels after 200 steps."""

    def step(carry: Any, _: Any) -> tuple[Any, None]:
        raw, state = carry
        gradient = jax.grad(lambda r: ((model(kernels_of(r), X) - Y) ** 2).mean())(raw)
        updates, state = optimizer.update(gradient, state, raw)
        return (optax.apply_updates(raw, updates), state), None

    start = (raw, optimizer.init(raw))
    (raw, _), _ = jax.jit(lambda c: jax.lax.scan(step, c, length=STEPS))(start)
    return raw, kernels_of(raw)


def train_lcw(name: str, optimizer: optax.GradientTransformation) -> tuple[Any, Any]:
    model, params = MODELS[name]
    return train(model, effective, reparametrize(params, LinearlyConstrained), optimizer)


def train_centred(name: str, optimizer: optax.GradientTransformation) -> Any:
    model, params = MODELS[name]
    centred = effective(reparametrize(params, LinearlyConstrained))
    chain = optax.chain(centered_gradient(), optimizer)
    return train(model, lambda p: p, centred, chain)[1]


@pytest.mark.parametrize("name", MODELS)
def test_sgd_with_momentum_and_weight_decay(name: str) -> None:
    raw, lcw = train_lcw(name, SGD)
    assert_close(lcw, train_centred(name, SGD), SAME)
    assert largest_difference(lcw, effective(MODELS[name][1])) > 100 * DIFFERENT
    for leaf in jax.tree.leaves(raw):
        if leaf.ndim > 1:
            first = leaf.reshape(-1, leaf.shape[-1])[0]
            np.testing.assert_array_equal(first, np.zeros_like(first))


@pytest.mark.slow
@pytest.mark.usefixtures("standard_promotion")
def test_under_adam_centring_is_not_the_same() -> None:
    _, lcw = train_lcw("mlp", optax.adam(1e-2))
    assert largest_difference(lcw, train_centred("mlp", optax.adam(1e-2))) > DIFFERENT
