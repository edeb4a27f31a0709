"""`project` and `constraint_drift` of trees, with settings per layer and per unit."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxnorm import (
    Scaled,
    constraint_drift,
    layout_from_rules,
    project,
)
from tests import oracles
from tests.draws import draw
from tests.tolerances import DRIFT, FLOAT32

HWIO, DENSE = (-4, -3, -2), (-2,)


def tree() -> dict[str, Any]:
    return {
        "conv": {"bias": draw(0, 4), "kernel": draw(1, 3, 3, 2, 4)},
        "dense": {"kernel": draw(2, 6, 5)},
        "scaled": {"kernel": Scaled(draw(3, 4, 3), draw(4, 3), DENSE)},
    }


def kernels(params: Any) -> dict[str, tuple[Any, tuple[int, ...]]]:
    return {
        "conv": (params["conv"]["kernel"], HWIO),
        "dense": (params["dense"]["kernel"], DENSE),
        "scaled": (params["scaled"]["kernel"].kernel, DENSE),
    }


#: One number, and pytree prefixes of numbers that end above, at and below the kernels.
RADII = {
    "one": (3.0, {"conv": 3.0, "dense": 3.0, "scaled": 3.0}),
    "by layer": (
        {"conv": 0.5, "dense": 2.0, "scaled": 8.0},
        {"conv": 0.5, "dense": 2.0, "scaled": 8.0},
    ),
    "by leaf": (
        {"conv": {"bias": None, "kernel": 1.0}, "dense": 4.0, "scaled": {"kernel": 2.0}},
        {"conv": 1.0, "dense": 4.0, "scaled": 2.0},
    ),
}


@pytest.mark.parametrize("name", RADII)
@pytest.mark.parametrize("centered", [True, False, {"conv": False, "dense": True, "scaled": False}])
def test_kernels_are_projected_and_other_leaves_unchanged(name: str, centered: Any) -> None:
    radii, squared_radii = RADII[name]
    before, after = tree(), project(tree(), squared_radius=radii, centered=centered)
    assert jax.tree.structure(after) == jax.tree.structure(before)
    for layer, (kernel, axes) in kernels(before).items():
        flag = centered if isinstance(centered, bool) else centered[layer]
        point = oracles.projected(kernel, axes, squared_radii[layer], flag)
        np.testing.assert_allclose(kernels(after)[layer][0], point, **FLOAT32)
    np.testing.assert_array_equal(after["conv"]["bias"], before["conv"]["bias"])
    np.testing.assert_array_equal(after["scaled"]["kernel"].scale, before["scaled"]["kernel"].scale)


#: Fan-in axes of square kernels, whose sizes do not show a wrong axis.
SQUARE = {"units first": (-1,), "units last": (-2,)}


@pytest.mark.parametrize("name", SQUARE)
def test_a_radius_per_unit(name: str) -> None:
    axes, radii = SQUARE[name], jnp.array([0.5, 2.0, 8.0])
    layout = layout_from_rules([(".*", axes)])
    kernel = project({"kernel": draw(0, 3, 3)}, layout=layout, squared_radius=radii)["kernel"]
    np.testing.assert_allclose(jnp.square(kernel).sum(axes), radii, **FLOAT32)
    drift = constraint_drift({"kernel": kernel}, layout=layout, squared_radius=radii)
    assert float(drift["squared_norm"]) < DRIFT


def test_masked_settings_are_ignored() -> None:
    masked = {"a": {"kernel": jnp.ones((4, 3))}, "b": optax.MaskedNode()}
    projected = project(masked, squared_radius={"a": 1.0, "b": 2.0})
    assert isinstance(projected["b"], optax.MaskedNode)


@pytest.mark.parametrize("name", RADII)
def test_drift_is_the_largest_distance_of_any_unit(name: str) -> None:
    radii, squared_radii = RADII[name]
    measures = {
        layer: oracles.sums_and_squared_norms(*kernel) for layer, kernel in kernels(tree()).items()
    }
    sums = max(np.abs(total).max() for total, _ in measures.values())
    norms = max(np.abs(norm - squared_radii[layer]).max() for layer, (_, norm) in measures.items())
    drift = constraint_drift(tree(), squared_radius=radii)
    assert sorted(drift) == ["squared_norm", "sum"]
    assert all(value.shape == () and value.dtype == jnp.float32 for value in drift.values())
    np.testing.assert_allclose(float(drift["sum"]), sums, rtol=FLOAT32["rtol"])
    np.testing.assert_allclose(float(drift["squared_norm"]), norms, rtol=FLOAT32["rtol"])
    projected = constraint_drift(project(tree(), squared_radius=radii), squared_radius=radii)
    assert all(value < DRIFT for value in projected.values())


def test_drift_of_mixed_types_has_the_widest() -> None:
    with jax.enable_x64(True):
        params = {"a": {"kernel": jnp.full((4, 2), 0.5, jnp.bfloat16)}}
        assert constraint_drift(params)["sum"].dtype == jnp.float32
        params["b"] = {"kernel": jnp.full((2, 2), 1 + 1e-12, jnp.float64)}
        drift = constraint_drift(params)
        assert {value.dtype for value in drift.values()} == {jnp.dtype("float64")}
        np.testing.assert_allclose(drift["squared_norm"], 1.0, rtol=1e-15)
        np.testing.assert_allclose(drift["sum"], 2 + 2e-12, rtol=1e-15)


def test_drift_of_bfloat16_kernels_is_computed_in_float32() -> None:
    params = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), project(tree()))
    measures = [oracles.sums_and_squared_norms(*kernel) for kernel in kernels(params).values()]
    drift = constraint_drift(params)
    expected = {
        "sum": max(np.abs(sums).max() for sums, _ in measures),
        "squared_norm": max(np.abs(norms - 2).max() for _, norms in measures),
    }
    for name, value in expected.items():
        assert drift[name].dtype == jnp.float32
        # The squares sum to 2, which float32 subtracts with an error of 2e-7.
        np.testing.assert_allclose(drift[name], value, rtol=1e-5, atol=1e-6)


def test_a_traced_radius() -> None:
    point = jax.jit(lambda c: project({"kernel": draw(0, 4, 3)}, squared_radius=c)["kernel"])
    for radius in (0.25, 9.0):
        expected = oracles.projected(draw(0, 4, 3), DENSE, radius, True)
        np.testing.assert_allclose(point(jnp.float32(radius)), expected, **FLOAT32)
