"""What the data-dependent initializers cannot do, they say."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnorm import data_dependent_init, layout_from_rules, variance_preserving_init
from tests.initializers.models import uniform

BOTH = pytest.mark.parametrize("init", [variance_preserving_init, data_dependent_init])
KERNEL = uniform(8, 8, seed=2)
X = uniform(16, 8)


def _scanned(p: Any, x: Any) -> Any:
    return jax.lax.scan(lambda h, _: (h @ p["loop"]["kernel"], None), x, length=3)[0]


def _stacked(p: Any, x: Any) -> Any:
    """As ``nn.scan`` has it: the square kernel is a stack of eight, of one row each."""
    stack = p["loop"]["kernel"].reshape(8, 1, 8)
    return jax.lax.scan(lambda h, k: (h[:, :1] @ k, None), x, stack)[0]


def _branched(p: Any, x: Any) -> Any:
    return jax.lax.cond(x.sum() > 0, lambda: x @ p["loop"]["kernel"], lambda: x)


def _repeated(p: Any, x: Any) -> Any:
    return jax.lax.while_loop(lambda h: h.sum() < 0, lambda h: h @ p["loop"]["kernel"], x)


LOOPS = {"scan": _scanned, "stacked scan": _stacked, "cond": _branched, "while": _repeated}


@BOTH
@pytest.mark.parametrize("name", LOOPS)
def test_a_kernel_inside_a_loop(init: Callable[..., Any], name: str) -> None:
    word = name.split()[-1]
    with pytest.raises(ValueError, match=rf"'loop/kernel' is used inside a {word}.*Leave it out"):
        init(LOOPS[name], {"loop": {"kernel": KERNEL}}, X)


@BOTH
def test_a_kernel_that_is_left_out_may_be_in_a_loop(init: Callable[..., Any]) -> None:
    params = {"loop": {"kernel": KERNEL}, "out": {"kernel": KERNEL}}
    model = lambda p, x: _scanned(p, x) @ p["out"]["kernel"]  # noqa: E731
    fitted = init(model, params, X, layout=layout_from_rules([("out/kernel", (-2,))]))
    np.testing.assert_array_equal(fitted["loop"]["kernel"], KERNEL)
    ratio = np.asarray(fitted["out"]["kernel"]) / np.asarray(KERNEL)
    assert np.abs(ratio - 1).min() > 1e-3


@BOTH
def test_kernels_that_no_product_uses(init: Callable[..., Any]) -> None:
    params = {name: {"kernel": KERNEL} for name in ("used", "unused", "squared")}
    model = lambda p, x: x @ p["used"]["kernel"] @ p["squared"]["kernel"] ** 2  # noqa: E731
    with pytest.raises(ValueError, match=r"kernels squared/kernel, unused/kernel as they are") as e:
        init(model, params, X)
    assert "Leave them out of the layout" in str(e.value)


VIEWS: dict[str, Callable[[Any], Any]] = {
    "reshaped": lambda kernel: kernel.reshape(8, 8),
    "transposed": lambda kernel: jnp.transpose(kernel, (2, 0, 1)).reshape(8, 8).T,
}


@pytest.mark.parametrize("view", VIEWS)
def test_a_kernel_in_another_shape_has_a_variance_but_no_units(view: str) -> None:
    params = {"heads": {"kernel": KERNEL.reshape(8, 2, 4)}}
    model = lambda p, x: x @ VIEWS[view](p["heads"]["kernel"])  # noqa: E731
    fitted = variance_preserving_init(model, params, X)
    np.testing.assert_allclose(np.asarray(model(fitted, X), np.float64).var(), 1, rtol=1e-5)
    with pytest.raises(
        ValueError, match=r"reshapes or transposes the kernel 'heads/kernel'.*units"
    ):
        data_dependent_init(model, params, X)


@BOTH
def test_a_layout_that_knows_no_kernel(init: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match=r"constrains no parameter.*paths are: weight"):
        init(lambda p, x: x @ p["weight"], {"weight": KERNEL}, X)


@BOTH
@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e30])
def test_preactivations_that_are_not_finite(init: Callable[..., Any], bad: float) -> None:
    """The first layer that makes them is named; the squares of 1e30 overflow."""
    params = {"first": {"kernel": KERNEL}, "second": {"kernel": KERNEL}}

    def model(p: Any, x: Any) -> Any:
        return jnp.where(x > 0.5, bad, x @ p["first"]["kernel"]) @ p["second"]["kernel"]

    with pytest.raises(ValueError, match=r"kernel 'second/kernel' are infinite or NaN.*finite"):
        init(model, params, X)
    with pytest.raises(ValueError, match=r"kernel 'first/kernel' are infinite or NaN.*inputs"):
        init(model, params, X.at[3, 2].set(bad))
    under_jit = jax.jit(lambda p, x: init(model, p, x))(params, X.at[3, 2].set(bad))
    assert np.isnan(under_jit["first"]["kernel"]).all()


def test_a_bias_that_is_not_one_a_unit() -> None:
    params = {"dense": {"kernel": KERNEL, "bias": jnp.zeros((16, 8))}}
    model = lambda p, x: x @ p["dense"]["kernel"] + p["dense"]["bias"]  # noqa: E731
    message = r"'dense/bias' of shape \(16, 8\).*one value for each of the 8 units.*layout"
    with pytest.raises(ValueError, match=message):
        data_dependent_init(model, params, X)
