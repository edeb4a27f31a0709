"""What a kernel is followed through: casts, branches, derivatives of a model's own."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from jaxnorm import data_dependent_init, traced_layout, variance_preserving_init, with_scale_noise
from jaxnorm.losses import collect_preactivations
from tests.devices import mesh
from tests.tolerances import FLOAT32

RNG = np.random.default_rng(0)


def draw(*shape: int) -> jax.Array:
    return jnp.asarray(RNG.normal(size=shape), jnp.float32)


ROWS = P("data")
X = draw(8, 4)
PARAMS = {"kernel": draw(4, 5), "bias": draw(5)}
WANTED = np.asarray(X, np.float64) @ np.asarray(PARAMS["kernel"], np.float64)
BIASED = WANTED + np.asarray(PARAMS["bias"], np.float64)


def dense(p: Any, x: Any) -> Any:
    return jnp.tanh(x @ p["kernel"] + p["bias"][None])


def in_shards(f: Callable[[Any, Any], Any], out: Any = ROWS) -> Any:
    """Under ``jax.shard_map`` with its default checks, parameters on every device."""
    return jax.jit(jax.shard_map(f, mesh=mesh(2), in_specs=(P(), ROWS), out_specs=out))


def test_preactivations_in_shard_map() -> None:
    got = in_shards(lambda p, x: collect_preactivations(dense, p, x)[1]["kernel"])(PARAMS, X)
    np.testing.assert_allclose(got, BIASED, **FLOAT32)


def test_parameters_that_vary_between_devices() -> None:
    """As one casts them, so that each device has a gradient of its own."""

    def varying(p: Any, x: Any) -> Any:
        return dense(jax.tree.map(lambda leaf: jax.lax.pcast(leaf, "data", to="varying"), p), x)

    def collect(p: Any, x: Any) -> Any:
        return collect_preactivations(varying, p, x)[1]["kernel"]

    np.testing.assert_allclose(in_shards(collect)(PARAMS, X), BIASED, **FLOAT32)


@pytest.mark.parametrize("init", [variance_preserving_init, data_dependent_init])
def test_initializers_in_shard_map(init: Any) -> None:
    """Each device's own rows: the parameters that one device makes of them."""
    stacked = in_shards(lambda p, x: jax.tree.map(lambda leaf: leaf[None], init(dense, p, x)))(
        PARAMS, X
    )
    for device, x in enumerate((X[:4], X[4:])):
        alone = init(dense, PARAMS, x)
        for name in PARAMS:
            np.testing.assert_allclose(stacked[name][device], alone[name], rtol=1e-5, atol=1e-5)


def passed_through(p: Any, x: Any) -> Any:
    """Both branches hand the kernel on; one of them computes something else as well."""
    kernel, shift = jax.lax.cond(
        x.sum() > 0, lambda w: (w, jnp.float32(0)), lambda w: (w, x.sum()), p["kernel"]
    )
    return x @ kernel + p["bias"][None] + 0 * shift


def carried(p: Any, x: Any) -> Any:
    """A loop carries the kernel, and leaves it as it is."""
    kernel, shift = jax.lax.scan(lambda c, row: (c, row.sum()), p["kernel"], x)
    return x @ kernel + p["bias"][None] + 0 * shift[:, None]


@pytest.mark.parametrize("apply", [passed_through, carried])
def test_a_kernel_that_only_passes_through(apply: Any, key: Any) -> None:
    assert traced_layout(apply, PARAMS, X)(PARAMS) == {"kernel": (-2,), "bias": None}
    _, layers = collect_preactivations(apply, PARAMS, X)
    np.testing.assert_allclose(layers["kernel"], BIASED, **FLOAT32)
    fitted = variance_preserving_init(apply, PARAMS, X)
    product = np.asarray(X, np.float64) @ np.asarray(fitted["kernel"], np.float64)
    np.testing.assert_allclose(product.var(), 1, rtol=1e-5)
    drawn = key()
    noisy = with_scale_noise(apply, 0.5)(drawn, PARAMS, X)
    plain = with_scale_noise(lambda p, x: x @ p["kernel"] + p["bias"][None], 0.5)(drawn, PARAMS, X)
    np.testing.assert_allclose(noisy, plain, **FLOAT32)


def test_branches_that_hand_on_different_kernels_are_refused() -> None:
    def apply(p: Any, x: Any) -> Any:
        return x @ jax.lax.cond(x.sum() > 0, lambda: p["kernel"], lambda: p["other"])

    params = PARAMS | {"other": draw(4, 5)}
    layout = lambda p: {"kernel": (-2,), "other": (-2,), "bias": None}  # noqa: E731
    with pytest.raises(
        ValueError, match="does not multiply its input by the kernels kernel, other"
    ):
        collect_preactivations(apply, params, X, layout=layout)


