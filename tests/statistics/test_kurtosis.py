"""Kurtosis against float64 NumPy, its gradient at any scale, and its value for constant units."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnorm import kurtosis
from tests.draws import draw, normal

gradient = jax.jit(jax.grad(lambda x: kurtosis(x, 0).sum()))


@pytest.mark.parametrize("size", [1e-15, 1e-12, 1e-6, 1.0, 1e6, 1e12, 1e15])
def test_kurtosis_and_its_gradient_do_not_depend_on_the_size(size: float) -> None:
    """In float32 the squared variance of the smallest and of the largest sample is 0 or infinite.

    d(m4 / m2^2) / dx, where dm4/dx = 4 (d^3 - m3) / n and dm2/dx = 2 d / n.
    """
    sample = np.random.default_rng(2).laplace(size=(1000, 2)) + 0.5
    x = jnp.asarray(size * sample, jnp.float32)
    wide = np.asarray(x, np.float64)
    deviation = wide - wide.mean(0)
    second, third, fourth = ((deviation**power).mean(0) for power in (2, 3, 4))
    np.testing.assert_allclose(kurtosis(x, 0), fourth / second**2, rtol=2e-5)
    slope = 4 * ((deviation**3 - third) / second**2 - fourth * deviation / second**3) / len(x)
    computed = np.asarray(gradient(x), np.float64)
    np.testing.assert_allclose(computed * size, slope * size, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("samples", [8, 500])
@pytest.mark.parametrize(("dtype", "size"), [("bfloat16", 300), ("float32", 0.05)])
def test_large_offset(dtype: str, size: float, samples: int) -> None:
    """Near 1e4 the numbers are 64 or 1e-3 apart: the oracle reads the stored ones."""
    x = jnp.asarray(1e4 + size * normal(1, samples, 3), jnp.dtype(dtype))
    deviation = np.asarray(x, np.float64) - np.asarray(x, np.float64).mean(0)
    expected = (deviation**4).mean(0) / (deviation**2).mean(0) ** 2
    np.testing.assert_allclose(kurtosis(x, 0), expected, rtol=2e-5)


@pytest.mark.parametrize("value", [7.3, 1e4, 0.0])
@pytest.mark.parametrize("samples", [1, 7])
def test_constant_unit_has_the_kurtosis_of_a_gaussian_and_gradient_zero(
    samples: int, value: float
) -> None:
    x = jnp.full((samples, 1), value)
    assert kurtosis(x, 0).tolist() == [3.0]
    assert not np.asarray(gradient(x)).any()


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan, 1e30])
def test_broken_value_breaks_its_own_unit_only(bad: float) -> None:
    """The square of 1e30 overflows."""
    x = draw(0, 128, 3)
    broken = kurtosis(x.at[5, 1].set(bad), 0)
    np.testing.assert_array_equal(np.isnan(broken), [False, True, False])
    np.testing.assert_allclose(broken[::2], kurtosis(x, 0)[::2], rtol=1e-5)
