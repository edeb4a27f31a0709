"""Kernels large enough to be summed in parts: right at every offset and size, and in few passes."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxnorm import (
    attach_singular_vectors,
    clip_by_layer_norm,
    effective,
    project_to_sphere,
    reparametrize,
    sphere_projection,
)
from jaxnorm._sums import parted_axis
from tests import oracles
from tests.reparam.table import TABLE, Row
from tests.reparam.trees import (
    assert_near,
    oracle_gradients,
    oracle_value,
    value_and_gradients,
    weighted_sum,
)

SHAPES = {"dense": ((512, 32), (-2,)), "conv": ((3, 3, 64, 32), (-4, -3, -2))}
ROWS = [row for row in TABLE if row.name in ("lcw", "wn", "cwn", "ws", "sn", "scaled")]
# Sums of 512 to 576 terms in float32, added in parts: some fifty roundings of 2^-24 of the largest
# partial sum, on values of up to four.
FLOAT32 = {"rtol": 2e-5, "atol": 2e-5}
# Points of a sphere of radius sqrt(2): a norm's error is half that of its square.
POINT = {"rtol": 2e-6, "atol": 1e-6}
BYTES = 4


def draw(seed: int, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(size=shape)


def normal(seed: int, shape: tuple[int, ...], dtype: Any = jnp.float32) -> jax.Array:
    return jnp.asarray(draw(seed, shape), dtype)


def node_of(row: Row, case: str, dtype: Any = jnp.float32) -> Any:
    shape, axes = SHAPES[case]
    leaves, structure = jax.tree.flatten(row.make(normal(0, shape, dtype), axes))
    return jax.tree.unflatten(structure, [leaves[0], *(1.5 * leaf for leaf in leaves[1:])])


@pytest.mark.parametrize("case", SHAPES)
def test_these_kernels_are_summed_in_parts(case: str) -> None:
    shape, axes = SHAPES[case]
    assert parted_axis(normal(0, shape), axes) == -2
    assert parted_axis(normal(0, shape).T, (-1,)) is None
    assert parted_axis(normal(0, (8, 8)), (-2,)) is None


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
@pytest.mark.parametrize(
    ("case", "dtype"), [("dense", "float32"), ("conv", "float32"), ("dense", "bfloat16")]
)
def test_values_and_gradients_are_those_of_numpy(row: Row, case: str, dtype: str) -> None:
    node, cotangent = node_of(row, case, dtype), normal(9, SHAPES[case][0], dtype)
    tolerance = FLOAT32 if dtype == "float32" else {"rtol": 2**-7, "atol": 2**-7}
    kernel, gradients = value_and_gradients(node, cotangent)
    assert kernel.dtype == dtype
    assert_near(kernel, oracle_value(row, node), tolerance)
    for got, wanted in zip(gradients, oracle_gradients(row, node, cotangent), strict=True):
        assert_near(got, wanted, tolerance)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_forward_and_reverse_mode_are_each_others_transpose_under_vmap(row: Row) -> None:
    """And a second derivative exists."""
    node = node_of(row, "dense")
    tangent = jax.tree.map(lambda leaf: normal(5, leaf.shape), node)
    cotangent = normal(6, (512, 32))

    @jax.jit
    def both(node: Any, tangent: Any) -> tuple[Any, Any, Any]:
        _, slope = jax.jvp(lambda n: n.effective(), (node,), (tangent,))
        gradient = jax.grad(weighted_sum)
        back = gradient(node, cotangent)
        ahead = sum(
            jnp.vdot(a, b) for a, b in zip(*map(jax.tree.leaves, (back, tangent)), strict=True)
        )
        return (
            jnp.vdot(slope, cotangent),
            ahead,
            jax.jvp(lambda n: gradient(n, cotangent), (node,), (tangent,))[1],
        )

    stacked = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), (node, tangent))
    forward, reverse, second = jax.vmap(both)(*stacked)
    # Products of 16384 terms of order one.
    np.testing.assert_allclose(forward, reverse, rtol=1e-3, atol=1e-2)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(second))


def assert_projected(weights: Any, centered: bool = True, **tolerance: float) -> None:
    wanted = oracles.projected(weights, (-2,), 2.0, centered)
    got = jax.jit(lambda w: project_to_sphere(w, 0, centered=centered))(weights)
    np.testing.assert_allclose(np.asarray(got, np.float64), wanted, **(tolerance or POINT))


@pytest.mark.parametrize("offset", [-1e2, 1e4, 1e5, -1e6])
def test_an_offset_of_a_million_deviations_costs_nothing(offset: float) -> None:
    deviations = draw(1, (512, 32))
    assert_projected(jnp.asarray(deviations / deviations.std(0) + offset, jnp.float32))


@pytest.mark.parametrize("size", [1e-16, 1e-10, 1e10, 1e17])
@pytest.mark.parametrize("centered", [True, False])
def test_any_size_whose_square_float32_holds(size: float, centered: bool) -> None:
    assert_projected(jnp.asarray(size * draw(2, (512, 32)), jnp.float32), centered)


@pytest.mark.parametrize("every", [16, 8, 1])
def test_rows_that_are_far_from_all_others(every: int) -> None:
    """The rows that the shift is taken from among them, alone or with others: 1 + m/n is 17."""
    weights = 1e-2 * draw(3, (512, 32))
    weights[:: 512 // 32 * every] += 1.0
    assert_projected(jnp.asarray(weights, jnp.float32), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("centered", [True, False])
def test_singular_units_are_zero_overflow_is_seen_and_the_others_do_not_notice(
    centered: bool,
) -> None:
    weights = draw(4, (512, 32))
    weights[:, 0] = 0.0
    weights[:, 1] *= 1e-20
    weights[:, 2] *= 1e20
    weights[:, 3] = 0.1
    weights = jnp.asarray(weights, jnp.float32)
    loss = lambda w: (project_to_sphere(w, 0, centered=centered) * normal(5, w.shape)).sum()  # noqa: E731
    got, gradient = project_to_sphere(weights, 0, centered=centered), jax.grad(loss)(weights)
    assert np.isnan(got[:, 2]).all()
    singular = [0, 1, 3] if centered else [0, 1]
    np.testing.assert_array_equal(got[:, singular], 0)
    np.testing.assert_array_equal(gradient[:, singular], 0)
    wanted = oracles.projected(weights[:, 4:], (-2,), 2.0, centered)
    np.testing.assert_allclose(got[:, 4:], wanted, **POINT)
    assert np.isfinite(gradient[:, 4:]).all()


@pytest.mark.parametrize("centered", [True, False])
@pytest.mark.parametrize("offset", [0.0, 1e4])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_update_lands_from_weights_that_are_anywhere(
    dtype: str, offset: float, centered: bool
) -> None:
    """On the set or edited by hand."""
    axes = (-4, -3, -2)
    weights = jnp.asarray(draw(6, SHAPES["conv"][0]) + offset, dtype)
    step = normal(7, SHAPES["conv"][0], dtype)
    tx = sphere_projection(centered=centered)
    params = {"kernel": weights}
    update, _ = tx.update({"kernel": step}, tx.init(params), params)
    moved = np.asarray(weights, np.float64) + np.asarray(step, np.float64)
    wanted = oracles.projected(moved.astype(np.float32), axes, 2.0, centered)
    landed = optax.apply_updates(params, update)["kernel"]
    # What the update and its addition to the old weight round off, in the weights' own type.
    rounding = float(jnp.finfo(dtype).eps) * (2 * offset + 8)
    np.testing.assert_allclose(np.asarray(landed, np.float64), wanted, rtol=0, atol=rounding)


#: Reads and writes of a kernel in all, in the forward pass and with the gradient.
PASSES = {
    "scaled": (2.1, 4.5),
    "lcw": (3.5, 3.5),
    "wn": (3.6, 7.0),
    "cwn": (4.0, 8.6),
    "sn": (3.3, 5.7),
}


@pytest.mark.parametrize("row", [r for r in ROWS if r.name in PASSES], ids=lambda row: row.name)
def test_a_kernel_is_read_and_written_few_times(row: Row) -> None:
    params = {"kernel": normal(0, (2048, 64))}
    raw = reparametrize(params, type(row.make(params["kernel"], (-2,))))
    vectors = {"kernel": jnp.ones(64)} if row.name == "sn" else {}

    def weights(raw: Any) -> Any:
        return effective(attach_singular_vectors(raw, vectors))

    loss = lambda raw, c: jnp.vdot(weights(raw)["kernel"], c)  # noqa: E731
    forward = jax.jit(weights).lower(raw).compile()
    gradient = jax.jit(jax.grad(loss)).lower(raw, params["kernel"]).compile()
    for compiled, allowed in zip((forward, gradient), PASSES[row.name], strict=True):
        assert moved(compiled) <= allowed * params["kernel"].size * BYTES


def test_a_constrained_or_clipped_update_moves_less_than_adams() -> None:
    params = {"kernel": normal(0, (2048, 64))}

    def bytes_of(tx: optax.GradientTransformation) -> float:
        def step(params: Any, state: Any, gradient: Any) -> Any:
            updates, state = tx.update(gradient, state, params)
            return optax.apply_updates(params, updates), state

        return moved(jax.jit(step).lower(params, tx.init(params), params).compile())

    sgd = optax.sgd(0.1, momentum=0.9)
    assert bytes_of(optax.chain(sgd, sphere_projection())) < 1.7 * bytes_of(sgd)
    assert bytes_of(optax.chain(clip_by_layer_norm(1.0), sgd)) < 1.5 * bytes_of(sgd)


@pytest.mark.parametrize("size", [1e-24, 1.0, 1e36])
def test_gradients_of_any_size_are_clipped(size: float) -> None:
    gradient = jnp.asarray(size * draw(8, (512, 32)), jnp.float32)
    clipped = jax.jit(lambda g: clip_by_layer_norm(1e-25).update(g, optax.EmptyState())[0])
    wide = np.asarray(gradient, np.float64)
    got = np.asarray(clipped(gradient), np.float64) / 1e-25
    np.testing.assert_allclose(got, wide / np.linalg.norm(wide), rtol=2e-5)


@pytest.mark.parametrize("place", [(0, 0), (13, 5), (511, 31)])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_seen_wherever_it_is(bad: float, place: tuple[int, int]) -> None:
    gradient = normal(8, (512, 32)).at[place].set(bad)
    clipped, _ = clip_by_layer_norm(1.0).update(gradient, optax.EmptyState())
    assert np.isnan(clipped).all()


def test_clipping_has_the_derivative_of_its_formula() -> None:
    gradient, tangent = normal(8, (512, 32)), normal(9, (512, 32))
    clip = lambda g: clip_by_layer_norm(1.0).update(g, optax.EmptyState())[0]  # noqa: E731
    _, slope = jax.jvp(clip, (gradient,), (tangent,))
    wide, along = (np.asarray(x, np.float64) for x in (gradient, tangent))
    norm = np.linalg.norm(wide)
    wanted = along / norm - wide * np.vdot(wide, along) / norm**3
    np.testing.assert_allclose(slope, wanted, rtol=0, atol=1e-7)


def moved(compiled: jax.stages.Compiled) -> float:
    costs = compiled.cost_analysis()
    assert costs is not None
    return costs["bytes accessed"]
