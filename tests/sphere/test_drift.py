"""Drift from the sphere after thousands of steps, and in narrow types."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxnorm import constraint_drift, linearly_constrain, project, sphere_projection
from tests import oracles
from tests.draws import draw
from tests.table import example_gradients, example_params
from tests.tolerances import BFLOAT16_DRIFT, DRIFT
from tests.trees import train

KERNEL_AXES = {"conv/kernel": (-4, -3, -2), "dense/kernel": (-2,), "scaled/kernel/kernel": (-2,)}


def kernels(params: Any) -> dict[str, Any]:
    return {
        "conv/kernel": params["conv"]["kernel"],
        "dense/kernel": params["dense"]["kernel"],
        "scaled/kernel/kernel": params["scaled"]["kernel"].kernel,
    }


def true_drift(params: Any) -> dict[str, float]:
    """Drift in float64."""
    sizes = [
        oracles.sums_and_squared_norms(kernel, KERNEL_AXES[path])
        for path, kernel in kernels(params).items()
    ]
    return {
        "sum": max(float(np.abs(sums).max()) for sums, _ in sizes),
        "squared_norm": max(float(np.abs(squares - 2).max()) for _, squares in sizes),
    }


def waves(phases: Any) -> Any:
    """Gradients of a sine of time with these phases."""
    return lambda params, time: jax.tree.map(lambda g: jnp.sin(time.astype(g.dtype) * g), phases)


@pytest.mark.slow
@pytest.mark.usefixtures("standard_promotion")
@pytest.mark.parametrize(
    "optimizer",
    [
        pytest.param(optax.sgd(0.1, momentum=0.9), id="sgd"),
        pytest.param(optax.adam(0.01), id="adam"),
        pytest.param(optax.contrib.muon(0.02), id="muon"),
    ],
)
def test_drift_after_two_thousand_steps(optimizer: Any) -> None:
    start = project(example_params())
    tx = optax.chain(optimizer, sphere_projection())
    params = train(tx, start, waves(example_gradients()), 2000)
    moved = [abs(np.asarray(a) - np.asarray(b)).max() for a, b in _pairs(params, start)]
    assert min(moved) > 0.1
    assert max(true_drift(params).values()) < DRIFT
    assert max(float(value) for value in constraint_drift(params).values()) < DRIFT


TOLERANCES = {"float32": DRIFT, "bfloat16": BFLOAT16_DRIFT}
OPTIMIZERS = {"sgd": optax.sgd(0.1), "adam": optax.adam(0.01)}


@pytest.mark.kept("adam-bfloat16", "sgd-float32")
@pytest.mark.usefixtures("standard_promotion")
@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_initial_norms_do_not_drift(name: str, dtype: str) -> None:
    """Squared norms of 0.5, 2 and 8."""
    draw = np.random.default_rng(3).normal(size=(2, 256, 3))
    sizes = np.sqrt([0.5, 2.0, 8.0])
    drawn = {"kernel": jnp.asarray(draw[0] * sizes / np.linalg.norm(draw[0], axis=0))}
    params = jax.tree.map(lambda leaf: leaf.astype(jnp.dtype(dtype)), drawn)
    phases = jnp.asarray(draw[1], jnp.dtype(dtype))
    tx = optax.chain(OPTIMIZERS[name], sphere_projection(squared_radius=None))
    actual = train(tx, params, waves({"kernel": phases}), 5000)["kernel"]
    before, after = (
        oracles.sums_and_squared_norms(x, (-2,))[1] for x in (params["kernel"], actual)
    )
    assert np.abs(np.asarray(actual - params["kernel"], np.float64)).max() > 0.1
    np.testing.assert_allclose(after, before, rtol=TOLERANCES[dtype], atol=0)


def test_the_state_has_one_norm_per_unit_without_a_radius() -> None:
    params = example_params()
    assert sphere_projection().init(params) == optax.EmptyState()
    radii = {"conv": 2.0, "dense": None, "scaled": None}
    norms = sphere_projection(squared_radius=radii).init(params).squared_norms
    assert [leaf.shape for leaf in jax.tree.leaves(norms)] == [(1, 8), (1, 8)]


def _pairs(params: Any, start: Any) -> Any:
    return zip(kernels(params).values(), kernels(start).values(), strict=True)


def test_float32_updates_lead_bfloat16_weights_to_the_stored_projection() -> None:
    """The update contains the rounding, so that the sum is a bfloat16 number."""
    params, updates = example_params(jnp.bfloat16), example_gradients()
    tx = sphere_projection()
    step, _ = tx.update(updates, tx.init(params), params)
    for path, kernel in kernels(params).items():
        wide, moved = kernels(step)[path], np.asarray(kernel, np.float64)
        assert wide.dtype == jnp.float32
        point = oracles.projected(moved + kernels(updates)[path], KERNEL_AXES[path], 2.0, True)
        landed = moved + np.asarray(wide, np.float64)
        stored = np.asarray(jnp.asarray(landed, jnp.float32).astype(jnp.bfloat16), np.float64)
        # The difference of two bfloat16 numbers is a float32 number, without rounding.
        np.testing.assert_array_equal(landed, stored)
        np.testing.assert_allclose(stored, point, rtol=2.0**-8 + 1e-6, atol=1e-7)


def test_project_after_the_addition_corrects_bfloat16_weights() -> None:
    start = project(example_params(jnp.bfloat16))
    tx = optax.chain(optax.sgd(0.125), sphere_projection())
    params = train(tx, start, waves(example_gradients(jnp.bfloat16)), 100, land=project)
    assert 0 < true_drift(params)["squared_norm"] <= 2 * BFLOAT16_DRIFT


@pytest.mark.usefixtures("standard_promotion")
def test_linearly_constrained_kernels_keep_zero_sums() -> None:
    """Sums of 1024 weights of size 1, under bfloat16 gradients with a mean."""
    params = {"kernel": draw(0, 1024, 16)}
    raw, tx = linearly_constrain(params, optax.sgd(0.1))

    def gradients(params: Any, time: jax.Array) -> Any:
        return jax.tree.map(lambda p: (jnp.sin(time * p) + p).astype(jnp.bfloat16), params)

    kernel = np.asarray(train(tx, raw, gradients, 50)["kernel"], np.float64)
    assert np.abs(kernel.sum(0)).max() < 1e-4
