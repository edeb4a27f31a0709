"""`power_iteration` and `attach_singular_vectors` against an SVD in float64."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnorm import Scaled, SpectrallyNormalized, effective, reparametrize
from jaxnorm.spectral import attach_singular_vectors as attach
from jaxnorm.spectral import power_iteration
from tests.oracles import rows
from tests.reparam.table import FLOAT32, normal
from tests.reparam.trees import assert_near

#: Tolerance of converged power iterations: rounding over the spectral gap.
VECTOR = {"rtol": 0.0, "atol": 2e-5}


def tree() -> dict[str, Any]:
    """Convolution, and a dense kernel inside another node."""
    conv, dense = 0.4 * normal(0, (3, 3, 2, 4)), normal(1, (8, 6))
    params = {"conv": {"kernel": conv, "bias": normal(2, (4,))}, "dense": {"kernel": dense}}
    raw = reparametrize(params, SpectrallyNormalized)
    return reparametrize(
        raw, lambda path, node, axes: Scaled.from_kernel(node, axes) if "dense" in path else node
    )


def oracle(kernel: Any, axes: tuple[int, ...] = (-2,)) -> np.ndarray:
    """Leading right singular vector of the (fan-in x units) matrix."""
    return np.linalg.svd(rows(kernel, axes).T)[2][0]


def aligned(vector: Any, like: np.ndarray) -> np.ndarray:
    return np.asarray(vector, np.float64) * np.sign(np.asarray(vector, np.float64) @ like)


def kernels(params: Any) -> dict[str, tuple[Any, tuple[int, ...]]]:
    conv, dense = params["conv"]["kernel"], params["dense"]["kernel"].kernel
    return {
        "conv/kernel": (conv.kernel, conv.fan_in_axes),
        "dense/kernel/kernel": (dense.kernel, dense.fan_in_axes),
    }


def test_exact_at_the_start_and_converges_after_a_perturbation() -> None:
    params = tree()
    vectors = power_iteration(params)
    assert set(vectors) == set(kernels(params))
    moved = jax.tree.map(lambda leaf: leaf + 0.3 * normal(5, leaf.shape), params)
    iterate, refreshed = jax.jit(power_iteration), vectors
    for _ in range(200):
        refreshed = iterate(moved, refreshed)
    for path, (kernel, axes) in kernels(params).items():
        exact = oracle(kernel, axes)
        assert_near(aligned(vectors[path], exact), exact, VECTOR)
    for path, (kernel, axes) in kernels(moved).items():
        exact = oracle(kernel, axes)
        assert_near(aligned(refreshed[path], exact), exact, VECTOR)
        assert abs(np.asarray(vectors[path]) @ exact) < 0.999


@pytest.mark.parametrize("iterations", [1, 3])
def test_iterations_equal_dense_products(iterations: int) -> None:
    kernel, start = normal(6, (8, 6)), normal(7, (6,))
    params = {"kernel": SpectrallyNormalized.from_kernel(kernel, -2)}
    actual = power_iteration(params, {"kernel": start}, iterations)["kernel"]
    expected = np.asarray(start, np.float64)
    for _ in range(iterations):
        expected = np.asarray(kernel, np.float64).T @ (np.asarray(kernel, np.float64) @ expected)
    assert_near(actual, expected / np.linalg.norm(expected), FLOAT32)


def test_an_attached_vector_has_no_gradient() -> None:
    kernel, vector = normal(10, (8, 6)), normal(11, (6,))
    params = {"kernel": SpectrallyNormalized.from_kernel(kernel, -2)}
    v = np.asarray(vector, np.float64) / np.linalg.norm(vector)
    sigma = np.linalg.norm(np.asarray(kernel, np.float64) @ v)
    actual = effective(attach(params, {"kernel": vector}))["kernel"]
    assert_near(actual, np.asarray(kernel, np.float64) / sigma, FLOAT32)
    loss = lambda x: (effective(attach(params, {"kernel": x}))["kernel"] ** 2).sum()  # noqa: E731
    assert not np.any(jax.grad(loss)(vector))


def test_attached_vectors_of_nested_nodes() -> None:
    params = tree()
    actual = jax.jit(lambda p: effective(attach(p, power_iteration(p))))(params)
    for path, (kernel, axes) in kernels(params).items():
        sigma = np.linalg.norm(rows(kernel, axes), 2)
        layer = path.split("/")[0]
        assert_near(actual[layer]["kernel"], np.asarray(kernel, np.float64) / sigma, FLOAT32)


def test_stacked_kernels_have_one_vector_each() -> None:
    stack = normal(13, (3, 8, 6))
    params = {"kernel": jax.vmap(lambda k: SpectrallyNormalized.from_kernel(k, 0))(stack)}
    vectors = power_iteration(params)
    again = power_iteration(params, vectors, 3)
    inside = jax.vmap(lambda p, v: power_iteration(p, v, 3))(params, vectors)
    actual = effective(attach(params, vectors))["kernel"]
    for number, kernel in enumerate(stack):
        exact = oracle(kernel)
        for result in (vectors, again, inside):
            assert_near(aligned(result["kernel"][number], exact), exact, VECTOR)
        float64 = np.asarray(kernel, np.float64)
        assert_near(actual[number], float64 / np.linalg.norm(float64, 2), FLOAT32)


def test_a_zero_kernel_keeps_its_vector() -> None:
    params = {"kernel": SpectrallyNormalized.from_kernel(jnp.zeros((8, 6)), -2)}
    vector = normal(14, (6,))
    assert np.isfinite(power_iteration(params)["kernel"]).all()
    np.testing.assert_array_equal(power_iteration(params, {"kernel": vector})["kernel"], vector)
    assert not np.any(effective(attach(params, {"kernel": vector}))["kernel"])


def test_half_precision_kernels_have_float32_vectors() -> None:
    params = {"kernel": SpectrallyNormalized.from_kernel(normal(15, (8, 6), jnp.bfloat16), -2)}
    vectors = power_iteration(params)
    again = power_iteration(params, vectors)
    assert vectors["kernel"].dtype == again["kernel"].dtype == jnp.float32
    assert effective(attach(params, again))["kernel"].dtype == jnp.bfloat16