#: Uses of a kernel beside its product that no pass over the layers can see.
IN_PART: dict[str, Callable[[Any, Any], Any]] = {
    "a part of its units": lambda p, x: x @ p["kernel"][:, :2],
    "one of its units": lambda p, x: x @ p["kernel"][:, 0],
    "a part of its inputs": lambda p, x: x[:, :2] @ p["kernel"][:2],
    "side by side": lambda p, x: x @ jnp.concatenate([p["kernel"], p["kernel"]], 1),
}


@pytest.mark.parametrize("name", IN_PART)
def test_a_kernel_that_is_used_in_part_too_is_refused(name: str, key: Any) -> None:
    """Its noise would be on one of its products, and not on the other."""
    apply = lambda p, x: (dense(p, x), IN_PART[name](p, x))  # noqa: E731
    with pytest.raises(ValueError, match=r"by the kernels kernel as they are.*Leave them out"):
        with_scale_noise(apply, 0.1)(key(), PARAMS, X)


@jax.custom_vjp
def rounded(w: jax.Array) -> jax.Array:
    """To integers, with the gradient passed straight through."""
    return jnp.round(w)


rounded.defvjp(lambda w: (jnp.round(w), None), lambda _, g: (g,))


#: The same of something that is made of the kernel, which is nothing of one's own.
MADE_OF_IT: dict[str, Callable[[Any, Any], Any]] = {
    "its square": lambda p, x: x**2 @ p["kernel"] ** 2,
    "rounded": lambda p, x: x @ rounded(p["kernel"]),
    "masked": lambda p, x: x @ jnp.where(p["kernel"] > 0, p["kernel"], 0),
    "masked by an input": lambda p, x: x @ (p["kernel"] * jnp.sign(x[:4, :1])),
    "in a loop": lambda p, x: jax.lax.scan(
        lambda h, _: (h + x @ p["kernel"] ** 2, None), jnp.zeros((8, 5)), length=2
    )[0],
}


@pytest.mark.parametrize("name", MADE_OF_IT)
def test_a_kernel_of_which_something_else_is_multiplied_is_refused(name: str, key: Any) -> None:
    """An initializer would not see what its factor does there."""
    apply = lambda p, x: dense(p, x) + MADE_OF_IT[name](p, x)  # noqa: E731
    said = "by the kernels kernel and by something else that is made of them; wanted each.*Give the"
    for run in (collect_preactivations, variance_preserving_init, data_dependent_init):
        with pytest.raises(ValueError, match=said):
            run(apply, PARAMS, X)
    with pytest.raises(ValueError, match=said):
        with_scale_noise(apply, 0.1)(key(), PARAMS, X)


#: Uses of a kernel beside its product that are no products with the inputs.
NO_PRODUCTS: dict[str, Callable[[Any, Any], Any]] = {
    "rows that are looked up": lambda p, x: p["kernel"][x[:, 0].astype(jnp.int32) % 4],
    "a penalty": lambda p, x: (p["kernel"].T @ p["kernel"] - jnp.eye(5)).sum(keepdims=True),
    "a norm": lambda p, x: x.mean() * jnp.square(p["kernel"]).sum(keepdims=True),
}


@pytest.mark.parametrize("name", NO_PRODUCTS)
def test_a_kernel_that_is_tied_to_a_table_or_has_a_penalty_is_not(name: str) -> None:
    apply = lambda p, x: dense(p, x) + NO_PRODUCTS[name](p, x)  # noqa: E731
    output, layers = collect_preactivations(apply, PARAMS, X)
    np.testing.assert_allclose(layers["kernel"], BIASED, **FLOAT32)
    np.testing.assert_allclose(output, apply(PARAMS, X), **FLOAT32)


@pytest.mark.parametrize("init", [variance_preserving_init, data_dependent_init])
@pytest.mark.parametrize("name", NO_PRODUCTS)
def test_but_it_is_not_initialized(name: str, init: Any) -> None:
    """The factor would be on what is looked up too, which the next layer sees."""
    apply = lambda p, x: dense(p, x) + NO_PRODUCTS[name](p, x)  # noqa: E731
    with pytest.raises(ValueError, match=r"looks up rows of the kernels kernel.*Leave them out"):
        init(apply, PARAMS, X)


def test_a_learned_input_is_no_kernel() -> None:
    """A generator's constant: the parameter that the kernel is multiplied with is its input."""
    params = PARAMS | {"start": X}
    apply = lambda p, z: jnp.tanh(p["start"] @ p["kernel"] + p["bias"][None]) + z  # noqa: E731
    _, layers = collect_preactivations(apply, params, jnp.float32(0))
    np.testing.assert_allclose(layers["kernel"], BIASED, **FLOAT32)
