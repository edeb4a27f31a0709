"""Functions of rows on one device and on several: equal values, and few collectives."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from jaxnorm import batch_moments, constrain, variance_constancy_loss, with_scale_noise
from jaxnorm.batch_norm import gamma_decay_strength, independent_positions
from jaxnorm.nnx import BatchNorm, functionalize
from jaxnorm.vcl import total_variance_constancy
from tests.devices import DEVICES, mesh, result_and_collectives
from tests.draws import draw
from tests.nnx.batch_norm import OPTIONS, with_values
from tests.trees import quick_jit

ROWS, GROUPS = 64, 8


#: Rows with a drift, far from zero, so that the means of devices differ.
X = draw(0, 5 * ROWS, 3) + jnp.linspace(0, 5, 5 * ROWS)[:, None] + 1000
#: Mask of rows that is False for all rows of one of four devices.
MASK = jnp.asarray([row % 7 > 0 and row // 80 != 1 for row in range(5 * ROWS)])
IMAGES = draw(1, ROWS, 5, 3) + jnp.linspace(0, 2, ROWS)[:, None, None]
KERNELS = {"first": {"kernel": draw(2, 3, 4)}, "second": {"kernel": draw(3, 4, 2)}}
KEYS = jax.random.split(jax.random.key(1), ROWS)


class Row(NamedTuple):
    """Function of rows.

    Attributes:
        name: the name of its tests.
        call: ``(groups, axis_name, *inputs)``; groups is the number for these rows.
        inputs: arrays with one entry per row.
        pooled: True if every device gets the result of all rows, not of its own rows.
        all_reduces: the largest number of all-reduces.
    """

    name: str
    call: Callable[..., Any]
    inputs: tuple[Any, ...]
    pooled: bool = True
    all_reduces: int = 1


def noisy(groups: int, axis_name: Any, keys: Any, x: Any) -> Any:
    def apply(params: Any, x: Any) -> Any:
        return jnp.tanh(x @ params["first"]["kernel"]) @ params["second"]["kernel"]

    return with_scale_noise(apply, 0.5)(keys, KERNELS, x)


def strength(groups: int, axis_name: Any, u: Any) -> Any:
    """Strength for a diagonal Hessian, with which signs of the probe do not cancel."""
    loss = lambda p: jnp.cosh(u + p).sum(1).mean()  # noqa: E731
    return gamma_decay_strength(loss, u, 50.0, key=jax.random.key(0), axis_name=axis_name)


def group_moments(groups: int, axis_name: Any, x: Any) -> Any:
    return [value.reshape(groups, 3) for value in batch_moments(x, 0, groups=groups)[:2]]


def normalized(ghosts: bool = False, **options: Any) -> Row:
    """Output of batch normalization in training, and its statistics repeated for each row."""

    def call(groups: int, axis_name: Any, x: Any, kept: Any) -> Any:
        batch = {"groups": groups} if ghosts else {"axis_name": axis_name}
        layer = with_values(BatchNorm(3, **OPTIONS | batch | options))
        apply, params, state = functionalize(layer)
        mask = None if ghosts or options else kept[:, None]
        output, after = apply(params, state, x, train=True, mask=mask)
        statistics = [] if ghosts else [jnp.broadcast_to(leaf, x.shape) for leaf in after.values()]
        return [output, *statistics]

    name = "_".join(["ghosts" if ghosts else "normalized", *options])
    return Row(name, call, (X - 1000, MASK), False, 0 if ghosts else 2)


TABLE = (
    Row("moments", lambda g, name, x: batch_moments(x, 0, axis_name=name), (X,), all_reduces=2),
    Row(
        "image_moments",
        lambda g, name, x: batch_moments(x, (0, 1), axis_name=name),
        (IMAGES,),
        all_reduces=2,
    ),
    Row("group_moments", group_moments, (X,), False, 0),
    Row(
        "masked_moments",
        lambda g, name, x, kept: batch_moments(x, 0, axis_name=name, where=kept[:, None]),
        (X, MASK),
        all_reduces=2,
    ),
    normalized(),
    normalized(ghosts=True),
    Row(
        "positions", lambda g, name, x: independent_positions(x, axis_name=name), (IMAGES,), True, 2
    ),
    Row("vcl", lambda g, a, x: variance_constancy_loss(x, 1.0, groups=g, axis_name=a), (X,)),
    Row(
        "total_vcl",
        lambda g, a, x: total_variance_constancy([x], [jnp.ones(3)], groups=g, axis_name=a),
        (X,),
    ),
    Row("hessian", strength, (draw(4, ROWS, 3),)),
    Row("noise", noisy, (KEYS, draw(8, ROWS, 3)), False, 0),
)
ROWS_OF_TABLE = pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)


@functools.cache
def on_one_device(name: str) -> Any:
    (row,) = (row for row in TABLE if row.name == name)
    return quick_jit(lambda *inputs: row.call(GROUPS, None, *inputs))(*row.inputs)


def assert_same(actual: Any, expected: Any) -> None:
    for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(a), b, rtol=3e-6, atol=2e-6)


def mapped(row: Row, devices: int) -> Callable[..., Any]:
    """The function under `shard_map`."""
    return jax.shard_map(
        lambda *inputs: row.call(GROUPS // devices, "data", *inputs),
        in_specs=(P("data"),) * len(row.inputs),
        out_specs=P() if row.pooled else P("data"),
    )


def assert_as_on_one_device(row: Row, actual: Any, kinds: list[str]) -> None:
    assert_same(actual, on_one_device(row.name))
    assert len(kinds) <= row.all_reduces
    assert set(kinds) <= {"all-reduce"}


#: JAX does not fold keys that are split along explicit axes.
KINDS = [
    pytest.param(row, kind, id=f"{row.name}-{kind.name.lower()}")
    for row in TABLE
    for kind in (AxisType.Auto, AxisType.Explicit)
    if (row.name, kind) != ("noise", AxisType.Explicit)
]


@pytest.mark.kept("noise-auto", "normalized-auto", "moments-auto", "vcl-auto")
@DEVICES
@pytest.mark.parametrize(("row", "axis_type"), KINDS)
def test_jit_of_a_sharded_batch(row: Row, devices: int, axis_type: AxisType) -> None:
    with jax.set_mesh(mesh(devices, axis_type)):
        inputs = jax.device_put(row.inputs, P("data"))
        run = lambda *inputs: row.call(GROUPS, None, *inputs)  # noqa: E731
        assert_as_on_one_device(row, *result_and_collectives(run, *inputs))


@pytest.mark.kept("noise-4", "masked_moments", "ghosts")
@DEVICES
@ROWS_OF_TABLE
def test_shard_map(row: Row, devices: int) -> None:
    with jax.set_mesh(mesh(devices)):
        inputs = jax.device_put(row.inputs, P("data"))
        assert_as_on_one_device(row, *result_and_collectives(mapped(row, devices), *inputs))


@pytest.mark.kept("moments-4")
@DEVICES
@ROWS_OF_TABLE
def test_pmap(row: Row, devices: int) -> None:
    split = [x.reshape(devices, -1, *x.shape[1:]) for x in row.inputs]
    run = lambda *inputs: row.call(GROUPS // devices, "data", *inputs)  # noqa: E731
    actual = jax.pmap(run, axis_name="data", devices=jax.devices()[:devices])(*split)
    whole = lambda leaf: leaf[0] if row.pooled else np.concatenate(leaf)  # noqa: E731
    assert_same(jax.tree.map(whole, actual), on_one_device(row.name))


#: Rows whose results are constants for differentiation, or draws.
CONSTANT = ("hessian", "perceptron", "noise")
DIFFERENTIABLE = [row for row in TABLE if row.name not in CONSTANT]


@pytest.mark.kept("normalized")
@pytest.mark.parametrize("row", DIFFERENTIABLE, ids=lambda row: row.name)
def test_gradients_equal_those_of_one_device(row: Row) -> None:
    def slope(call: Callable[..., Any]) -> Any:
        def score(*inputs: Any) -> Any:
            leaves = [leaf.ravel() for leaf in jax.tree.leaves(call(*inputs))]
            return sum((jnp.linspace(1, 2, leaf.size) * leaf).sum() for leaf in leaves)

        return quick_jit(jax.grad(score))(*row.inputs)

    expected = slope(lambda *inputs: row.call(GROUPS, None, *inputs))
    with jax.set_mesh(mesh(4)):
        assert_same(slope(mapped(row, 4)), expected)


@pytest.mark.parametrize("axis_name", [("rows", "columns"), "rows"])
def test_moments_over_one_or_both_of_two_mapped_axes(axis_name: Any) -> None:
    over = jax.make_mesh((2, 4), ("rows", "columns"), axis_types=(AxisType.Auto,) * 2)
    outside = P() if isinstance(axis_name, tuple) else P("columns")
    pooled = jax.shard_map(
        lambda x: batch_moments(x, 0, axis_name=axis_name)[:2],
        mesh=over,
        in_specs=P(("rows", "columns")),
        out_specs=outside,
    )
    # Device (r, c) holds the rows of number 4 r + c; those of one c are pooled over r.
    parts = np.asarray(X, np.float64).reshape(2, 4, -1, 3).swapaxes(0, 1)
    exact = parts.reshape(1 if isinstance(axis_name, tuple) else 4, -1, 3)
    for value, expected in zip(jax.jit(pooled)(X), (exact.mean(1), exact.var(1)), strict=True):
        np.testing.assert_allclose(np.asarray(value).reshape(-1, 3), expected, rtol=1e-5)


def test_constrain_warns_of_a_shard_of_the_fan_in() -> None:
    """Each shard has the squared norm 2, the whole kernel 8."""
    kernel, devices = draw(0, 8, 4), mesh(4)
    axis = devices.axis_names[0]

    def start(kernel: jax.Array) -> jax.Array:
        raw, _ = constrain({"kernel": kernel}, optax.sgd(0.1))
        return raw["kernel"].kernel

    split = jax.shard_map(start, mesh=devices, in_specs=P(axis), out_specs=P(axis))
    with pytest.warns(UserWarning, match=rf"'kernel'.*{axis}.*jit"):
        jax.jit(split)(kernel)
    whole = jax.shard_map(start, mesh=devices, in_specs=P(), out_specs=P())
    squares = jnp.square(jax.jit(whole)(kernel)).sum(0)
    np.testing.assert_allclose(squares, 2, rtol=1e-6)
