"""Three steps of SGD through `BatchNorm`: the same parameters and statistics on any devices."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from jaxnorm.nnx import BatchNorm, functionalize
from tests.devices import BOTH, DEVICES, mesh
from tests.trees import quick_jit

SAMPLES, GROUPS, STEPS = 64, 8, 3


def draw(seed: int, *shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


# The rows drift, so that the groups' statistics are far from the whole batch's.
X = draw(0, SAMPLES, 6) + jnp.linspace(0, 3, SAMPLES).reshape(-1, 1)
Y = draw(1, SAMPLES, 2)


def model(groups: int, axis_name: str | None = None) -> nnx.Sequential:
    """Normalized with the whole batch's statistics first, then with ghost batches'."""
    rngs = nnx.Rngs(0)
    return nnx.Sequential(
        nnx.Linear(6, 10, use_bias=False, rngs=rngs),
        BatchNorm(10, axis_name=axis_name),
        jax.nn.elu,
        BatchNorm(10, groups=groups),
        nnx.Linear(10, 2, use_bias=False, rngs=rngs),
    )


START = functionalize(model(GROUPS))[1:]


def train(start: Any, x: Any, y: Any, groups: int, axis_name: str | None = None) -> Any:
    """The parameters and the running statistics afterwards; across devices, their means."""
    apply = functionalize(model(groups, axis_name)).apply

    def step(carry: Any, _: None) -> tuple[Any, None]:
        params, state = carry

        def loss(params: Any) -> Any:
            output, after = apply(params, state, x, train=True)
            return jnp.square(output - y).mean(), after

        gradient, state = jax.grad(loss, has_aux=True)(params)
        if axis_name is not None:
            gradient, state = jax.lax.pmean((gradient, state), axis_name)
        return (jax.tree.map(lambda p, g: p - 0.1 * g, params, gradient), state), None

    return jax.lax.scan(step, start, None, length=STEPS)[0]


@functools.cache
def wanted(groups: int = GROUPS) -> Any:
    return quick_jit(train, static_argnums=3)(START, X, Y, groups)


def differences(got: Any) -> list[float]:
    pairs = zip(jax.tree.leaves(got), jax.tree.leaves(wanted()), strict=True)
    return [float(np.abs(np.asarray(a) - np.asarray(b)).max()) for a, b in pairs]


def assert_same(got: Any) -> None:
    """Values are of order one; three steps of sums of 64 float32 numbers, in another order."""
    assert max(differences(got)) < 1e-5


def test_the_groups_matter_and_everything_is_trained() -> None:
    """What the other tests compare would otherwise agree without them."""
    assert max(differences(wanted(1))) > 1e-2
    assert min(differences(START)) > 1e-3


@BOTH
@DEVICES
def test_a_sharded_batch_under_jit(devices: int, axis_type: AxisType) -> None:
    with jax.set_mesh(mesh(devices, axis_type)):
        x, y = jax.device_put((X, Y), P("data"))
        start = jax.device_put(START, P())  # explicit axes take parameters of this mesh alone
        assert_same(quick_jit(train, static_argnums=3)(start, x, y, GROUPS))


@DEVICES
def test_shard_map(devices: int) -> None:
    with jax.set_mesh(mesh(devices)):
        mapped = jax.shard_map(
            lambda start, x, y: train(start, x, y, GROUPS // devices, "data"),
            in_specs=(P(), P("data"), P("data")),
            out_specs=P(),
            check_vma=False,
        )
        assert_same(quick_jit(mapped)(START, X, Y))


@DEVICES
def test_pmap(devices: int) -> None:
    mapped = jax.pmap(
        lambda start, x, y: train(start, x, y, GROUPS // devices, "data"),
        axis_name="data",
        in_axes=(None, 0, 0),
        devices=jax.devices()[:devices],
    )
    got = mapped(START, X.reshape(devices, -1, 6), Y.reshape(devices, -1, 2))
    assert_same(jax.tree.map(lambda leaf: leaf[0], got))
