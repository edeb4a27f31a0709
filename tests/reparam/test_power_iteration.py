"""The singular vectors: state that follows the weights, and that nothing trains."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxnorm import (
    Scaled,
    SpectrallyNormalized,
    effective,
    power_iteration,
    reparametrize,
)
from jaxnorm import (
    attach_singular_vectors as attach,
)
from tests.oracles import rows
from tests.reparam.oracles import spectral_pullback
from tests.reparam.table import FLOAT32, SHAPES, normal
from tests.reparam.trees import assert_near, weighted_sum

#: Vectors after converged power iterations: rounding, times the ratio to the spectral gap.
VECTOR = {"rtol": 0.0, "atol": 2e-5}


def tree() -> dict[str, Any]:
    """A convolution, and a dense kernel inside another node."""
    conv, dense = 0.4 * normal(0, (3, 3, 2, 4)), normal(1, (8, 6))
    params = {"conv": {"kernel": conv, "bias": normal(2, (4,))}, "dense": {"kernel": dense}}
    raw = reparametrize(params, SpectrallyNormalized)
    return reparametrize(
        raw, lambda path, node, axes: Scaled.from_kernel(node, axes) if "dense" in path else node
    )


def oracle(kernel: Any, axes: tuple[int, ...] = (-2,)) -> np.ndarray:
    """The leading right singular vector of the (fan-in x units) matrix."""
    return np.linalg.svd(rows(kernel, axes).T)[2][0]


def aligned(vector: Any, like: np.ndarray) -> np.ndarray:
    return np.asarray(vector, np.float64) * np.sign(np.asarray(vector, np.float64) @ like)


def kernels(params: Any) -> dict[str, tuple[Any, tuple[int, ...]]]:
    conv, dense = params["conv"]["kernel"], params["dense"]["kernel"].kernel
    return {
        "conv/kernel": (conv.kernel, conv.fan_in_axes),
        "dense/kernel/kernel": (dense.kernel, dense.fan_in_axes),
    }


def test_starts_from_the_exact_vectors_and_reconverges_after_a_perturbation() -> None:
    params = tree()
    vectors = power_iteration(params)
    assert set(vectors) == set(kernels(params))
    moved = jax.tree.map(lambda leaf: leaf + 0.3 * normal(5, leaf.shape), params)
    once_a_step, refreshed = jax.jit(power_iteration), vectors
    for _ in range(200):
        refreshed = once_a_step(moved, refreshed)
    for path, (kernel, axes) in kernels(params).items():
        exact = oracle(kernel, axes)
        assert_near(aligned(vectors[path], exact), exact, VECTOR)
    for path, (kernel, axes) in kernels(moved).items():
        exact = oracle(kernel, axes)
        assert_near(aligned(refreshed[path], exact), exact, VECTOR)
        assert abs(np.asarray(vectors[path]) @ exact) < 0.999


@pytest.mark.parametrize("iterations", [1, 3])
def test_iterations_are_those_of_a_dense_product(iterations: int) -> None:
    kernel, start = normal(6, (8, 6)), normal(7, (6,))
    params = {"kernel": SpectrallyNormalized.from_kernel(kernel, -2)}
    got = power_iteration(params, {"kernel": start}, iterations)["kernel"]
    wanted = np.asarray(start, np.float64)
    for _ in range(iterations):
        wanted = np.asarray(kernel, np.float64).T @ (np.asarray(kernel, np.float64) @ wanted)
    assert_near(got, wanted / np.linalg.norm(wanted), FLOAT32)


def test_a_step_with_decay_averages_and_trains_no_vector() -> None:
    params = tree()
    vectors = power_iteration(params)
    before = {path: np.array(vector) for path, vector in vectors.items()}
    optimizer = optax.chain(optax.add_decayed_weights(0.5), optax.sgd(0.1, momentum=0.9))
    state = optimizer.init(params)

    def loss(p: Any) -> jax.Array:
        return sum((leaf**2).sum() for leaf in jax.tree.leaves(effective(attach(p, vectors))))

    gradient = jax.jit(jax.grad(loss))(params)
    updates, state = optimizer.update(gradient, state, params)
    averaged = optax.incremental_update(optax.apply_updates(params, updates), params, 0.5)
    sizes = {tuple(vector.shape) for vector in vectors.values()}
    assert sizes == {(4,), (6,)}
    for path, vector in vectors.items():
        np.testing.assert_array_equal(vector, before[path])
    assert jax.tree.structure(averaged) == jax.tree.structure(params)
    # The bias, the dense scale and two kernels; an accumulator for each, and none for a vector.
    assert len(jax.tree.leaves(params)) == len(jax.tree.leaves(state)) == 4
    for path in ("conv", "dense"):
        node = params[path]["kernel"]
        assert (node.kernel if path == "dense" else node).vector is None


def test_with_the_exact_vector_the_gradient_is_exact() -> None:
    params = {"kernel": SpectrallyNormalized.from_kernel(normal(8, (8, 6)), -2)}
    vectors, cotangent = power_iteration(params), normal(9, (8, 6))

    def gradient(attached: bool) -> Any:
        def loss(p: Any) -> jax.Array:
            return weighted_sum((attach(p, vectors) if attached else p)["kernel"], cotangent)

        return jax.grad(loss)(params)["kernel"].kernel

    v, c = np.asarray(params["kernel"].kernel, np.float64).T, np.asarray(cotangent).T
    wanted = spectral_pullback(v, None, c)[0].T
    assert_near(gradient(attached=True), wanted, FLOAT32)
    assert_near(gradient(attached=False), wanted, FLOAT32)


def test_an_attached_vector_is_used_and_gets_no_gradient() -> None:
    kernel, vector = normal(10, (8, 6)), normal(11, (6,))
    params = {"kernel": SpectrallyNormalized.from_kernel(kernel, -2)}
    v = np.asarray(vector, np.float64) / np.linalg.norm(vector)
    sigma = np.linalg.norm(np.asarray(kernel, np.float64) @ v)
    got = effective(attach(params, {"kernel": vector}))["kernel"]
    assert_near(got, np.asarray(kernel, np.float64) / sigma, FLOAT32)
    loss = lambda x: (effective(attach(params, {"kernel": x}))["kernel"] ** 2).sum()  # noqa: E731
    assert not np.any(jax.grad(loss)(vector))


def test_nested_and_attached() -> None:
    params = tree()
    got = jax.jit(lambda p: effective(attach(p, power_iteration(p))))(params)
    for path, (kernel, axes) in kernels(params).items():
        sigma = np.linalg.norm(rows(kernel, axes), 2)
        layer = path.split("/")[0]
        assert_near(got[layer]["kernel"], np.asarray(kernel, np.float64) / sigma, FLOAT32)


@pytest.mark.parametrize("case", ["attention_query", "apart", "conv_oihw"])
def test_axes_in_any_place(case: str) -> None:
    shape, axes = SHAPES[case]
    kernel = normal(12, shape)
    vector = power_iteration({"k": SpectrallyNormalized.from_kernel(kernel, axes)})["k"]
    matrix = rows(kernel, axes).T
    assert_near(np.linalg.norm(matrix @ np.asarray(vector)), np.linalg.norm(matrix, 2), FLOAT32)


def test_stacked_kernels_each_have_their_own() -> None:
    stack = normal(13, (3, 8, 6))
    params = {"kernel": jax.vmap(lambda k: SpectrallyNormalized.from_kernel(k, 0))(stack)}
    vectors = power_iteration(params)
    again = power_iteration(params, vectors, 3)
    inside = jax.vmap(lambda p, v: power_iteration(p, v, 3))(params, vectors)
    got = effective(attach(params, vectors))["kernel"]
    for number, kernel in enumerate(stack):
        exact = oracle(kernel)
        for some in (vectors, again, inside):
            assert_near(aligned(some["kernel"][number], exact), exact, VECTOR)
        float64 = np.asarray(kernel, np.float64)
        assert_near(got[number], float64 / np.linalg.norm(float64, 2), FLOAT32)


def test_a_zero_kernel_keeps_its_vector() -> None:
    params = {"kernel": SpectrallyNormalized.from_kernel(jnp.zeros((8, 6)), -2)}
    vector = normal(14, (6,))
    assert np.isfinite(power_iteration(params)["kernel"]).all()
    np.testing.assert_array_equal(power_iteration(params, {"kernel": vector})["kernel"], vector)
    assert not np.any(effective(attach(params, {"kernel": vector}))["kernel"])


def test_a_missing_path_is_named() -> None:
    for call in (power_iteration, attach):
        with pytest.raises(KeyError, match=r"'conv/kernel'"):
            call(tree(), {"other/kernel": jnp.ones(4)})


def test_half_precision_kernels_have_float32_vectors() -> None:
    params = {"kernel": SpectrallyNormalized.from_kernel(normal(15, (8, 6), jnp.bfloat16), -2)}
    vectors = power_iteration(params)
    again = power_iteration(params, vectors)
    assert vectors["kernel"].dtype == again["kernel"].dtype == jnp.float32
    assert effective(attach(params, again))["kernel"].dtype == jnp.bfloat16


def test_a_tree_without_spectral_norms_has_no_vectors() -> None:
    params = {"kernel": jnp.ones((4, 2)), "gone": None}
    assert power_iteration(params) == {}
    assert attach(params, {}) is not None
