"""Three steps of SGD on a model with the loss in it: the same parameters on any devices."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from jaxnorm import exclude
from jaxnorm.losses import (
    collect_preactivations,
    initial_betas,
    positive_betas,
    total_variance_constancy,
)
from tests.devices import BOTH, DEVICES, collectives, mesh
from tests.losses.oracles import variance_constancy

SAMPLES, GROUPS, STEPS, WEIGHT = 64, 8, 3, 0.1
RATE, SAMPLE_SIZE = 0.1, 2


def draw(seed: int, *shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


X, Y = draw(0, SAMPLES, 6), draw(1, SAMPLES, 2)
LAYERS = ("first", "second")


def start() -> dict[str, Any]:
    weights = {"first": draw(2, 6, 10) / 2, "second": draw(3, 10, 8) / 3, "head": draw(4, 8, 2) / 3}
    shapes = {"first": jnp.zeros((SAMPLES, 10)), "second": jnp.zeros((SAMPLES, 8))}
    return {"weights": weights, "betas": initial_betas(shapes)}


def network(weights: Any, x: Any) -> Any:
    for name in LAYERS:
        x = jax.nn.elu(x @ weights[name]["kernel"])
    return x @ weights["head"]["kernel"]


def first_rows(x: Any, groups: int) -> Any:
    """Two samples of each group, as the loss's docstring takes them out of devices' shares."""
    shares = x.reshape(groups, len(x) // groups, *x.shape[1:])[:, : 2 * SAMPLE_SIZE]
    return shares.reshape(groups * 2 * SAMPLE_SIZE, *x.shape[1:])


def objective(
    params: Any,
    x: Any,
    y: Any,
    groups: int,
    axis_name: str | None = None,
    weight: float = WEIGHT,
) -> jax.Array:
    """The mean squared error plus the loss of both hidden layers' pre-activations."""
    weights = {name: {"kernel": kernel} for name, kernel in params["weights"].items()}
    error = jnp.square(network(weights, x) - y).mean()
    if not weight:
        return error
    rows = first_rows(x, groups)
    _, found = collect_preactivations(network, weights, rows, layout=exclude("^head/"))
    layers = {name: found[f"{name}/kernel"] for name in LAYERS}
    betas = positive_betas(params["betas"])
    return error + weight * total_variance_constancy(
        layers, betas, SAMPLE_SIZE, groups=groups, axis_name=axis_name
    )


def train(params: Any, x: Any, y: Any, groups: int, axis_name: str | None = None) -> Any:
    def step(params: Any, _: None) -> tuple[Any, None]:
        gradient = jax.grad(objective)(params, x, y, groups)
        if axis_name is not None:
            gradient = jax.lax.pmean(gradient, axis_name)
        return jax.tree.map(lambda p, g: p - RATE * g, params, gradient), None

    return jax.lax.scan(step, params, None, length=STEPS)[0]


def of_numpy(params: Any) -> float:
    """The objective in float64, with the loss of the whole minibatch's pre-activations."""
    x, total = np.asarray(X, np.float64), 0.0
    for name in LAYERS:
        h = x @ params["weights"][name]
        beta = np.log1p(np.exp(params["betas"][name]))
        total += variance_constancy(h, beta, SAMPLE_SIZE, groups=GROUPS)
        x = np.where(h > 0, h, np.expm1(np.minimum(h, 0)))
    error = np.square(x @ params["weights"]["head"] - np.asarray(Y, np.float64)).mean()
    return float(error + WEIGHT * total)


def test_a_step_is_that_of_finite_differences_in_numpy() -> None:
    """Of the minibatch's own pre-activations: the rows pass through the network by themselves."""
    params = jax.tree.map(lambda p: np.array(p, np.float64), start())
    wanted = jax.tree.map(np.copy, params)
    for array, moved in zip(jax.tree.leaves(params), jax.tree.leaves(wanted), strict=True):
        for place in np.ndindex(array.shape):
            ends, kept = [], array[place]
            for step in (1e-5, -1e-5):
                array[place] = kept + step
                ends.append(of_numpy(params))
            array[place] = kept
            moved[place] -= RATE * (ends[0] - ends[1]) / 2e-5
    gradient = jax.grad(objective)(start(), X, Y, GROUPS)
    got = jax.tree.map(lambda p, g: p - RATE * g, start(), gradient)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@functools.cache
