"""The sphere projection: exact, optimal, safe at its singular points, and told when it cannot."""

from typing import Any

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.optimize

from jaxnorm import Scaled, centered_gradient, layout_from_rules, project, sphere_projection
from tests import oracles
from tests.table import example_gradients, example_params
from tests.tolerances import DIFFERENT, FLOAT32, FLOAT32_STEPS, FLOAT64
from tests.trees import assert_close, assert_equal, largest_difference

OPTIMIZERS = {
    "sgd": (lambda: optax.sgd(0.1), lambda: oracles.sgd(0.1)),
    "momentum": (lambda: optax.sgd(0.1, momentum=0.9), lambda: oracles.sgd(0.1, momentum=0.9)),
    "adam": (lambda: optax.adam(0.05), lambda: oracles.adam(0.05)),
}
STEPS = 3


def land(params: Any, updates: Any, **options: Any) -> Any:
    """The parameters after one projected step."""
    tx = sphere_projection(**options)
    step, _ = tx.update(updates, tx.init(params), params)
    return optax.apply_updates(params, step)


def draw(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def train(tx: optax.GradientTransformation, params: Any, gradients: Any) -> Any:
    """The parameters after one step for each of the stacked gradients."""

    def step(carry: Any, gradient: Any) -> Any:
        params, state = carry
        updates, state = tx.update(gradient, state, params)
        return (optax.apply_updates(params, updates), state), None

    scan = jax.jit(lambda p, g: jax.lax.scan(step, (p, tx.init(p)), g)[0][0])
    return scan(params, gradients)


@st.composite
def shapes_and_axes(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """A shape of rank 2 to 4 and some, not all, of its axes, with a fan-in of at least 2."""
    shape = tuple(draw(st.lists(st.integers(2, 4), min_size=2, max_size=4)))
    axes = st.sets(st.integers(-len(shape), -1), min_size=1, max_size=len(shape) - 1)
    return shape, tuple(sorted(draw(axes)))


@pytest.mark.parametrize("name", OPTIMIZERS)
@hypothesis.settings(max_examples=6)
@hypothesis.given(shape_and_axes=shapes_and_axes(), seed=st.integers(0, 99))
def test_steps_are_the_exact_projection(name: str, shape_and_axes: Any, seed: int) -> None:
    (shape, axes), squared_radius = shape_and_axes, 1.5
    optimizer, oracle = OPTIMIZERS[name]
    start = oracles.projected(draw(seed, *shape), axes, squared_radius, centered=True)
    gradients = draw(seed + 100, STEPS, *shape)
    *_, wanted = oracles.constrained_run(start, gradients, oracle(), axes, squared_radius)
    layout = layout_from_rules([("kernel", axes)])
    tx = optax.chain(optimizer(), sphere_projection(squared_radius=squared_radius, layout=layout))
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        got = train(tx, {"kernel": jnp.asarray(start)}, {"kernel": jnp.asarray(gradients)})
        np.testing.assert_allclose(got["kernel"], wanted, **FLOAT64)


@pytest.mark.usefixtures("standard_promotion")
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_are_the_exact_projection_in_float32(name: str) -> None:
    optimizer, oracle = OPTIMIZERS[name]
    start = oracles.projected(draw(0, 3, 3, 2, 4), (-4, -3, -2), 2.0, centered=True)
    gradients = draw(1, STEPS, 3, 3, 2, 4)
    *_, wanted = oracles.constrained_run(start, gradients, oracle(), (-4, -3, -2), 2.0)
    as_float32 = [{"kernel": jnp.asarray(x, jnp.float32)} for x in (start, gradients)]
    got = train(optax.chain(optimizer(), sphere_projection()), *as_float32)
    np.testing.assert_allclose(got["kernel"], wanted, **FLOAT32)


@pytest.mark.parametrize("centered", [True, False])
def test_no_feasible_point_is_nearer(centered: bool) -> None:
    """A minimizer that knows only the constraints finds the same point from several starts."""
    weights, step = draw(2, 5, 1), draw(3, 5, 1)
    with jax.enable_x64(True):
        both = [{"kernel": jnp.asarray(x)} for x in (weights, step)]
        got = np.asarray(land(*both, centered=centered)["kernel"]).ravel()
    goal = (weights + step).ravel()
    constraints = [{"type": "eq", "fun": lambda w: w @ w - 2.0}]
    constraints += [{"type": "eq", "fun": np.sum}] if centered else []
    best = min(
        (
            scipy.optimize.minimize(
                lambda w: ((w - goal) ** 2).sum(), start, constraints=constraints, tol=1e-12
            )
            for start in draw(4, 5, 5)
        ),
        key=lambda result: result.fun if result.success else np.inf,
    )
    # The minimizer stops at about the square root of its tolerance.
    np.testing.assert_allclose(got, best.x, atol=1e-5)
    assert ((got - goal) ** 2).sum() <= best.fun + 1e-9


def decayed_momentum() -> optax.GradientTransformation:
    return optax.chain(optax.add_decayed_weights(1e-2), optax.sgd(0.1, momentum=0.9))


@pytest.mark.usefixtures("standard_promotion")
@pytest.mark.parametrize(("name", "redundant"), [("linear", True), ("adam", False)])
def test_centered_gradient_is_redundant_for_linear_optimizers(name: str, redundant: bool) -> None:
    optimizer = decayed_momentum() if name == "linear" else optax.adam(0.05)
    params = project({"kernel": jnp.asarray(draw(5, 6, 4), jnp.float32)})
    # Gradients with a mean of their own, which is what there is to centre.
    gradients = {"kernel": jnp.asarray(1 + draw(6, 20, 6, 4), jnp.float32)}
    alone = train(optax.chain(optimizer, sphere_projection()), params, gradients)
    both = optax.chain(centered_gradient(), optimizer, sphere_projection())
    after_centering = train(both, params, gradients)
    if redundant:
        assert_close(after_centering, alone, FLOAT32_STEPS)
    else:
        assert largest_difference(after_centering, alone) > DIFFERENT


@pytest.mark.parametrize("centered", [True, False])
def test_a_singular_unit_keeps_its_weights_and_the_others_move(centered: bool) -> None:
    weights = project({"kernel": jnp.asarray(draw(7, 4, 3), jnp.float32)}, centered=centered)
    update = jnp.asarray(draw(8, 4, 3), jnp.float32)
    # The first unit steps to a point whose centered part is zero (or which is zero).
    singular = -weights["kernel"][:, 0] + (5.0 if centered else 0.0)
    updates = {"kernel": update.at[:, 0].set(singular)}
    got = land(weights, updates, centered=centered)["kernel"]
    wanted = oracles.projected(weights["kernel"] + update, (-2,), 2.0, centered)
    np.testing.assert_array_equal(got[:, 0], weights["kernel"][:, 0])
    np.testing.assert_allclose(got[:, 1:], wanted[:, 1:], **FLOAT32)


def test_a_zero_update_of_a_point_on_the_sphere_is_zero_to_rounding() -> None:
    params = project(example_params())
    got = land(params, jax.tree.map(jnp.zeros_like, params))
    assert_close(got, params)


def test_a_radius_for_each_layer() -> None:
    radii = {"conv": 2.0, "dense": {"bias": 1.0, "kernel": 0.5}, "scaled": 3.0}
    got = land(example_params(), example_gradients(), squared_radius=radii)
    norms = {
        "conv": oracles.sums_and_squared_norms(got["conv"]["kernel"], (-4, -3, -2))[1],
        "dense": oracles.sums_and_squared_norms(got["dense"]["kernel"], (-2,))[1],
        "scaled": oracles.sums_and_squared_norms(got["scaled"]["kernel"].kernel, (-2,))[1],
    }
    for name, wanted in (("conv", 2.0), ("dense", 0.5), ("scaled", 3.0)):
        np.testing.assert_allclose(norms[name], wanted, **FLOAT32)


def test_a_rule_for_a_stacked_node_never_touches_its_scale() -> None:
    node = Scaled(jnp.asarray(draw(9, 3, 4, 8), jnp.float32), jnp.full((3, 8), 7.0), (-2,))
    params = {"scan": {"kernel": node}}
    layout = layout_from_rules([("scan/kernel", -2)])
    got = land(params, jax.tree.map(jnp.ones_like, params), layout=layout)["scan"]["kernel"]
    assert_equal(got.scale, jnp.full((3, 8), 8.0))
    wanted = oracles.projected(node.kernel + 1, (-2,), 2.0, centered=True)
    np.testing.assert_allclose(got.kernel, wanted, **FLOAT32)


@pytest.mark.parametrize("centered", [True, False])
def test_a_tangent_step_is_projected_before_it_lands(centered: bool) -> None:
    """Against NumPy with the explicit projector I - 11'/m - ww'/||w||^2, unit by unit."""
    axes = (-4, -3, -2)
    start = oracles.projected(draw(10, 3, 3, 2, 4), axes, 1.5, centered)
    update = 1 + draw(11, 3, 3, 2, 4)
    moved = []
    for w, u in zip(oracles.rows(start, axes), oracles.rows(update, axes), strict=True):
        projector = np.eye(w.size) - np.outer(w, w) / (w @ w)
        if centered:
            projector -= np.ones((w.size, w.size)) / w.size
        moved.append(w + projector @ u)
    wanted = oracles.projected(oracles.from_rows(np.array(moved), start, axes), axes, 1.5, centered)
    with jax.enable_x64(True):
        both = [{"kernel": jnp.asarray(x)} for x in (start, update)]
        options = {"squared_radius": 1.5, "centered": centered}
        got = land(*both, **options, tangent=True)["kernel"]
        np.testing.assert_allclose(got, wanted, **FLOAT64)
        plain = land(*both, **options)["kernel"]
    assert np.abs(np.asarray(got - plain)).max() > DIFFERENT


def test_a_step_along_the_weights_is_no_tangent_step() -> None:
    """So weight decay does nothing, of any strength; a plain step would even change sides."""
    params = project({"kernel": jnp.asarray(draw(12, 6, 4), jnp.float32)})
    decay = jax.tree.map(lambda w: -1.5 * w, params)
    assert_close(land(params, decay, tangent=True), params)
    assert_close(land(params, decay), jax.tree.map(jnp.negative, params))


def test_a_tangent_step_of_a_unit_without_direction() -> None:
    """Zero weights (and equal ones, centered) have no tangent space: the step is as without."""
    weights = jnp.asarray(draw(13, 5, 3), jnp.float32).at[:, 0].set(0).at[:, 1].set(0.3)
    params, updates = {"kernel": weights}, {"kernel": jnp.asarray(draw(14, 5, 3), jnp.float32)}
    got, plain = land(params, updates, tangent=True)["kernel"], land(params, updates)["kernel"]
    np.testing.assert_allclose(got[:, :2], plain[:, :2], **FLOAT32)
    assert np.isfinite(got).all()
    squares = oracles.sums_and_squared_norms(got, (-2,))[1]
    np.testing.assert_allclose(squares, 2, **FLOAT32)


@pytest.mark.usefixtures("standard_promotion")
def test_tangent_steps_keep_the_constraint_and_find_the_minimum() -> None:
    """The smallest (w'a) on the centered sphere is at minus a's direction."""
    goal = draw(15, 6, 1) - draw(15, 6, 1).mean()
    params = project({"kernel": jnp.asarray(draw(16, 6, 1), jnp.float32)})
    gradients = {"kernel": jnp.asarray(np.broadcast_to(goal, (400, 6, 1)), jnp.float32)}
    tx = optax.chain(optax.sgd(0.1), sphere_projection(tangent=True))
    wanted = oracles.projected(-goal, (-2,), 2.0, centered=True)
    np.testing.assert_allclose(train(tx, params, gradients)["kernel"], wanted, **FLOAT32_STEPS)
