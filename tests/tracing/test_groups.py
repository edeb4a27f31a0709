"""Kernels with a part for each group of inputs: ensembles, heads, local connections."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnorm import collect_preactivations, data_dependent_init, traced_layout, with_scale_noise
from tests.tolerances import FLOAT32

RNG = np.random.default_rng(0)


def draw(*shape: int) -> jax.Array:
    return jnp.asarray(RNG.normal(size=shape), jnp.float32)


ROWS, GROUPS, INPUTS, UNITS = 6, 3, 4, 5
X = draw(ROWS, GROUPS, INPUTS)
PARAMS = {"kernel": draw(GROUPS, INPUTS, UNITS)}
BIAS = {"bias": draw(GROUPS, UNITS)}
WANTED = np.einsum("bgi,gio->bgo", np.asarray(X, np.float64), np.asarray(PARAMS["kernel"]))


def layout(params: Any) -> Any:
    return {name: (-2,) if name == "kernel" else None for name in params}


def by_group(p: Any, x: Any, axis: int = 1) -> jax.Array:
    return jax.vmap(lambda w, x: x @ w, (0, axis), axis)(p["kernel"], x)


#: One product of each group, rows first.
PRODUCTS: dict[str, Callable[[Any, Any], Any]] = {
    "einsum": lambda p, x: jnp.einsum("bgi,gio->bgo", x, p["kernel"]),
    "the kernel first": lambda p, x: jnp.einsum("gio,bgi->bgo", p["kernel"], x),
    "vmap over groups": by_group,
    "and over rows": lambda p, x: jax.vmap(lambda x: by_group(p, x, axis=0))(x),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_rows_come_first(name: str) -> None:
    """Else the groups would be the samples of the variance constancy loss."""
    _, layers = collect_preactivations(PRODUCTS[name], PARAMS, X, layout=layout)
    np.testing.assert_allclose(layers["kernel"], WANTED, **FLOAT32)


def test_and_where_the_output_has_the_groups_first() -> None:
    member = lambda p, x: x @ p["kernel"] + p["bias"][None]  # noqa: E731
    apply = lambda p, x: jax.vmap(member, (0, 1))(p, x)  # noqa: E731
    output, layers = collect_preactivations(apply, PARAMS | BIAS, X, layout=layout)
    assert output.shape == (GROUPS, ROWS, UNITS)
    np.testing.assert_allclose(layers["kernel"], WANTED + BIAS["bias"][None], **FLOAT32)


@pytest.mark.parametrize("rows", [ROWS, GROUPS], ids=["more rows than groups", "as many"])
@pytest.mark.parametrize("per", ["sample", "step"])
@pytest.mark.parametrize("name", PRODUCTS)
def test_each_group_has_units_of_its_own(name: str, per: Any, rows: int) -> None:
    """The draws are those of a layer with as many units and no groups."""
    apply, x, key = PRODUCTS[name], X[:rows], jax.random.key(0)
    noisy = with_scale_noise(apply, 0.1, layout=layout, per=per)(key, PARAMS, x)
    of_ones = lambda p, x: jnp.einsum("bi,gio->bgo", x, p["kernel"]) / INPUTS  # noqa: E731
    ones = {"kernel": jnp.ones((GROUPS, INPUTS, UNITS))}, jnp.ones((rows, INPUTS))
    factors = with_scale_noise(of_ones, 0.1, layout=layout, per=per)(key, *ones)
    assert len(np.unique(np.asarray(factors))) == UNITS * GROUPS * (rows if per == "sample" else 1)
    np.testing.assert_allclose(noisy, apply(PARAMS, x) * factors, rtol=1e-4)


@pytest.mark.parametrize("name", PRODUCTS)
def test_each_group_is_initialized_by_itself(name: str) -> None:
    apply = lambda p, x: PRODUCTS[name](p, x) + p["bias"][None]  # noqa: E731
    x = 2 + draw(64, GROUPS, INPUTS)
    fitted = data_dependent_init(apply, PARAMS | BIAS, x, layout=layout)
    output = np.asarray(apply(fitted, x))
    np.testing.assert_allclose(output.std(0), 1, **FLOAT32)
    np.testing.assert_allclose(output.mean(0), 0, atol=1e-5)


def test_units_in_the_order_of_a_kernel_that_has_its_groups_last() -> None:
    apply = lambda p, x: jnp.einsum("bgi,iog->bog", x, p["kernel"]) + p["bias"][None]  # noqa: E731
    params, x = {"kernel": draw(INPUTS, UNITS, GROUPS), "bias": draw(UNITS, GROUPS)}, 2 + X
    axes = traced_layout(apply, params, x)
    assert axes(params) == {"kernel": (-3,), "bias": None}
    output = np.asarray(apply(data_dependent_init(apply, params, x, layout=axes), x))
    np.testing.assert_allclose(output.std(0), 1, **FLOAT32)
    np.testing.assert_allclose(output.mean(0), 0, atol=1e-5)


def test_a_bias_in_another_order_than_the_units_is_refused() -> None:
    apply = lambda p, x: jnp.einsum("bi,iog->bgo", x, p["kernel"]) + p["bias"][None]  # noqa: E731
    params = {"kernel": draw(INPUTS, UNITS, GROUPS)} | BIAS
    axes = traced_layout(apply, params, X[:, 0])
    with pytest.raises(ValueError, match=r"'bias' of shape \(3, 5\).*of shape \(5, 3\)"):
        data_dependent_init(apply, params, X[:, 0], layout=axes)


def test_a_bias_that_is_none_is_none() -> None:
    """As Equinox keeps it, of a layer without one."""
    params, x = PARAMS | {"bias": None}, draw(64, GROUPS, INPUTS)
    fitted = data_dependent_init(by_group, params, x, layout=layout)
    np.testing.assert_allclose(np.asarray(by_group(fitted, x)).std(0), 1, **FLOAT32)
    assert fitted["bias"] is None


@pytest.mark.parametrize("members", [3, 2], ids=["all axes alike", "not alike"])
def test_an_ensemble_of_convolutions(members: int) -> None:
    """`vmap` reshapes and transposes their kernels in one step."""

    def conv(w: Any, x: Any) -> Any:
        numbers = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=numbers)

    params, images = {"kernel": draw(members, 3, 3, 3, 4)}, draw(2, 5, 5, 3)
    apply = lambda p, x: jax.vmap(conv, (0, None))(p["kernel"], x)  # noqa: E731
    axes = traced_layout(apply, params, images)
    assert axes(params) == {"kernel": (-4, -3, -2)}
    _, layers = collect_preactivations(apply, params, images, layout=axes)
    alone = [conv(w, images) for w in params["kernel"]]
    np.testing.assert_allclose(layers["kernel"], jnp.concatenate(alone, -1), rtol=1e-5, atol=1e-5)


def test_a_kernel_that_is_reshaped_column_by_column() -> None:
    params, x = {"kernel": draw(4, 4, 4)}, draw(3, 16)
    apply = lambda p, x: x @ p["kernel"].reshape(16, 4, order="F")  # noqa: E731
    assert traced_layout(apply, params, x)(params) == {"kernel": (-3, -2)}
    apply = lambda p, x: x @ p["kernel"].reshape(4, 16, order="F").T  # noqa: E731
    assert traced_layout(apply, params, x)(params) == {"kernel": (-2, -1)}


def test_a_kernel_that_is_spread_over_the_rows_is_seen() -> None:
    """It is there once a row, and is itself all the same."""
    x, kernel = draw(ROWS, INPUTS), draw(INPUTS, UNITS)

    def apply(p: Any, x: Any) -> jax.Array:
        spread = jnp.broadcast_to(p["kernel"][None], (ROWS, INPUTS, UNITS))
        return (x[:, None, :] @ spread)[:, 0]

    _, layers = collect_preactivations(apply, {"kernel": kernel}, x, layout=layout)
    wanted = np.asarray(x, np.float64) @ np.asarray(kernel, np.float64)
    np.testing.assert_allclose(layers["kernel"].reshape(wanted.shape), wanted, **FLOAT32)
