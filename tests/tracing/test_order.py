"""Kernels whose layers do not run one after the other are refused, whichever loop it is."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from jaxnorm import data_dependent_init, variance_preserving_init, with_scale_noise
from jaxnorm.losses import collect_preactivations
from tests.devices import mesh
from tests.tolerances import FLOAT32

RNG = np.random.default_rng(0)
X = jnp.asarray(RNG.normal(size=(8, 3)), jnp.float32)
PARAMS = {"kernel": jnp.asarray(RNG.normal(size=(3, 3)), jnp.float32), "bias": jnp.ones(3)}
STACK = {"kernel": jnp.asarray(RNG.normal(size=(3, 3, 3)), jnp.float32)}


def scanned(kernels: Any, x: Any) -> Any:
    return jax.lax.scan(lambda h, kernel: (jnp.tanh(h @ kernel), None), x, kernels)[0]


def in_a_while_loop(p: Any, x: Any) -> Any:
    def turn(carry: Any) -> Any:
        return carry[0] + 1, jnp.tanh(carry[1] @ p["kernel"])

    return jax.lax.while_loop(lambda carry: carry[0] < 2, turn, (0, x))[1]


#: What the use is inside of, the model, and its parameters.
OUT_OF_ORDER: dict[str, tuple[str, Callable[[Any, Any], Any], Any]] = {
    "the same layer at every turn": (
        "scan",
        lambda p, x: jax.lax.scan(lambda h, _: (h @ p["kernel"], None), x, length=2)[0],
        PARAMS,
    ),
    "a while loop": ("while", in_a_while_loop, PARAMS),
    "a branch": (
        "cond",
        lambda p, x: jax.lax.cond(x.sum() > 0, lambda: x @ p["kernel"], lambda: -x @ p["kernel"]),
        PARAMS,
    ),
    "shards": (
        "shard_map",
        lambda p, x: jax.shard_map(
            lambda k, x: x @ k, mesh=mesh(2), in_specs=(P(), P("data")), out_specs=P("data")
        )(p["kernel"], x),
        PARAMS,
    ),
    "a stack along two of its axes": (
        "scan",
        lambda p, x: scanned(p["kernel"], scanned(p["kernel"].swapaxes(0, 1), x)),
        STACK,
    ),
    "a stack, and all of it at once": (
        "scan",
        lambda p, x: jnp.einsum("bi,lio->blo", scanned(p["kernel"], x), p["kernel"]),
        STACK,
    ),
}


def layout(params: Any) -> Any:
    return {name: (-2,) if name == "kernel" else None for name in params}


@pytest.mark.parametrize("name", OUT_OF_ORDER)
def test_a_kernel_out_of_order_is_refused_by_name(name: str) -> None:
    within, apply, params = OUT_OF_ORDER[name]
    said = f"the kernel 'kernel' is used inside a {within}, where layers do not run one after"
    for run in (collect_preactivations, variance_preserving_init, data_dependent_init):
        with pytest.raises(ValueError, match=said):
            run(apply, params, X, layout=layout)
    with pytest.raises(ValueError, match=said):
        with_scale_noise(apply, 0.1, layout=layout)(jax.random.key(0), params, X)


def test_what_a_shard_map_inside_a_model_is_told_to_do_works() -> None:
    """The shard_map around the call, as the message says."""
    _, apply, params = OUT_OF_ORDER["shards"]
    with pytest.raises(ValueError, match=r"wanted .* a shard_map around this call, not inside"):
        collect_preactivations(apply, params, X, layout=layout)
    around = jax.shard_map(
        lambda p, x: collect_preactivations(lambda p, x: x @ p["kernel"], p, x, layout=layout)[1],
        mesh=mesh(2),
        in_specs=(P(), P("data")),
        out_specs=P("data"),
    )
    layers = jax.jit(around)(params, X)
    np.testing.assert_allclose(layers["kernel"], X @ params["kernel"], **FLOAT32)


@pytest.mark.parametrize("inside", ["a branch", "a loop"])
def test_a_product_that_goes_into_a_loop_is_seen_before_it(inside: str) -> None:
    """What is added in there is not its bias: not every turn or branch adds it."""

    def apply(p: Any, x: Any) -> Any:
        product, bias = x @ p["kernel"], p["bias"][None]
        if inside == "a branch":
            return jax.lax.cond(x.sum() > 0, lambda h: h + bias, lambda h: h, product)
        return jax.lax.scan(lambda h, _: (h + (product + bias), None), 0 * x, length=2)[0]

    output, layers = collect_preactivations(apply, PARAMS, X, layout=layout)
    np.testing.assert_allclose(layers["kernel"], X @ PARAMS["kernel"], **FLOAT32)
    np.testing.assert_allclose(output, apply(PARAMS, X), **FLOAT32)


def test_the_only_unit_keeps_its_axis_through_a_reshape() -> None:
    """A network of one output, whose product is reshaped before its bias is added."""
    params = {"kernel": PARAMS["kernel"][:, :1], "bias": jnp.zeros(1)}

    def apply(p: Any, x: Any) -> Any:
        return (x @ p["kernel"]).reshape(1, 8, 1) + p["bias"][None, None]

    fitted = data_dependent_init(apply, params, X, layout=layout)
    output = np.asarray(apply(fitted, X), np.float64)
    np.testing.assert_allclose((output.mean(), output.std()), (0, 1), atol=1e-5)
    assert fitted["bias"].shape == (1,)
