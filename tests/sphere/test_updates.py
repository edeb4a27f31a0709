"""`sphere_projection` against float64 NumPy, and its definition where no point is nearest."""

from typing import Any

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxnorm import layout_from_rules, project, sphere_projection
from tests import oracles
from tests.draws import draw, normal
from tests.table import example_gradients, example_params
from tests.tolerances import DIFFERENT, FLOAT32, FLOAT64
from tests.trees import train

OPTIMIZERS = {
    "sgd": (lambda: optax.sgd(0.1), lambda: oracles.sgd(0.1)),
    "momentum": (lambda: optax.sgd(0.1, momentum=0.9), lambda: oracles.sgd(0.1, momentum=0.9)),
    "adam": (lambda: optax.adam(0.05), lambda: oracles.adam(0.05)),
}
STEPS = 3


def step(params: Any, updates: Any, **options: Any) -> Any:
    """Parameters after one projected step."""
    tx = sphere_projection(**options)
    update, _ = tx.update(updates, tx.init(params), params)
    return optax.apply_updates(params, update)


@st.composite
def shapes_and_axes(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """A shape of rank 2 to 4 and some, not all, of its axes."""
    shape = tuple(draw(st.lists(st.integers(2, 4), min_size=2, max_size=4)))
    axes = st.sets(st.integers(-len(shape), -1), min_size=1, max_size=len(shape) - 1)
    return shape, tuple(sorted(draw(axes)))


@pytest.mark.kept("momentum")
@pytest.mark.parametrize("name", OPTIMIZERS)
@hypothesis.settings(max_examples=6)
@hypothesis.given(shape_and_axes=shapes_and_axes(), seed=st.integers(0, 99))
def test_steps_equal_the_oracle(name: str, shape_and_axes: Any, seed: int) -> None:
    (shape, axes), squared_radius = shape_and_axes, 1.5
    optimizer, oracle = OPTIMIZERS[name]
    start = oracles.projected(normal(seed, *shape), axes, squared_radius, centered=True)
    gradients = normal(seed + 100, STEPS, *shape)
    *_, expected = oracles.constrained_run(start, gradients, oracle(), axes, squared_radius)
    layout = layout_from_rules([("kernel", axes)])
    tx = optax.chain(optimizer(), sphere_projection(squared_radius=squared_radius, layout=layout))
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        stacked = jnp.asarray(gradients)
        gradient = lambda params, time: {"kernel": stacked[time.astype(jnp.int32) - 1]}  # noqa: E731
        actual = train(tx, {"kernel": jnp.asarray(start)}, gradient, STEPS)
        np.testing.assert_allclose(actual["kernel"], expected, **FLOAT64)


@pytest.mark.parametrize("centered", [True, False])
def test_a_unit_without_a_nearest_point_keeps_its_weights(centered: bool) -> None:
    weights = project({"kernel": draw(7, 4, 3)}, centered=centered)
    update = draw(8, 4, 3)
    # The first unit moves to a constant, or to zero.
    singular = -weights["kernel"][:, 0] + (5.0 if centered else 0.0)
    updates = {"kernel": update.at[:, 0].set(singular)}
    actual = step(weights, updates, centered=centered)["kernel"]
    expected = oracles.projected(weights["kernel"] + update, (-2,), 2.0, centered)
    np.testing.assert_array_equal(actual[:, 0], weights["kernel"][:, 0])
    np.testing.assert_allclose(actual[:, 1:], expected[:, 1:], **FLOAT32)


@pytest.mark.parametrize("centered", [True, False])
def test_without_a_radius_each_unit_keeps_its_norm(centered: bool) -> None:
    params, updates = example_params(), example_gradients()
    actual = step(params, updates, squared_radius=None, centered=centered)
    for name, axes in (("conv", (-4, -3, -2)), ("dense", (-2,))):
        before = oracles.sums_and_squared_norms(params[name]["kernel"], axes)[1]
        moved = np.asarray(params[name]["kernel"]) + np.asarray(updates[name]["kernel"])
        expected = oracles.projected(moved, axes, before, centered)
        np.testing.assert_allclose(actual[name]["kernel"], expected, **FLOAT32)


@pytest.mark.parametrize("centered", [True, False])
def test_tangent_steps_equal_the_dense_projector(centered: bool) -> None:
    """The projector is I - 11'/m - ww'/||w||^2 per unit."""
    axes = (-4, -3, -2)
    start = oracles.projected(normal(10, 3, 3, 2, 4), axes, 1.5, centered)
    update = 1 + normal(11, 3, 3, 2, 4)
    moved = []
    for w, u in zip(oracles.rows(start, axes), oracles.rows(update, axes), strict=True):
        projector = np.eye(w.size) - np.outer(w, w) / (w @ w)
        if centered:
            projector -= np.ones((w.size, w.size)) / w.size
        moved.append(w + projector @ u)
    expected = oracles.projected(
        oracles.from_rows(np.array(moved), start, axes), axes, 1.5, centered
    )
    with jax.enable_x64(True):
        both = [{"kernel": jnp.asarray(x)} for x in (start, update)]
        options = {"squared_radius": 1.5, "centered": centered}
        actual = step(*both, **options, tangent=True)["kernel"]
        np.testing.assert_allclose(actual, expected, **FLOAT64)
        plain = step(*both, **options)["kernel"]
    assert np.abs(np.asarray(actual - plain)).max() > DIFFERENT


@pytest.mark.parametrize("tangent", [True, False])
def test_weight_decay_only_changes_the_step_length(tangent: bool) -> None:
    """Decay by a makes a step 1 / (1 - a) times as long, and leaves a tangent step unchanged."""
    rate, decay = 0.05, 0.4
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        start, gradients = ({"kernel": jnp.asarray(normal(seed, 3, 3, 2, 4))} for seed in (21, 22))

        def kernel_after(optimizer: optax.GradientTransformation) -> Any:
            tx = optax.chain(optimizer, sphere_projection(tangent=tangent))
            return train(tx, project(start), lambda params, time: gradients, STEPS)["kernel"]

        actual = kernel_after(optax.adamw(rate, weight_decay=decay))
        longer = rate if tangent else rate / (1 - rate * decay)
        np.testing.assert_allclose(actual, kernel_after(optax.adam(longer)), **FLOAT64)


def test_tangent_steps_of_units_without_direction() -> None:
    """Zero weights and centered equal ones have no tangent space: the step is the plain one."""
    weights = draw(13, 5, 3).at[:, 0].set(0).at[:, 1].set(0.3)
    params, updates = {"kernel": weights}, {"kernel": draw(14, 5, 3)}
    actual, plain = step(params, updates, tangent=True)["kernel"], step(params, updates)["kernel"]
    np.testing.assert_allclose(actual[:, :2], plain[:, :2], **FLOAT32)
    assert np.isfinite(actual).all()
    squares = oracles.sums_and_squared_norms(actual, (-2,))[1]
    np.testing.assert_allclose(squares, 2, **FLOAT32)
