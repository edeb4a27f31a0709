"""Layouts, passes and noise of one layer in every form, against NumPy."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnorm import (
    Scaled,
    collect_preactivations,
    data_dependent_init,
    read,
    reparametrize,
    traced_layout,
    variance_preserving_init,
    with_scale_noise,
)
from tests.trace.forms import BFLOAT16, BIAS, FORMS, KERNEL, PARAMS, ROWS, Form, X

EACH = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


def layout_of(form: Form) -> Any:
    return lambda params: {"kernel": form.axes, "bias": None}


def product(form: Form, params: Any, x: Any = X) -> Any:
    """Returns the pre-activations without their bias, in float64."""
    return form.product(np.asarray(params["kernel"], np.float64), np.asarray(x, np.float64))


@EACH
def test_the_layout_has_the_axes_that_are_summed_over(form: Form) -> None:
    params = form.params()
    assert traced_layout(read(form.apply, params, X))(params) == layout_of(form)(params)


@pytest.mark.kept("plain", "channels first")
@EACH
def test_pre_activations_and_output(form: Form) -> None:
    """At any batch size, of nodes too: rows first, units last, the bias added."""
    plain, layout = form.params(), layout_of(form)
    for x, params in ((X, plain), (X[:1], plain), (X, reparametrize(plain, Scaled, layout))):
        output, layers = collect_preactivations(read(form.apply, params, x), layout=layout)
        expected = product(form, plain, x) + np.asarray(BIAS, np.float64)
        np.testing.assert_allclose(output, expected, **form.tolerance)
        values = layers["kernel"]
        assert (values.shape[0], values.size) == (len(x), expected.size)
        np.testing.assert_allclose(values.reshape(expected.shape), expected, **form.tolerance)


@pytest.mark.kept("channels first", "plain")
@EACH
def test_gradients_through_a_pass_are_those_of_the_model(form: Form) -> None:
    params = form.params()

    def collected(p: Any) -> Any:
        return jnp.tanh(
            collect_preactivations(read(form.apply, p, X), layout=layout_of(form))[0]
        ).sum()

    expected = jax.grad(lambda p: jnp.tanh(form.apply(p, X)).sum())(params)
    actual = jax.grad(collected)(params)
    for name in params:
        np.testing.assert_allclose(actual[name], expected[name], rtol=1e-5, atol=1e-5)


@pytest.mark.kept("cast", "split units", "through a branch", "plain", "channels first")
@EACH
def test_the_product_gets_variance_one(form: Form) -> None:
    fitted = variance_preserving_init(read(form.apply, form.params(), X), layout=layout_of(form))
    np.testing.assert_allclose(product(form, fitted).var(), 1, **form.tolerance)
    np.testing.assert_array_equal(fitted["bias"], BIAS)
    ratio = np.asarray(fitted["kernel"]) / np.asarray(form.params()["kernel"])
    np.testing.assert_allclose(ratio, ratio.flat[0], rtol=1e-6)


@pytest.mark.kept("plain", "straight through", "channels first", "columns")
@EACH
def test_each_unit_gets_mean_zero_and_variance_one(form: Form) -> None:
    """A bias that is changed before the sum stays; units in another order are refused."""
    init = lambda: data_dependent_init(read(form.apply, form.params(), X), layout=layout_of(form))  # noqa: E731
    if not form.units:
        with pytest.raises(ValueError, match="'kernel'"):
            init()
        return
    if form.fits_bias:
        fitted = init()
        shift = np.asarray(fitted["bias"], np.float64)
        np.testing.assert_allclose((product(form, fitted) + shift).mean(0), 0, **form.tolerance)
    else:
        with pytest.warns(UserWarning, match="'bias'.*'kernel'"):
            fitted = init()
        np.testing.assert_array_equal(fitted["bias"], BIAS)
    np.testing.assert_allclose(product(form, fitted).var(0), 1, **form.tolerance)


@pytest.fixture(scope="module")
def factors() -> Any:
    """1 + n of the plain layer: (y - b) / w'x."""
    plain = FORMS["plain"]
    noisy = with_scale_noise(plain.apply, 0.5, layout=layout_of(plain))
    output = np.asarray(noisy(jax.random.key(0), PARAMS, X), np.float64)
    return (output - np.asarray(BIAS)) / product(plain, PARAMS)


@pytest.mark.kept("plain", "split units", "through a branch")
@EACH
def test_noise_is_one_factor_per_sample_and_unit_of_the_product(form: Form, factors: Any) -> None:
    """All forms have the draws of the plain layer, whose quotient magnifies small roundings."""
    assert len(np.unique(factors)) == ROWS * KERNEL.shape[1]
    key, params = jax.random.key(0), form.params()
    actual = with_scale_noise(form.apply, 0.5, layout=layout_of(form))(key, params, X)
    tolerance = BFLOAT16 if form.tolerance == BFLOAT16 else {"rtol": 1e-4, "atol": 1e-4}
    expected = product(form, params) * factors + np.asarray(BIAS)
    np.testing.assert_allclose(actual, expected, **tolerance)
