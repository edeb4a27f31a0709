"""A user's constraint as the last transformation of a chain, against NumPy in float64."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jaxtyping import Array

from jaxnorm import (
    LinearlyConstrained,
    Scaled,
    center,
    constrain_updates,
    effective,
    layout_from_rules,
    map_kernels,
    project_to_sphere,
    project_to_stiefel,
    sphere_projection,
    stiefel_projection,
)
from tests.draws import float32, normal
from tests.tolerances import FLOAT32_STEPS

LAYOUT = layout_from_rules([("kernel", -2)])


def norm_at_most_one(kernel: Array, fan_in_axes: tuple[int, ...]) -> Array:
    norm = jnp.sqrt(jnp.square(kernel).sum(fan_in_axes, keepdims=True))
    return kernel / jnp.maximum(norm, 1)


def test_steps_of_momentum_equal_projected_steps() -> None:
    weights, bias, gradients = normal(1, 3, 5, 4), normal(2, 4), normal(3, 6, 3, 5, 4)
    params = {"kernel": jnp.float32(weights), "bias": jnp.float32(bias)}
    tx = optax.chain(optax.sgd(0.2, momentum=0.9), constrain_updates(norm_at_most_one, LAYOUT))
    state, momentum = tx.init(params), np.zeros_like(weights)
    for gradient in gradients:
        gradient_tree = {"kernel": jnp.float32(gradient), "bias": jnp.ones(4)}
        updates, state = tx.update(gradient_tree, state, params)
        params = optax.apply_updates(params, updates)
        momentum = 0.9 * momentum + gradient
        weights = weights - 0.2 * momentum
        weights = weights / np.maximum(np.sqrt((weights**2).sum(-2, keepdims=True)), 1)
    np.testing.assert_allclose(params["kernel"], weights, **FLOAT32_STEPS)
    sgd = optax.sgd(0.2, momentum=0.9)
    state, free = sgd.init({"bias": jnp.float32(bias)}), {"bias": jnp.float32(bias)}
    for _ in gradients:
        updates, state = sgd.update({"bias": jnp.ones(4)}, state)
        free = optax.apply_updates(free, updates)
    np.testing.assert_array_equal(params["bias"], free["bias"])


def test_units_of_a_single_weight_have_constraints_that_do_not_center() -> None:
    params = {"kernel": jnp.full((1, 3), 0.5)}
    tx = constrain_updates(norm_at_most_one, LAYOUT)
    updates, _ = tx.update({"kernel": jnp.full((1, 3), 4.0)}, tx.init(params), params)
    np.testing.assert_array_equal(optax.apply_updates(params, updates)["kernel"], 1)


def test_a_projection_gets_wide_weights_and_the_fields_of_nodes() -> None:
    types = []

    def recorded(kernel: Array, fan_in_axes: tuple[int, ...]) -> Array:
        types.append((kernel.dtype.name, kernel.shape, fan_in_axes))
        return norm_at_most_one(kernel, fan_in_axes)

    kernel = jnp.bfloat16(normal(4, 5, 4))
    params = {"kernel": Scaled.from_kernel(kernel, -2)}
    tx = constrain_updates(recorded, LAYOUT)
    zeros = jax.tree.map(jnp.zeros_like, params)
    updates, _ = tx.update(zeros, tx.init(params), params)
    assert types == [("float32", (5, 4), (-2,))]
    assert updates["kernel"].kernel.dtype == jnp.bfloat16
    norms = jnp.linalg.norm(jnp.float32(effective(optax.apply_updates(params, updates))["kernel"]))
    assert norms <= 2 * (1 + 2**-7)


@pytest.mark.parametrize(
    ("projection", "named"),
    [
        (partial(project_to_sphere, squared_radius=3.0), sphere_projection),
        (partial(project_to_stiefel, squared_radius=3.0), stiefel_projection),
    ],
)
def test_it_takes_the_projections_that_have_a_transformation_of_their_own(
    projection: partial[Array], named: Callable[..., optax.GradientTransformation]
) -> None:
    params, update = {"kernel": float32(normal(5, 6, 4))}, {"kernel": float32(normal(6, 6, 4))}
    results = []
    for tx in (constrain_updates(projection), named(squared_radius=3.0)):
        edited, _ = tx.update(update, tx.init(params), params)
        results.append(optax.apply_updates(params, edited)["kernel"])
    ours, of_its_own = results
    np.testing.assert_allclose(ours, of_its_own, **FLOAT32_STEPS)
    start = map_kernels(projection, LAYOUT, {"kernel": params["kernel"], "bias": jnp.ones(4)})
    np.testing.assert_array_equal(start["kernel"], projection(params["kernel"], (-2,)))


def test_wrong_inputs_are_named() -> None:
    params = {"kernel": jnp.ones((3, 2)), "bias": jnp.ones(2)}
    tx = constrain_updates(center, LAYOUT)
    with pytest.raises(ValueError, match="constrains no parameter"):
        constrain_updates(center).init({"weight": jnp.ones((3, 2))})
    with pytest.raises(ValueError, match="params"):
        tx.update(params, tx.init(params))
    coordinates = params | {"kernel": LinearlyConstrained.from_kernel(params["kernel"], -2)}
    with pytest.raises(TypeError, match="coordinates"):
        tx.init(coordinates)

    def failing(kernel: Array, fan_in_axes: tuple[int, ...]) -> Array:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no") as raised:
        constrain_updates(failing, LAYOUT).update(params, tx.init(params), params)
    assert "'kernel' of shape (3, 2)" in raised.value.__notes__[0]


def test_a_group_of_parameters_without_kernels_is_left_alone() -> None:
    """As `optax.multi_transform` hands it over, with masks in the place of the others."""
    params = {"kernel": jnp.ones((3, 2)), "bias": jnp.ones(2)}
    constrained = optax.chain(optax.sgd(0.1), constrain_updates(norm_at_most_one, LAYOUT))
    transforms = {"biases": constrained, "kernels": optax.sgd(0.2)}
    tx = optax.multi_transform(transforms, {"kernel": "kernels", "bias": "biases"})
    updates, _ = tx.update(params, tx.init(params), params)
    np.testing.assert_allclose(updates["kernel"], -0.2)
    np.testing.assert_allclose(updates["bias"], -0.1)