def wanted() -> Any:
    """On one device."""
    return jax.jit(train, static_argnums=3)(start(), X, Y, GROUPS)


def assert_same(got: Any) -> None:
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(wanted()), strict=True):
        np.testing.assert_allclose(np.asarray(a), b, rtol=1e-5, atol=2e-6)


def test_the_loss_is_in_the_steps() -> None:
    """What the other tests compare would otherwise agree without it."""
    before, after = start(), wanted()
    assert np.abs(np.asarray(before["betas"]["first"] - after["betas"]["first"])).max() > 1e-3


@BOTH
@DEVICES
def test_a_sharded_batch_under_jit(devices: int, axis_type: AxisType) -> None:
    with jax.set_mesh(mesh(devices, axis_type)):
        x, y = jax.device_put((X, Y), P("data"))
        assert_same(jax.jit(train, static_argnums=3)(start(), x, y, GROUPS))


@DEVICES
def test_shard_map(devices: int) -> None:
    with jax.set_mesh(mesh(devices, AxisType.Auto)):
        mapped = jax.shard_map(
            lambda p, x, y: train(p, x, y, GROUPS // devices, "data"),
            in_specs=(P(), P("data"), P("data")),
            out_specs=P(),
            check_vma=False,
        )
        assert_same(jax.jit(mapped)(start(), X, Y))


@pytest.mark.parametrize("devices", [2, 8])
def test_shard_map_of_a_loss_that_is_averaged_inside(devices: int) -> None:
    """With replication checked, and the gradient taken outside: `axis_name` in the loss itself."""

    def step(params: Any, x: Any, y: Any) -> Any:
        def local(params: Any, x: Any, y: Any) -> jax.Array:
            return jax.lax.pmean(objective(params, x, y, GROUPS // devices), "data")

        mapped = jax.shard_map(local, in_specs=(P(), P("data"), P("data")), out_specs=P())
        gradient = jax.grad(mapped)(params, x, y)
        return jax.tree.map(lambda p, g: p - RATE * g, params, gradient)

    with jax.set_mesh(mesh(devices, AxisType.Auto)):
        params, compiled = start(), jax.jit(step)
        for _ in range(STEPS):
            params = compiled(params, X, Y)
    assert_same(params)


@DEVICES
def test_pmap(devices: int) -> None:
    mapped = jax.pmap(
        lambda p, x, y: train(p, x, y, GROUPS // devices, "data"),
        axis_name="data",
        in_axes=(None, 0, 0),
        devices=jax.devices()[:devices],
    )
    got = mapped(start(), X.reshape(devices, -1, 6), Y.reshape(devices, -1, 2))
    assert_same(jax.tree.map(lambda p: p[0], got))


def test_axis_name_averages_the_devices_losses() -> None:
    params = start()
    whole = objective(params, X, Y, GROUPS)

    def local(x: jax.Array, y: jax.Array) -> jax.Array:
        with_vcl = objective(params, x, y, 1, axis_name="data")
        return jax.lax.pmean(with_vcl, "data")

    with jax.set_mesh(mesh(8, AxisType.Auto)):
        mapped = jax.shard_map(local, in_specs=P("data"), out_specs=P())
        np.testing.assert_allclose(jax.jit(mapped)(X, Y), whole, rtol=1e-5)


@BOTH
def test_it_adds_no_collective_to_the_step(axis_type: AxisType) -> None:
    """Aligned groups: the gradients' all-reduces, and none but those, with the loss or without."""

    def step(params: Any, x: Any, y: Any, weight: float) -> Any:
        gradient = jax.grad(objective)(params, x, y, GROUPS, None, weight)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradient)

    with jax.set_mesh(mesh(8, axis_type)):
        x, y = jax.device_put((X, Y), P("data"))
        found = [
            collectives(functools.partial(step, weight=weight), start(), x, y)
            for weight in (WEIGHT, 0.0)
        ]
    assert set(found[0]) == {"all-reduce"}
    assert len(found[0]) <= len(found[1])
