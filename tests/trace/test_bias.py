"""Biases: they belong to the product to which the model adds them, and to nothing else."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnorm import collect_preactivations, data_dependent_init, flax_layout, read, torch_layout
from tests.tolerances import FLOAT32
from tests.trace.forms import draw

Add = Callable[[Any, Any], Any]

X = draw(60, 8) + 0.5
#: Two float32 layers, each of which divides by the deviation of what the last one made.
MOMENTS = {"rtol": 0.0, "atol": 1e-4}


def only(layers: dict[str, Any]) -> Any:
    (values,) = layers.values()
    return values


@pytest.mark.parametrize("turned", [False, True])
def test_one_sample_alone(turned: bool) -> None:
    """A bias depends on no input, also without rows to which it could be broadcast."""
    kernel, bias = draw(8, 5), draw(5)
    params = {"weight": kernel.T, "bias": bias} if turned else {"kernel": kernel, "bias": bias}
    layout = {"layout": torch_layout} if turned else {}
    apply = (
        (lambda p, x: p["weight"] @ x + p["bias"])
        if turned
        else (lambda p, x: x @ p["kernel"] + p["bias"])
    )
    expected = np.float64(X[0]) @ np.float64(kernel) + np.float64(bias)
    actual = only(collect_preactivations(read(apply, params, X[0]), **layout)[1])
    np.testing.assert_allclose(actual, expected, **FLOAT32)


@pytest.mark.parametrize("alone", [False, True], ids=["batch", "vmap of one"])
def test_units_come_last_where_channels_are_first(alone: bool) -> None:
    """The variance constancy loss has units last, and would take columns for units."""
    images, kernel, bias = draw(8, 2, 4, 3), draw(5, 2, 1, 1), draw(5, 1, 1)
    one = lambda p, x: jax.lax.conv(x, p["weight"], (1, 1), "SAME") + p["bias"][None]  # noqa: E731
    apply = (lambda p, x: jax.vmap(lambda x: one(p, x[None])[0])(x)) if alone else one
    _, layers = collect_preactivations(
        read(apply, {"weight": kernel, "bias": bias}, images), layout=torch_layout
    )
    wide = [np.asarray(a, np.float64) for a in (images, kernel[..., 0, 0], bias[:, 0, 0])]
    expected = np.einsum("bihw,oi->bhwo", *wide[:2]) + wide[2]
    np.testing.assert_allclose(layers["weight"].reshape(expected.shape), expected, **FLOAT32)


#: Operands that are no biases: they depend on the inputs, or are added elsewhere.
NO_BIAS: dict[str, Add] = {
    "nothing": lambda p, x: x @ p["kernel"],
    "nothing, a sample at a time": lambda p, x: jax.vmap(lambda row: p["kernel"].T @ row)(x),
    "a residual sum": lambda p, x: x @ p["kernel"] + x,
    "a condition": lambda p, x: x @ p["kernel"] + x.mean(0, keepdims=True),
    "a number": lambda p, x: x @ p["kernel"] + 0.5,
    "another product": lambda p, x: x @ p["kernel"] + jnp.ones((1, 8)) @ jnp.square(p["kernel"]),
    "after the activation": lambda p, x: jnp.tanh(x @ p["kernel"]) + p["bias"][None],
    "spread over more rows": lambda p, x: (
        jnp.broadcast_to(x @ p["kernel"], (2, *x.shape)) + p["bias"][None, None]
    ),
    "read before": lambda p, x: (h := x @ p["kernel"]) * (h + p["bias"][None]),
    "in a branch": lambda p, x: jax.lax.cond(
        x.sum() > 0, lambda h: h + p["bias"][None], lambda h: h, x @ p["kernel"]
    ),
    "in a loop": lambda p, x: (
        product := x @ p["kernel"],
        jax.lax.scan(lambda h, _: (h + (product + p["bias"][None]), None), 0 * x, length=2)[0],
    )[1],
}


@pytest.mark.kept(
    "in a loop", "a residual sum", "after the activation", "a number", "another product"
)
@pytest.mark.parametrize("name", NO_BIAS)
def test_other_operands_are_left_out(name: str) -> None:
    apply, params = NO_BIAS[name], {"kernel": draw(8, 8), "bias": draw(8)}
    for x in (X, X[:1]):
        output, layers = collect_preactivations(read(apply, params, x))
        np.testing.assert_allclose(output, apply(params, x), **FLOAT32)
        expected = np.float64(x) @ np.float64(params["kernel"])
        np.testing.assert_allclose(layers["kernel"], expected, **FLOAT32)


PARAMS = {
    "first": {"kernel": draw(8, 8), "other": draw(8, 8), "bias": draw(1, 8)},
    "last": {"kernel": draw(8, 4), "bias": draw(1, 4)},
}


def of_two(p: Any, x: Any, part: Callable[[Any], Any] = lambda b: b) -> Any:
    return x @ p["kernel"] + p["bias"] + jnp.sin(x @ p["other"] + part(p["bias"]))


#: First layers that use their bias in another way than in a sum with their product.
ELSEWHERE: dict[str, Add] = {
    "after a gain": lambda p, x: 3 * (x @ p["kernel"]) + p["bias"],
    "after an activation": lambda p, x: jnp.sin(x @ p["kernel"]) + p["bias"],
    "twice its size": lambda p, x: x @ p["kernel"] + 2 * p["bias"],
    "subtracted": lambda p, x: x @ p["kernel"] - p["bias"],
    "on the input": lambda p, x: (x + p["bias"]) @ p["kernel"],
    "added twice": lambda p, x: x @ p["kernel"] + p["bias"] + p["bias"],
    "read again": lambda p, x: jnp.sin(x @ p["kernel"] + p["bias"]) * p["bias"],
    "nowhere": lambda p, x: x @ p["kernel"],
    "to a sum of two products": lambda p, x: x @ p["kernel"] + x @ p["other"] + p["bias"],
    "to each of two products": of_two,
    "turned, to another product": lambda p, x: of_two(p, x, lambda b: b[:, ::-1]),
    "a tenth, to another product": lambda p, x: of_two(p, x, lambda b: 0.1 * b),
}


@pytest.mark.kept("turned", "subtracted", "after an activation")
@pytest.mark.parametrize("name", ELSEWHERE)
def test_a_bias_with_another_use_stays_and_is_named(name: str) -> None:
    """The next layer is fitted to the network as it is, with the old bias."""
    first = ELSEWHERE[name]

    def apply(p: Any, x: Any) -> Any:
        return jnp.sin(first(p["first"], x)) @ p["last"]["kernel"] + p["last"]["bias"]

    with pytest.warns(UserWarning, match="'first/bias'.*'first/kernel'"):
        fitted = data_dependent_init(read(apply, PARAMS, X), layout=flax_layout)
    np.testing.assert_array_equal(fitted["first"]["bias"], PARAMS["first"]["bias"])
    wide = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), fitted)
    hidden = np.sin(np.asarray(first(fitted["first"], X), np.float64))
    output = hidden @ wide["last"]["kernel"] + wide["last"]["bias"]
    np.testing.assert_allclose(output.mean(0), 0, **MOMENTS)
    np.testing.assert_allclose(output.var(0), 1, **MOMENTS)


def test_a_kernel_that_is_used_without_its_bias_too() -> None:
    """The bias is fitted at the first use, and is not at the second."""

    def apply(p: Any, x: Any) -> Any:
        h = jnp.sin(x @ p["first"]["kernel"] + p["first"]["bias"])
        return jnp.sin(h @ p["first"]["kernel"]) @ p["last"]["kernel"]

    fitted = data_dependent_init(read(apply, PARAMS | {"last": {"kernel": draw(8, 4)}}, X))
    first = X @ fitted["first"]["kernel"] + fitted["first"]["bias"]
    np.testing.assert_allclose(np.asarray(first, np.float64).mean(0), 0, **MOMENTS)
    np.testing.assert_allclose(np.asarray(apply(fitted, X), np.float64).var(0), 1, **MOMENTS)


#: Sums of a product of four heads of four units with their biases; True if the orders agree.
ORDERS: dict[str, tuple[Add, bool]] = {
    "of heads": (lambda h, b: h + b.reshape(1, 4, 4), True),
    "of heads that are merged": (lambda h, b: h.reshape(-1, 16) + b[None], True),
    "both transposed": (lambda h, b: h.mT + b.reshape(1, 4, 4).mT, True),
    "transposed": (lambda h, b: h + b.reshape(1, 4, 4).mT, False),
    "of a transposed product": (lambda h, b: h.mT + b.reshape(1, 4, 4), False),
    "of heads that are merged transposed": (lambda h, b: h.mT.reshape(-1, 16) + b[None], False),
    "reversed": (lambda h, b: h.reshape(-1, 16) + b[None, ::-1], False),
}


@pytest.mark.kept("reversed")
@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.filterwarnings("always:the model does not add the bias 'bias'")
def test_a_bias_is_fitted_in_the_order_of_the_units_alone(
    name: str, recwarn: pytest.WarningsRecorder
) -> None:
    """With as many heads as units per head, the shapes agree in any order."""
    add, fits = ORDERS[name]
    apply = lambda p, x: add(jnp.einsum("bi,iho->bho", x, p["kernel"]), p["bias"])  # noqa: E731
    params = {"kernel": draw(8, 4, 4), "bias": draw(16)}
    layout = lambda p: {"kernel": (-3,), "bias": None}  # noqa: E731
    fitted = data_dependent_init(read(apply, params, X), layout=layout)
    output = np.asarray(apply(fitted, X), np.float64)
    np.testing.assert_allclose(output.var(0), 1, **MOMENTS)
    assert len(recwarn) == (0 if fits else 1)
    if fits:
        np.testing.assert_allclose(output.mean(0), 0, **MOMENTS)
    else:
        np.testing.assert_array_equal(fitted["bias"], params["bias"])


def test_the_only_unit_keeps_its_axis_through_a_reshape() -> None:
    """A network of one output, whose product is reshaped before its bias is added."""
    params = {"kernel": draw(8, 1), "bias": jnp.zeros(1)}
    apply = lambda p, x: (x @ p["kernel"]).reshape(1, -1, 1) + p["bias"][None, None]  # noqa: E731
    fitted = data_dependent_init(read(apply, params, X))
    output = np.asarray(apply(fitted, X), np.float64)
    np.testing.assert_allclose((output.mean(), output.std()), (0, 1), atol=1e-5)
    assert fitted["bias"].shape == (1,)


def test_a_bias_that_does_not_have_one_value_per_unit_stays_and_is_named() -> None:
    params = {"dense": {"kernel": draw(8, 8), "bias": jnp.zeros((60, 8))}}
    apply = lambda p, x: x @ p["dense"]["kernel"] + p["dense"]["bias"]  # noqa: E731
    with pytest.warns(UserWarning, match="'dense/bias'"):
        fitted = data_dependent_init(read(apply, params, X))
    np.testing.assert_array_equal(fitted["dense"]["bias"], params["dense"]["bias"])
    params = {"kernel": draw(8, 5, 3), "bias": draw(3, 5)}
    apply = lambda p, x: jnp.einsum("bi,iog->bgo", x, p["kernel"]) + p["bias"][None]  # noqa: E731
    with pytest.warns(UserWarning, match="'bias'"):
        fitted = data_dependent_init(
            read(apply, params, X), layout=lambda p: {"kernel": (-3,), "bias": None}
        )
    np.testing.assert_array_equal(fitted["bias"], params["bias"])
