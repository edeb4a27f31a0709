"""The sphere projection over thousands of steps, in narrow types, and where there is no sphere."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxnorm import constraint_drift, layout_from_rules, project, sphere_projection
from tests import oracles
from tests.table import example_gradients, example_params
from tests.tolerances import BFLOAT16_DRIFT, DRIFT, FLOAT32

KERNEL_AXES = {"conv/kernel": (-4, -3, -2), "dense/kernel": (-2,), "scaled/kernel/kernel": (-2,)}


def kernels(params: Any) -> dict[str, Any]:
    return {
        "conv/kernel": params["conv"]["kernel"],
        "dense/kernel": params["dense"]["kernel"],
        "scaled/kernel/kernel": params["scaled"]["kernel"].kernel,
    }


def true_drift(params: Any) -> dict[str, float]:
    """The drift in float64, kernel by kernel."""
    sizes = [
        oracles.sums_and_squared_norms(kernel, KERNEL_AXES[path])
        for path, kernel in kernels(params).items()
    ]
    return {
        "sum": max(float(np.abs(sums).max()) for sums, _ in sizes),
        "squared_norm": max(float(np.abs(squares - 2).max()) for _, squares in sizes),
    }


def train(
    tx: optax.GradientTransformation, params: Any, steps: int, land: Any = lambda p: p
) -> Any:
    """The parameters after steps of gradients that look random; ``land`` is applied after each."""
    phases = jax.tree.map(lambda g, p: g.astype(p.dtype), example_gradients(), params)

    def step(carry: Any, time: jax.Array) -> Any:
        params, state = carry
        gradients = jax.tree.map(lambda g: jnp.sin(time.astype(g.dtype) * g), phases)
        updates, state = tx.update(gradients, state, params)
        return (land(optax.apply_updates(params, updates)), state), None

    times = jnp.arange(1.0, steps + 1)
    return jax.jit(lambda p: jax.lax.scan(step, (p, tx.init(p)), times)[0][0])(params)


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
    params = train(optax.chain(optimizer, sphere_projection()), start, 2000)
    moved = [abs(np.asarray(a) - np.asarray(b)).max() for a, b in _pairs(params, start)]
    assert min(moved) > 0.1
    assert max(true_drift(params).values()) < DRIFT
    assert max(float(value) for value in constraint_drift(params).values()) < DRIFT


def _pairs(params: Any, start: Any) -> Any:
    return zip(kernels(params).values(), kernels(start).values(), strict=True)


@pytest.mark.usefixtures("standard_promotion")
def test_bfloat16_weights_with_float32_updates_drift_by_their_own_rounding() -> None:
    params = project(example_params(jnp.bfloat16))
    tx = sphere_projection()
    for seed in range(3):
        updates = jax.tree.map(lambda g, s=seed: (s + 1) * g, example_gradients())
        step, _ = tx.update(updates, tx.init(params), params)
        params = optax.apply_updates(params, step)
    assert params["dense"]["kernel"].dtype == jnp.bfloat16
    assert 0 < true_drift(params)["squared_norm"] <= 2 * BFLOAT16_DRIFT


def test_bfloat16_weights_with_float32_updates_land_on_the_stored_projection() -> None:
    """The step makes up for the storage's rounding, so that the sum is a bfloat16 number."""
    params, updates = example_params(jnp.bfloat16), example_gradients()
    tx = sphere_projection()
    step, _ = tx.update(updates, tx.init(params), params)
    for path, kernel in kernels(params).items():
        wide, moved = kernels(step)[path], np.asarray(kernel, np.float64)
        assert wide.dtype == jnp.float32
        point = oracles.projected(moved + kernels(updates)[path], KERNEL_AXES[path], 2.0, True)
        landed = moved + np.asarray(wide, np.float64)
        stored = np.asarray(jnp.asarray(landed, jnp.float32).astype(jnp.bfloat16), np.float64)
        # Two bfloat16 numbers differ by a float32 number: nothing is left to round.
        np.testing.assert_array_equal(landed, stored)
        np.testing.assert_allclose(stored, point, rtol=2.0**-8 + 1e-6, atol=1e-7)


def test_bfloat16_weights_that_are_projected_after_the_addition() -> None:
    start = project(example_params(jnp.bfloat16))
    tx = optax.chain(optax.sgd(0.125), sphere_projection())
    params = train(tx, start, 100, land=project)
    assert 0 < true_drift(params)["squared_norm"] <= 2 * BFLOAT16_DRIFT


def one_weight_a_unit() -> Any:
    return {"first": {"kernel": jnp.ones((1, 3))}, "second": {"kernel": jnp.ones((4, 3))}}


def test_a_single_weight_has_no_centered_sphere() -> None:
    message = r"'first/kernel' of shape \(1, 3\) has units with one weight .*centered=False"
    with pytest.raises(ValueError, match=message):
        sphere_projection().init(one_weight_a_unit())


def test_the_ways_out_of_a_single_weight() -> None:
    params, gradients = one_weight_a_unit(), jax.tree.map(jnp.ones_like, one_weight_a_unit())
    tx = sphere_projection(centered=False)
    step, _ = tx.update(gradients, tx.init(params), params)
    landed = optax.apply_updates(params, step)["first"]["kernel"]
    np.testing.assert_allclose(landed, np.full((1, 3), np.sqrt(2)), **FLOAT32)
    skipping = layout_from_rules([("first", None), ("kernel$", -2)])
    tx = sphere_projection(layout=skipping)
    step, _ = tx.update(gradients, tx.init(params), params)
    np.testing.assert_array_equal(step["first"]["kernel"], gradients["first"]["kernel"])


@pytest.mark.parametrize("squared_radius", [0.0, -1.0, {"dense": -1.0, "conv": 2.0, "scaled": 2.0}])
def test_a_radius_must_be_positive(squared_radius: Any) -> None:
    with pytest.raises(ValueError, match=r"squared_radius is .* for the parameter .*positive"):
        sphere_projection(squared_radius=squared_radius).init(example_params())


def test_a_tree_of_radii_must_reach_every_leaf() -> None:
    with pytest.raises(ValueError, match=r"squared_radius has no entry .*conv.*it has .*dense"):
        sphere_projection(squared_radius={"dense": 1.0}).init(example_params())


def test_update_needs_the_parameters() -> None:
    with pytest.raises(ValueError, match=r"sphere_projection .* got no params"):
        sphere_projection().update(example_gradients(), optax.EmptyState())


def test_a_layout_that_constrains_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"constrains no parameter.*paths are: embedding"):
        sphere_projection().init({"embedding": jnp.ones((3, 2))})
