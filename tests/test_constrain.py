"""`constrain`, `linearly_constrain` and `propagate_normalization` against NumPy in float64."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxnorm import (
    Scaled,
    WeightNormalized,
    constrain,
    effective,
    exclude,
    linearly_constrain,
    propagate_normalization,
    sphere_projection,
)
from jaxnorm.normprop import jacobian_factor
from tests import oracles
from tests.draws import draw
from tests.tolerances import FLOAT32, FLOAT32_STEPS

RATE, STEPS = 0.1, 4
HIDDEN = exclude("^head/")


def params() -> Any:
    return {
        "body": {"kernel": draw(0, 6, 5), "bias": draw(1, 5)},
        "head": {"kernel": draw(2, 5, 3)},
    }


GRADIENTS = draw(3, STEPS, 6, 5)


def stepped(raw: Any, tx: Any, of_kernel: Any) -> Any:
    """Parameters after four updates; gradients are 1 except at the body's kernel."""
    state = tx.init(raw)
    for gradient in GRADIENTS:
        gradients = of_kernel(jax.tree.map(jnp.ones_like, raw), jnp.asarray(gradient))
        updates, state = tx.update(gradients, state, raw)
        raw = optax.apply_updates(raw, updates)
    return raw


def in_node(field: str) -> Any:
    def put(gradients: Any, gradient: Any) -> Any:
        node = gradients["body"]["kernel"]
        values = {"scale": jnp.zeros_like(node.scale), field: gradient}
        kernel = type(node)(**values, fan_in_axes=node.fan_in_axes)
        return gradients | {"body": gradients["body"] | {"kernel": kernel}}

    return put


def test_constrain_equals_the_oracle_and_frees_the_head() -> None:
    radii = {"body": 3.0, "head": 1.0}
    raw, tx = constrain(params(), optax.sgd(RATE, 0.9), layout=HIDDEN, squared_radius=radii)
    start = oracles.projected(params()["body"]["kernel"], (-2,), 3.0, True)
    np.testing.assert_allclose(effective(raw)["body"]["kernel"], start, **FLOAT32)
    assert isinstance(raw["body"]["kernel"], Scaled)
    np.testing.assert_array_equal(raw["head"]["kernel"], params()["head"]["kernel"])
    after = stepped(raw, tx, in_node("kernel"))
    gradients = np.asarray(GRADIENTS, np.float64)
    *_, expected = oracles.constrained_run(start, gradients, oracles.sgd(RATE, 0.9), (-2,), 3.0)
    np.testing.assert_allclose(after["body"]["kernel"].kernel, expected, **FLOAT32_STEPS)
    # The head is free, and momentum moves it by 0.1 (1 + 1.9 + 2.71 + 3.439).
    moved = params()["head"]["kernel"] - 0.9049
    np.testing.assert_allclose(after["head"]["kernel"], moved, **FLOAT32_STEPS)


@pytest.mark.parametrize("tangent", [False, True])
def test_centering_per_layer(
    tangent: bool,
) -> None:
    centered = {"body": False, "head": True}
    raw, tx = constrain(params(), optax.sgd(RATE), centered=centered)
    if tangent:
        tx = optax.chain(optax.sgd(RATE), sphere_projection(centered=centered, tangent=True))
    after = stepped(raw, tx, in_node("kernel"))
    measures = {
        name: oracles.sums_and_squared_norms(after[name]["kernel"].kernel, (-2,))
        for name in centered
    }
    for _, norms in measures.values():
        np.testing.assert_allclose(norms, 2.0, **FLOAT32)
    assert np.abs(measures["body"][0]).max() > 0.1
    np.testing.assert_allclose(measures["head"][0], 0.0, atol=1e-5)


@pytest.mark.usefixtures("standard_promotion")
def test_linearly_constrain_equals_the_oracle_under_adam() -> None:
    plain, tx = linearly_constrain(params(), optax.adam(RATE), layout=HIDDEN)
    start = np.float64(params()["body"]["kernel"])
    start -= start.mean(0)
    np.testing.assert_allclose(plain["body"]["kernel"], start, **FLOAT32)
    np.testing.assert_array_equal(plain["head"]["kernel"], params()["head"]["kernel"])

    def put(gradients: Any, gradient: Any) -> Any:
        return gradients | {"body": gradients["body"] | {"kernel": gradient}}

    after = stepped(plain, tx, put)["body"]["kernel"]
    optimizer, expected = oracles.adam(RATE), start
    for gradient in np.float64(GRADIENTS):
        step = optimizer(expected, gradient)
        expected = expected + step - step.mean(0)
    np.testing.assert_allclose(after, expected, **FLOAT32_STEPS)


@pytest.mark.parametrize("centered", [False, True])
def test_propagate_normalization_keeps_directions_of_norm_one(centered: bool) -> None:
    gamma, sgd = 1 / jacobian_factor(jax.nn.relu), optax.sgd(RATE)
    options = {"scale": gamma, "centered": True} if centered else {"scale": gamma}
    raw, tx = propagate_normalization(params(), sgd, layout=HIDDEN, **options)
    assert isinstance(raw["body"]["kernel"], WeightNormalized)
    unit = oracles.projected(params()["body"]["kernel"], (-2,), 1.0, centered)
    np.testing.assert_allclose(raw["body"]["kernel"].direction, unit, **FLOAT32)
    np.testing.assert_allclose(effective(raw)["body"]["kernel"], gamma * unit, **FLOAT32)
    after = stepped(raw, tx, in_node("direction"))
    sums, norms = oracles.sums_and_squared_norms(after["body"]["kernel"].direction, (-2,))
    np.testing.assert_allclose(norms, 1.0, **FLOAT32)
    assert (np.abs(sums).max() < 1e-6) == centered
    np.testing.assert_array_equal(raw["head"]["kernel"], params()["head"]["kernel"])


CALLS = {"constrain": constrain, "propagate_normalization": propagate_normalization}
MISTAKES = {"gradients": ("gradients", "parameters"), "parameters": ("parameters", "gradients")}


@pytest.mark.parametrize("optimizer", [optax.sgd(RATE), optax.lion(RATE)], ids=["sgd", "lion"])
@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("call", CALLS)
def test_gradients_of_the_effective_weights_are_refused(
    call: str, mistake: str, optimizer: Any
) -> None:
    """They are arrays where the raw parameters are nodes."""
    raw, tx = CALLS[call](params(), optimizer, layout=HIDDEN)
    given = {"gradients": raw, "parameters": raw, mistake: effective(raw)}
    plain, other = MISTAKES[mistake]
    message = rf"plain {plain} beside raw {other} at body/kernel; .*jax\.grad\(lambda raw"
    with pytest.raises(ValueError, match=message):
        tx.update(given["gradients"], tx.init(raw), given["parameters"])


def test_masks_around_the_optimizer_are_taken() -> None:
    raw, tx = constrain(params(), optax.sgd(RATE), layout=HIDDEN)
    for mask in ({"body": False, "head": True}, {"body": True, "head": False}):
        masked = optax.masked(tx, mask)
        updates, _ = masked.update(raw, masked.init(raw), raw)
        assert jax.tree.structure(updates) == jax.tree.structure(raw)
