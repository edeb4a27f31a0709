"""`fixed_step` against float64 NumPy, and the optimizers that are made of it."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from jaxnorm import Scaled, fixed_step, layout_from_rules, sphere_projection
from tests.devices import mesh, traffic
from tests.tolerances import FLOAT32

RATE, STEPS = 0.02, 3
WHOLE = layout_from_rules([("kernel$", (0, 1))])


def draw(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


KERNEL, BIAS = draw(0, 5, 4), draw(1, 4)
GRADIENTS = [{"kernel": draw(2 + n, 5, 4), "bias": draw(9 + n, 4)} for n in range(STEPS)]


def in_float32(tree: Any) -> Any:
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), tree)


def train(tx: optax.GradientTransformation, params: Any) -> list[Any]:
    """The parameters after each step, all of them compiled as one program."""

    @jax.jit
    def step(params: Any, state: Any, gradient: Any) -> Any:
        updates, state = tx.update(gradient, state, params)
        return optax.apply_updates(params, updates), state

    state, trees = tx.init(params), []
    for gradient in in_float32(GRADIENTS):
        params, state = step(params, state, gradient)
        trees.append(params)
    return trees


def update_of(tx: optax.GradientTransformation, gradient: Any, params: Any) -> Any:
    return tx.update(in_float32(gradient), tx.init(in_float32(params)), in_float32(params))[0]


def hyperball(directions: list[np.ndarray], rates: list[float]) -> list[np.ndarray]:
    """The published step: W' = W - r ||W|| u / ||u||, then W' ||W|| / ||W'||, in float64."""
    kernel, norm, kernels = KERNEL, np.linalg.norm(KERNEL), []
    for u, rate in zip(directions, rates, strict=True):
        moved = kernel - rate * norm * u / np.linalg.norm(u)
        kernel = moved * norm / np.linalg.norm(moved)
        kernels.append(kernel)
    return kernels


def adam_directions(gradients: list[np.ndarray]) -> list[np.ndarray]:
    first, second, directions = np.zeros_like(KERNEL), np.zeros_like(KERNEL), []
    for n, g in enumerate(gradients, 1):
        first, second = 0.9 * first + 0.1 * g, 0.95 * second + 0.05 * g**2
        corrected = np.sqrt(second / (1 - 0.95**n)) + 1e-8
        directions.append(first / (1 - 0.9**n) / corrected)
    return directions


def muon_directions(gradients: list[np.ndarray]) -> list[np.ndarray]:
    """Five Newton-Schulz iterations of the sum of the gradients with momentum."""
    momentum, directions = np.zeros_like(KERNEL), []
    for g in gradients:
        momentum = 0.95 * momentum + g
        x = momentum.T / np.linalg.norm(momentum)
        for _ in range(5):
            gram = x @ x.T
            x = 3.4445 * x - 4.775 * gram @ x + 2.0315 * gram @ gram @ x
        directions.append(x.T)
    return directions


BASES = {
    "AdamH": (optax.adam(1.0, b2=0.95), adam_directions),
    "MuonH": (optax.contrib.muon(1.0, nesterov=False), muon_directions),
}


@pytest.mark.usefixtures("standard_promotion")
@pytest.mark.parametrize("name", BASES)
def test_steps_equal_the_published_formula(name: str) -> None:
    base, directions = BASES[name]
    schedule = optax.linear_schedule(RATE, 0.0, STEPS)
    on_sphere = sphere_projection(layout=WHOLE, squared_radius=None, centered=False)
    tx = optax.chain(base, fixed_step(schedule, per="kernel"), on_sphere)
    trees = train(tx, in_float32({"kernel": KERNEL, "bias": BIAS}))
    rates = [RATE * (1 - n / STEPS) for n in range(STEPS)]
    expected = hyperball(directions([g["kernel"] for g in GRADIENTS]), rates)
    for tree, kernel in zip(trees, expected, strict=True):
        error = np.linalg.norm(tree["kernel"] - kernel) / np.linalg.norm(kernel)
        assert error < 1e-6


@pytest.mark.parametrize("per", ["unit", "kernel"])
def test_updates_have_the_length_and_the_direction(per: Any) -> None:
    params, gradient = {"kernel": KERNEL, "bias": BIAS}, GRADIENTS[0]
    update = update_of(optax.chain(optax.sgd(7.0), fixed_step(0.3, per=per)), gradient, params)
    axis = 0 if per == "unit" else None
    u, w = (np.linalg.norm(x, axis=axis) for x in (gradient["kernel"], KERNEL))
    np.testing.assert_allclose(update["kernel"], -0.3 * w * gradient["kernel"] / u, **FLOAT32)
    np.testing.assert_allclose(update["bias"], -7 * gradient["bias"], **FLOAT32)


