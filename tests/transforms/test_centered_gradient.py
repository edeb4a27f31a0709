"""Gradient centring: the mean of each output unit, whatever the kernel's kind."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxnorm import center, centered_gradient, flax_layout, layout_from_rules
from tests import oracles
from tests.tolerances import DIFFERENT, FLOAT32

#: Shapes, as Flax has them but for the last two, and the axes that one unit's weights run over.
KERNELS = {
    "dense": ((6, 4), (-2,)),
    "conv1d": ((5, 3, 4), (-3, -2)),
    "conv2d": ((3, 3, 2, 4), (-4, -3, -2)),
    "grouped": ((3, 3, 2, 6), (-4, -3, -2)),
    "depthwise": ((3, 3, 1, 6), (-4, -3, -2)),
    "stacked": ((3, 6, 4), (-2,)),
    "attention": ((6, 2, 3), (-3,)),
}


def draw(*shape: int, seed: int = 0) -> jax.Array:
    return jnp.asarray(0.5 + np.random.default_rng(seed).normal(size=shape), jnp.float32)


def centered(gradient: Any, layout: Any = flax_layout) -> Any:
    tx = centered_gradient(layout)
    return tx.update(gradient, tx.init(gradient))[0]


def minus_unit_means(gradient: Any, axes: tuple[int, ...]) -> np.ndarray:
    matrix = oracles.rows(gradient, axes)
    return oracles.from_rows(matrix - matrix.mean(1, keepdims=True), gradient, axes)


@pytest.mark.parametrize("name", KERNELS)
def test_each_output_unit_loses_its_mean(name: str) -> None:
    shape, axes = KERNELS[name]
    gradient = draw(*shape)
    by_name = name not in ("stacked", "attention")
    layout = flax_layout if by_name else layout_from_rules([("kernel", axes)])
    got = centered({"kernel": gradient, "bias": draw(shape[-1])}, layout)
    np.testing.assert_allclose(got["kernel"], minus_unit_means(gradient, axes), **FLOAT32)
    np.testing.assert_array_equal(got["bias"], draw(shape[-1]))


@pytest.mark.parametrize(("shape", "groups"), [((3, 3, 2, 6), 3), ((3, 3, 1, 6), 6)])
def test_centered_convolutions_cancel_a_constant_image(shape: Any, groups: int) -> None:
    """An oracle without axes: a kernel whose units sum to zero does not see a constant."""

    def response(kernel: Any) -> np.ndarray:
        channels = jnp.ones((1, 5, 5, shape[2] * groups))
        output = jax.lax.conv_general_dilated(
            channels,
            kernel,
            (1, 1),
            "VALID",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=groups,
        )
        return np.asarray(output)

    gradient = draw(*shape)
    np.testing.assert_allclose(response(centered({"kernel": gradient})["kernel"]), 0.0, atol=1e-5)
    by_optax, _ = optax.centralize().update({"kernel": gradient}, optax.EmptyState())
    assert np.abs(response(by_optax["kernel"])).max() > DIFFERENT


def largest_sum_after(optimizer: optax.GradientTransformation, steps: int = 50) -> float:
    """The largest |1'w| after steps from zero-mean weights, in units of the weights' size."""
    tx = optax.chain(centered_gradient(), optimizer)
    params = {"kernel": center(draw(6, 4), 0)}

    def step(carry: Any, gradient: Any) -> Any:
        params, state = carry
        updates, state = tx.update({"kernel": gradient}, state, params)
        return (optax.apply_updates(params, updates), state), None

    start = (params, tx.init(params))
    params = jax.jit(lambda g: jax.lax.scan(step, start, g)[0][0])(draw(steps, 6, 4, seed=2))
    sums, _ = oracles.sums_and_squared_norms(params["kernel"], (-2,))
    return float(np.abs(sums).max())


@pytest.mark.usefixtures("standard_promotion")
def test_zero_mean_weights_stay_so_under_linear_optimizers_only() -> None:
    decayed = optax.chain(optax.add_decayed_weights(0.01), optax.sgd(0.05, momentum=0.9))
    # 50 steps of some 1e-7 each.
    assert largest_sum_after(decayed) < 1e-5
    assert largest_sum_after(optax.adam(0.05)) > DIFFERENT


def test_integer_weights_are_an_error() -> None:
    gradient = {"kernel": jnp.ones((3, 2), jnp.int32)}
    # Ours, or, where shape annotations are executed, the one of the executed annotation.
    with pytest.raises(TypeError, match=r"(?s)i(nt)?32.*[Ff]loat"):
        centered(gradient)
