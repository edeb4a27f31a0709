"""Kernels times a constant, frozen or on another device, and learned inputs: what layers make."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnorm import (
    collect_preactivations,
    data_dependent_init,
    linear_stddev,
    traced_layout,
    variance_preserving_init,
    with_scale_noise,
)
from tests.tolerances import FLOAT32

RNG = np.random.default_rng(0)


def draw(*shape: int) -> jax.Array:
    return jnp.asarray(RNG.normal(size=shape), jnp.float32)


X, GAINS = draw(64, 4), draw(5)
PARAMS = {"kernel": draw(4, 5), "bias": draw(5)}

#: What is done to the kernel, and the same in NumPy.
CHANGED: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "divided": (lambda k: k / 4, lambda k: k / 4),
    "a sign": (lambda k: -k, lambda k: -k),
    "a number": (lambda k: 0.3 * k, lambda k: 0.3 * k),
    "a constant a unit": (lambda k: k * GAINS[None], lambda k: k * np.asarray(GAINS)),
    "two of them": (lambda k: -(GAINS[None] * k) / 2, lambda k: k * np.asarray(GAINS) / -2),
    "frozen": (jax.lax.stop_gradient, lambda k: k),
    "on a device": (jax.device_put, lambda k: k),
}


@pytest.fixture(params=CHANGED)
def changed(request: Any) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    return CHANGED[request.param]


def of(change: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda p, x: x @ change(p["kernel"]) + p["bias"][None]


def product(params: Any, change: Callable[[Any], Any]) -> np.ndarray:
    return np.asarray(X, np.float64) @ change(np.asarray(params["kernel"], np.float64))


def test_pre_activations_are_those_of_the_product(changed: Any) -> None:
    change, in_numpy = changed
    _, seen = collect_preactivations(of(change), PARAMS, X)
    expected = product(PARAMS, in_numpy) + np.asarray(PARAMS["bias"], np.float64)
    np.testing.assert_allclose(seen["kernel"], expected, **FLOAT32)


def test_initializers_account_for_the_constant(changed: Any) -> None:
    change, in_numpy = changed
    pooled = variance_preserving_init(of(change), PARAMS, X)
    np.testing.assert_allclose(product(pooled, in_numpy).var(), 1, **FLOAT32)
    fitted = data_dependent_init(of(change), PARAMS, X)
    units = product(fitted, in_numpy) + np.asarray(fitted["bias"], np.float64)
    np.testing.assert_allclose(units.mean(0), 0, **FLOAT32)
    np.testing.assert_allclose(units.var(0), 1, **FLOAT32)


def test_noise_is_on_the_product(changed: Any) -> None:
    """One draw a sample and unit, whatever the constant: (y - beta) / w'x is 1 + n.

    The quotient magnifies roundings where w'x is small.
    """
    change, in_numpy = changed
    key = jax.random.key(0)
    noisy = with_scale_noise(of(change), 0.5)(key, PARAMS, X)
    plain = with_scale_noise(of(lambda k: k), 0.5)(key, PARAMS, X)
    factor = (plain - PARAMS["bias"][None]) / (X @ PARAMS["kernel"])
    expected = product(PARAMS, in_numpy) * factor + PARAMS["bias"][None]
    np.testing.assert_allclose(noisy, expected, rtol=1e-4, atol=1e-5)


def test_a_bias_times_a_constant_takes_no_mean_out() -> None:
    """Times 0.1, the bias -m / s would leave 0.9 of the mean."""
    apply = lambda p, x: x @ p["kernel"] + 0.1 * p["bias"][None]  # noqa: E731
    with pytest.warns(UserWarning, match="'bias' to the product of the kernel 'kernel' as it is"):
        fitted = data_dependent_init(apply, PARAMS, X)
    np.testing.assert_array_equal(fitted["bias"], PARAMS["bias"])
    np.testing.assert_allclose(product(fitted, lambda k: k).var(0), 1, **FLOAT32)


PARTS: dict[str, Callable[[Any], Any]] = {
    "turned": lambda b: b[::-1][None],
    "a tenth": lambda b: 0.1 * b[None],
}


@pytest.mark.parametrize("part", PARTS)
def test_a_bias_that_another_product_has_a_part_of_stays(part: str) -> None:
    """What the first kernel's mean puts into it would shift the other's units too."""
    params = PARAMS | {"other": {"kernel": draw(4, 5)}}

    def apply(p: Any, x: Any) -> Any:
        other = x @ p["other"]["kernel"] + PARTS[part](p["bias"])
        return x @ p["kernel"] + p["bias"][None] + jnp.tanh(other)

    with pytest.warns(UserWarning, match="does not add the bias 'bias'"):
        fitted = data_dependent_init(apply, params, X)
    np.testing.assert_array_equal(fitted["bias"], PARAMS["bias"])


def test_a_frozen_base_keeps_its_layout_and_takes_no_gradient() -> None:
    """LoRA: the base is a kernel, its adapter a sum of two products."""
    params = {"base": draw(4, 5), "down": draw(4, 2), "up": draw(2, 5)}

    def apply(p: Any, x: Any) -> Any:
        return x @ jax.lax.stop_gradient(p["base"]) + x @ p["down"] @ p["up"]

    layout = traced_layout(apply, params, X)
    assert layout(params) == dict.fromkeys(params, (-2,))

    def total(p: Any) -> Any:
        output, seen = collect_preactivations(apply, p, X, layout=layout)
        return output.sum() + sum(x.sum() for x in seen.values())

    gradients = jax.grad(total)(params)
    assert not gradients["base"].any()
    assert gradients["down"].all()


#: A decoder's learned queries look at the rows: softmax((q w) (x k)') x v.
DECODER = {
    "q": draw(3, 4),
    "query": {"kernel": draw(4, 5)},
    "key": {"kernel": draw(4, 5)},
    "value": {"kernel": draw(4, 6)},
}


def decode(p: Any, x: Any) -> Any:
    queries = p["q"] @ p["query"]["kernel"]
    scores = jnp.einsum("qd,btd->bqt", queries, x @ p["key"]["kernel"])
    return jax.nn.softmax(scores) @ (x @ p["value"]["kernel"])


def test_learned_inputs_can_be_named_wherever_a_layout_is_traced() -> None:
    rows, free = X.reshape(16, 4, 4), ["^q$"]
    layout = traced_layout(decode, DECODER, rows, free=free)
    options: dict[str, Any] = {"layout": layout, "free": free}
    output, seen = collect_preactivations(decode, DECODER, rows, **options)
    np.testing.assert_allclose(output, decode(DECODER, rows), **FLOAT32)
    np.testing.assert_allclose(
        seen["query/kernel"], np.asarray(DECODER["q"]) @ DECODER["query"]["kernel"], **FLOAT32
    )
    for init, axes in ((variance_preserving_init, (0, 1)), (data_dependent_init, 0)):
        fitted = init(decode, DECODER, rows, **options)
        _, seen = collect_preactivations(decode, fitted, rows, **options)
        assert seen.keys() == {f"{name}/kernel" for name in ("query", "key", "value")}
        for units in (x.reshape(-1, x.shape[-1]) for x in seen.values()):
            np.testing.assert_allclose(units.var(axes), 1, **FLOAT32)
    stddev = linear_stddev(0.3, decode, DECODER, rows, **options)
    assert stddev["q"] is None
    assert sorted(stddev[name]["kernel"] for name in ("query", "key", "value")) == pytest.approx(
        [0.1, 0.2, 0.3]
    )
    noisy = with_scale_noise(decode, 0.3, per="step", **options)(jax.random.key(0), DECODER, rows)
    assert jnp.abs(noisy - output).max() > 1e-2
    with pytest.raises(ValueError, match="query/kernel"):
        collect_preactivations(decode, DECODER, rows, layout=layout)
