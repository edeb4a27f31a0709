"""Kernels with a part for each group of inputs: ensembles, heads, local connections."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnorm import (
    collect_preactivations,
    data_dependent_init,
    read,
    traced_layout,
    with_scale_noise,
)
from tests.tolerances import FLOAT32
from tests.trace.forms import draw

ROWS, GROUPS, INPUTS, UNITS = 24, 3, 4, 5
X = 2 + draw(ROWS, GROUPS, INPUTS)
PARAMS = {"kernel": draw(GROUPS, INPUTS, UNITS), "bias": draw(GROUPS, UNITS)}
PRODUCT = np.einsum("bgi,gio->bgo", np.asarray(X, np.float64), np.asarray(PARAMS["kernel"]))


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
EACH = pytest.mark.parametrize("name", PRODUCTS)


@EACH
def test_rows_come_first(name: str) -> None:
    """Groups are no samples of the variance constancy loss."""
    _, layers = collect_preactivations(read(PRODUCTS[name], PARAMS, X), layout=layout)
    np.testing.assert_allclose(layers["kernel"], PRODUCT, **FLOAT32)


def test_rows_come_first_before_groups_of_the_output() -> None:
    member = lambda p, x: x @ p["kernel"] + p["bias"][None]  # noqa: E731
    apply = lambda p, x: jax.vmap(member, (0, 1))(p, x)  # noqa: E731
    output, layers = collect_preactivations(read(apply, PARAMS, X), layout=layout)
    assert output.shape == (GROUPS, ROWS, UNITS)
    np.testing.assert_allclose(layers["kernel"], PRODUCT + PARAMS["bias"][None], **FLOAT32)


@pytest.mark.kept(
    "einsum-sample-more",
    "vmap over groups-step-as",
    "kernel first-sample-more",
    "and over rows-sample",
)
@pytest.mark.parametrize("rows", [ROWS, GROUPS], ids=["more rows than groups", "as many"])
@pytest.mark.parametrize("per", ["sample", "step"])
@EACH
def test_each_group_has_units_of_its_own(name: str, per: Any, rows: int) -> None:
    """The draws equal those of a layer with as many units and no groups."""
    apply, x, key = PRODUCTS[name], X[:rows], jax.random.key(0)
    noisy = with_scale_noise(apply, 0.1, layout=layout, per=per)(key, PARAMS, x)
    of_ones = lambda p, x: jnp.einsum("bi,gio->bgo", x, p["kernel"]) / INPUTS  # noqa: E731
    ones = {"kernel": jnp.ones((GROUPS, INPUTS, UNITS))}, jnp.ones((rows, INPUTS))
    factors = with_scale_noise(of_ones, 0.1, layout=layout, per=per)(key, *ones)
    assert len(np.unique(np.asarray(factors))) == UNITS * GROUPS * (rows if per == "sample" else 1)
    np.testing.assert_allclose(noisy, apply(PARAMS, x) * factors, rtol=1e-4)


#: Layers with a bias, without one (None in Equinox), and with groups last.
FITTED: dict[str, tuple[Callable[[Any, Any], Any], Any]] = {
    **{
        name: (lambda p, x, of=of: of(p, x) + p["bias"][None], PARAMS)
        for name, of in PRODUCTS.items()
    },
    "no bias": (by_group, PARAMS | {"bias": None}),
    "groups last": (
        lambda p, x: jnp.einsum("bgi,iog->bog", x, p["kernel"]) + p["bias"][None],
        {"kernel": draw(INPUTS, UNITS, GROUPS), "bias": draw(UNITS, GROUPS)},
    ),
}


@pytest.mark.kept("groups last")
@pytest.mark.parametrize("name", FITTED)
def test_each_group_is_initialized_by_itself(name: str) -> None:
    apply, params = FITTED[name]
    fitted = data_dependent_init(
        read(apply, params, X), layout=traced_layout(read(apply, params, X))
    )
    output = np.asarray(apply(fitted, X), np.float64)
    np.testing.assert_allclose(output.std(0), 1, rtol=1e-5)
    if params["bias"] is not None:
        np.testing.assert_allclose(output.mean(0), 0, atol=1e-5)


@pytest.mark.parametrize("members", [3, 2], ids=["all axes alike", "not alike"])
def test_an_ensemble_of_convolutions(members: int) -> None:
    """`vmap` reshapes and transposes their kernels in one step."""

    def conv(w: Any, x: Any) -> Any:
        numbers = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=numbers)

    params, images = {"kernel": draw(members, 3, 3, 3, 4)}, draw(2, 5, 5, 3)
    apply = lambda p, x: jax.vmap(conv, (0, None))(p["kernel"], x)  # noqa: E731
    axes = traced_layout(read(apply, params, images))
    assert axes(params) == {"kernel": (-4, -3, -2)}
    _, layers = collect_preactivations(read(apply, params, images), layout=axes)
    alone = [conv(w, images) for w in params["kernel"]]
    np.testing.assert_allclose(layers["kernel"], jnp.concatenate(alone, -1), rtol=1e-5, atol=1e-5)
