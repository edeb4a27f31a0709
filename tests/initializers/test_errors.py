"""What the data-dependent initializers cannot do, they say."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnorm import (
    Scaled,
    data_dependent_init,
    layout_from_rules,
    reparametrize,
    variance_preserving_init,
)
from tests.initializers.models import uniform

BOTH = pytest.mark.parametrize("init", [variance_preserving_init, data_dependent_init])
KERNEL = uniform(8, 8, seed=2)
X = uniform(16, 8)


def _scanned(p: Any, x: Any) -> Any:
    return jax.lax.scan(lambda h, _: (h @ p["loop"]["kernel"], None), x, length=3)[0]


def _stacked(p: Any, x: Any) -> Any:
    """The square kernel is a stack of four, along a part of an axis: no factor could be there."""
    stack = p["loop"]["kernel"].reshape(4, 2, 8)
    return jax.lax.scan(lambda h, k: (h[:, :2] @ k, None), x, stack)[0]


def _spread(p: Any, x: Any) -> Any:
    """Eight times the same kernel."""
    stack = jnp.broadcast_to(p["loop"]["kernel"], (8, 8, 8))
    return jax.lax.scan(lambda h, k: (h @ k, None), x, stack)[0]


def _rows(p: Any, x: Any) -> Any:
    """The square kernel is a stack of eight layers of one row."""
    stack = p["loop"]["kernel"][:, None]
    return jax.lax.scan(lambda h, k: (h[:, :1] @ k, None), x, stack)[0]


def _reversed(p: Any, x: Any) -> Any:
    stack = jax.lax.rev(p["loop"]["kernel"], (0,))[:, None]
    return jax.lax.scan(lambda h, k: (h[:, :1] @ k, None), x, stack)[0]


def _repeatedly_scanned(p: Any, x: Any) -> Any:
    """The same stack for each part of the batch."""
    return jax.lax.map(lambda part: _rows(p, part), x.reshape(4, 4, 8))


def _scanned_and_whole(p: Any, x: Any) -> Any:
    return _rows(p, x @ p["loop"]["kernel"])


def _scanned_in_a_branch(p: Any, x: Any) -> Any:
    return jax.lax.cond(x.sum() > 0, lambda: _rows(p, x), lambda: x)


def _branched(p: Any, x: Any) -> Any:
    return jax.lax.cond(x.sum() > 0, lambda: x @ p["loop"]["kernel"], lambda: x)


def _repeated(p: Any, x: Any) -> Any:
    return jax.lax.while_loop(lambda h: h.sum() < 0, lambda h: h @ p["loop"]["kernel"], x)


LOOPS = {
    "scan": _scanned,
    "stacked scan": _stacked,
    "spread scan": _spread,
    "reversed scan": _reversed,
    "repeated scan": _repeatedly_scanned,
    "product and a scan": _scanned_and_whole,
    "scan in a cond": _scanned_in_a_branch,
    "cond": _branched,
    "while": _repeated,
}


@BOTH
@pytest.mark.parametrize("name", LOOPS)
def test_a_kernel_inside_a_loop(init: Callable[..., Any], name: str) -> None:
    word = name.split()[-1]
    said = rf"'loop/kernel' is used inside a {word}.*leave the kernel out"
    with pytest.raises(ValueError, match=said):
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


def test_a_kernel_with_its_units_in_reverse_has_no_units() -> None:
    """Each unit would get another one's factor."""
    model = lambda p, x: x @ jax.lax.rev(p["turned"]["kernel"], (1,))  # noqa: E731
    with pytest.raises(ValueError, match=r"reshapes or transposes the kernel 'turned/kernel'"):
        data_dependent_init(model, {"turned": {"kernel": KERNEL}}, X)


@BOTH
def test_a_stack_that_is_reparametrized_along_its_layers(init: Callable[..., Any]) -> None:
    """As `flax_layout` has it by the name, whose units are then sums over layers."""
    stack = {"kernel": uniform(2, 8, 8), "bias": jnp.zeros((2, 8))}
    model = lambda p, x: jax.lax.scan(  # noqa: E731
        lambda h, own: (h @ own["kernel"] + own["bias"][None], None), x, p
    )[0]
    layout = layout_from_rules([("kernel", (-3, -2))])
    with pytest.raises(
        ValueError, match=r"'kernel' is reparametrized with.*\(-3, -2\).*wanted.*traced_layout"
    ):
        init(model, reparametrize(stack, Scaled, layout), X, layout=layout)
    fitted = init(model, stack, X, layout=layout)  # the axes matter to nodes alone
    assert fitted["kernel"].shape == (2, 8, 8)


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
    with pytest.warns(UserWarning, match=r"does not add the bias 'dense/bias'"):
        fitted = data_dependent_init(model, params, X)
    np.testing.assert_array_equal(fitted["dense"]["bias"], params["dense"]["bias"])