def test_a_step_across_the_weights_turns_each_unit_by_the_angle() -> None:
    across = GRADIENTS[0]["kernel"]
    across = across - KERNEL * (across * KERNEL).sum(0) / (KERNEL**2).sum(0)
    tx = optax.chain(fixed_step(0.5), sphere_projection(squared_radius=None, centered=False))
    turned = KERNEL + update_of(tx, {"kernel": across}, {"kernel": KERNEL})["kernel"]
    cosine = (turned * KERNEL).sum(0) / (KERNEL**2).sum(0)
    np.testing.assert_allclose(np.arccos(cosine), np.arctan(0.5), rtol=1e-5)


def test_zeros_stay_zeros_and_overflow_is_nan() -> None:
    """Units: an update of zero, one whose squares underflow, zero weights, overflow, NaN, usual."""
    kernel = np.ones((2, 6))
    kernel[:, 2] = 0
    gradient = {"kernel": np.ones((2, 6)) * [0, 1e-25, 1, 1e25, np.nan, 1]}
    update = update_of(fixed_step(0.5), gradient, {"kernel": kernel})["kernel"]
    np.testing.assert_array_equal(update[:, :3], 0)
    assert np.isnan(update[:, 3:5]).all()
    np.testing.assert_allclose(update[:, 5], 0.5, **FLOAT32)


def test_norms_of_narrow_types_are_computed_in_float32() -> None:
    """The sum of squares is 4e6, and float16 overflows at 65504."""
    kernel = jnp.full((10, 10), 200.0, jnp.float16)
    tx = fixed_step(0.5, per="kernel")
    update, _ = tx.update({"kernel": kernel / 2}, tx.init({"kernel": kernel}), {"kernel": kernel})
    assert update["kernel"].dtype == jnp.float16
    np.testing.assert_array_equal(update["kernel"], 100.0)


def test_a_node_s_kernel_is_rescaled_and_its_scale_is_not() -> None:
    node = Scaled(jnp.array([[3.0], [4.0]]), jnp.array([2.0]), (-2,))
    gradient = Scaled(jnp.array([[0.0], [2.0]]), jnp.array([5.0]), (-2,))
    update = update_of(fixed_step(0.1), {"kernel": gradient}, {"kernel": node})["kernel"]
    np.testing.assert_allclose(update.kernel, [[0.0], [0.5]], **FLOAT32)
    np.testing.assert_array_equal(update.scale, gradient.scale)


def test_init_takes_shapes() -> None:
    shapes = {"kernel": jax.ShapeDtypeStruct((5, 4), jnp.float32)}
    assert fixed_step(0.1).init(shapes) == optax.EmptyState()


def test_layers_of_a_stack_are_whole_kernels_by_their_layout() -> None:
    kernels, gradients = draw(0, 3, 5, 4), draw(1, 3, 5, 4)
    tx = fixed_step(0.1, layout=layout_from_rules([("kernel$", (-2, -1))]))
    update = update_of(tx, {"kernel": gradients}, {"kernel": kernels})["kernel"]
    for layer, kernel in zip(update, kernels, strict=True):
        np.testing.assert_allclose(np.linalg.norm(layer), 0.1 * np.linalg.norm(kernel), rtol=1e-5)


@pytest.mark.parametrize(
    ("per", "axes", "numbers"),
    [
        ("unit", (None, "data"), 0),
        ("unit", ("data", None), 2 * (8 + 24)),
        ("kernel", (None, "data"), 2 * 2),
        ("kernel", ("data", None), 2 * 2),
    ],
)
def test_all_norms_of_sharded_kernels_travel_in_one_all_reduce(
    per: Any, axes: tuple[str | None, ...], numbers: int
) -> None:
    """Two numbers per norm, of the update and of the weights, if the norms' axes are split."""
    tx, sharding = fixed_step(0.1, per=per), NamedSharding(mesh(8), PartitionSpec(*axes))
    kernels = {n: {"kernel": jax.device_put(jnp.ones((16, n)), sharding)} for n in (8, 24)}
    step = lambda update, params: tx.update(update, optax.EmptyState(), params)[0]  # noqa: E731
    sent = traffic(step, kernels, kernels)
    assert sent.operations == ["all-reduce"] * bool(numbers)
    assert sent.bytes == 4 * numbers
    for update in jax.tree.leaves(jax.jit(step)(kernels, kernels)):
        np.testing.assert_allclose(update, 0.1, rtol=1e-6)
