"""The noisy scale and its bias, against the plain formula in float64, also where 1 + n is 0."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from jaxnorm._noise import noisy_affine, with_scale_noise
from tests.devices import mesh
from tests.draws import draw
from tests.tolerances import FLOAT32, FLOAT64
from tests.trees import quick_jit

X, BIAS, PULLED = draw(0, 4, 5, 3), draw(1, 3), draw(2, 4, 5, 3)
FACTOR = np.array([[[1.3, -0.2, 0.0]], [[1e-3, 1.0, -1e-4]], [[0.7, 2.5, -3.0]], [[0.0, 0.9, 1.1]]])


def test_value_and_gradients_are_those_of_the_plain_formula() -> None:
    """The gradient of beta is the sum of all that is pulled back, whatever the noise."""
    apply = lambda x, bias: noisy_affine(x, jnp.float32(FACTOR), bias[None, None])  # noqa: E731
    y, pull = jax.vjp(apply, X, BIAS)
    x, bias, pulled = (np.asarray(each, np.float64) for each in (X, BIAS, PULLED))
    np.testing.assert_allclose(y, x * FACTOR + bias, **FLOAT32)
    by_x, by_bias = pull(PULLED)
    np.testing.assert_allclose(by_x, pulled * FACTOR, **FLOAT32)
    np.testing.assert_allclose(by_bias, pulled.sum((0, 1)), **FLOAT32)


def test_derivatives_of_derivatives_are_those_of_the_plain_formula() -> None:
    """The bias keeps its shape, so gradients are summed over its axes of size 1."""
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        x, factor, bias = (jnp.asarray(each, jnp.float64) for each in (X, FACTOR + 0.1, BIAS))
        actual, expected = (
            jax.jit(jax.hessian(lambda bias, of=of: (of(x, factor, bias[None, None]) ** 3).sum()))(
                bias
            )
            for of in (noisy_affine, lambda x, factor, bias: x * factor + bias)
        )
        np.testing.assert_allclose(actual, expected, **FLOAT64)


def test_a_bias_that_all_devices_share_has_a_gradient() -> None:
    """Rows and draws vary along the mesh axis, and the bias does not."""
    rows = P("data")
    mapped = jax.shard_map(noisy_affine, mesh=mesh(4), in_specs=(rows, rows, P()), out_specs=rows)
    loss = lambda apply: lambda bias: jnp.sin(apply(X, jnp.float32(FACTOR), bias)).sum()  # noqa: E731
    actual, expected = (
        quick_jit(jax.grad(loss(apply)))(BIAS[None, None]) for apply in (mapped, noisy_affine)
    )
    np.testing.assert_allclose(actual, expected, **FLOAT32)


def test_forward_mode_is_that_of_the_plain_formula() -> None:
    """The tangent of x, of beta, and of both, also where 1 + n is 0."""
    for tangents in ((PULLED, 0 * BIAS), (0 * PULLED, draw(3, 3)), (PULLED, draw(3, 3))):
        apply = lambda x, bias: noisy_affine(x, jnp.float32(FACTOR), bias[None, None])  # noqa: E731
        _, tangent = jax.jvp(apply, (X, BIAS), tangents)
        dx, dbias = (np.asarray(each, np.float64) for each in tangents)
        np.testing.assert_allclose(tangent, dx * FACTOR + dbias, **FLOAT32)


@pytest.mark.slow
def test_a_noisy_model_has_derivatives_in_both_modes() -> None:
    """The Jacobian by columns, by rows, and the product of a Hessian by one of each."""
    params = {"kernel": draw(4, 3, 2), "bias": draw(5, 2)}
    noisy = with_scale_noise(lambda p, x: jnp.tanh(x @ p["kernel"] + p["bias"][None]), 0.5)
    run = lambda params: noisy(jax.random.key(0), params, draw(6, 4, 3))  # noqa: E731
    for forward, backward in zip(
        *(jax.tree.leaves(mode(run)(params)) for mode in (jax.jacfwd, jax.jacrev)), strict=True
    ):
        np.testing.assert_allclose(forward, backward, rtol=1e-4, atol=1e-5)
    loss = lambda params: (run(params) ** 2).sum()  # noqa: E731
    _, product = jax.jvp(jax.grad(loss), (params,), (params,))
    expected = jax.grad(lambda p: jax.jvp(loss, (p,), (params,))[1])(params)
    for one, other in zip(jax.tree.leaves(product), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


def test_a_bias_is_added_where_the_noise_multiplies() -> None:
    """Nothing follows in the program, so that the compiler has one pass to make."""
    apply = lambda p, x: x @ p["kernel"] + p["bias"][None]  # noqa: E731
    params = {"kernel": jnp.ones((3, 2)), "bias": jnp.ones(2)}
    model = with_scale_noise(apply, 0.3)
    equations = jax.make_jaxpr(model)(jax.random.key(0), params, jnp.ones((4, 3))).jaxpr.eqns
    assert equations[-1].primitive.name == "custom_jvp_call"
    assert "add" in str(equations[-1].params["call_jaxpr"])
