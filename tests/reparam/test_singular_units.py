"""Units without a direction, and units of small or large norm."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnorm import (
    CenteredWeightNormalized,
    SpectrallyNormalized,
    WeightNormalized,
    WeightStandardized,
)
from jaxnorm.spectral import attach_singular_vectors as attach
from jaxnorm.spectral import power_iteration
from tests.reparam.oracles import spectral_pullback
from tests.reparam.table import FLOAT32, TABLE, Row, normal
from tests.reparam.trees import assert_near, oracle_start, value_and_gradients

DTYPES = ("float32", "bfloat16")


def with_unit(row: Row, value: float, dtype: str) -> tuple[object, object]:
    """Node whose unit 0 has equal weights and a non-zero scale, and the node of the other units."""
    kernel, axes = normal(0, (8, 6), dtype), (-2,)
    leaves, structure = jax.tree.flatten(row.make(kernel.at[:, 0].set(value), axes))
    # Set after `from_kernel`, which centers the unit or sets its scale to zero.
    leaves[0] = leaves[0].at[:, 0].set(value)
    leaves = [leaves[0], *(jnp.ones_like(leaf) for leaf in leaves[1:])]
    others = [leaf[..., 1:] for leaf in leaves]
    return jax.tree.unflatten(structure, leaves), jax.tree.unflatten(structure, others)


@pytest.mark.kept("lcw-float32", "wn-float32")
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_zero_unit_is_zero_with_finite_gradients(row: Row, dtype: str) -> None:
    node, others = with_unit(row, 0.0, dtype)
    kernel, gradients = value_and_gradients(node, normal(5, (8, 6), dtype))
    assert not np.any(np.asarray(kernel[:, 0], np.float32))
    assert_near(kernel[:, 1:], np.asarray(others.effective(), np.float64), FLOAT32)
    for gradient in gradients:
        assert np.isfinite(np.asarray(gradient, np.float32)).all()


@pytest.mark.kept("float32")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("value", [0.1, -700.3])
@pytest.mark.parametrize("kind", [CenteredWeightNormalized, WeightStandardized])
def test_a_constant_unit_is_zero_with_zero_gradients(kind: type, value: float, dtype: str) -> None:
    kernel = normal(0, (7, 6), dtype).at[:, 0].set(value)
    initial = kind.from_kernel(kernel, -2)
    leaves, structure = jax.tree.flatten(initial)
    node = jax.tree.unflatten(structure, [leaves[0], jnp.ones_like(leaves[1])])
    kernel, gradients = value_and_gradients(node, normal(5, (7, 6), dtype))
    for array in (initial.effective(), kernel, *gradients):
        assert not np.any(np.asarray(array[..., 0], np.float32))
        assert np.isfinite(np.asarray(array, np.float32)).all()
        assert np.any(np.asarray(array[..., 1], np.float32))


def test_equal_singular_values_have_finite_gradients() -> None:
    orthogonal = jnp.asarray(np.linalg.qr(np.asarray(normal(0, (8, 6))))[0])
    node = SpectrallyNormalized.from_kernel(3 * orthogonal, -2)
    kernel, (gradient,) = value_and_gradients(node, normal(5, (8, 6)))
    assert_near(kernel, np.asarray(orthogonal, np.float64), FLOAT32)
    assert np.isfinite(np.asarray(gradient)).all()


def test_kernels_of_any_size_keep_their_direction(row: Row) -> None:
    kernel = np.asarray(normal(0, (8, 6)))
    for size in (1e-12, 1e12):
        node = row.make(jnp.asarray(size * kernel, jnp.float32), -2)
        assert_near(
            node.effective() / np.float32(1 if row.name == "sn" else size),
            oracle_start(row, kernel, (-2,)),
            FLOAT32,
        )


@pytest.mark.parametrize("size", [1e-8, 1e8])
def test_spectral_normalization_of_any_size(size: float) -> None:
    kernel, cotangent = normal(0, (8, 6)), normal(5, (8, 6))
    sized = jnp.asarray(size * np.asarray(kernel, np.float64), jnp.float32)
    node = SpectrallyNormalized.from_kernel(sized, -2)
    actual, (gradient,) = value_and_gradients(node, cotangent)
    matrix = np.asarray(sized, np.float64)
    assert_near(actual, matrix / np.linalg.norm(matrix, 2), FLOAT32)
    expected = spectral_pullback(matrix.T / size, None, np.asarray(cotangent, np.float64).T)[0].T
    assert_near(np.asarray(gradient, np.float64) * size, expected, FLOAT32)
    vectors = power_iteration({"kernel": node}, {"kernel": normal(6, (6,))}, 500)
    assert_near(attach({"kernel": node}, vectors)["kernel"].effective(), actual, FLOAT32)


#: Rows whose units are independent.
BY_UNIT = [row for row in TABLE if row.name != "sn"]


@pytest.mark.slow
@pytest.mark.parametrize("row", BY_UNIT, ids=lambda row: row.name)
@pytest.mark.parametrize("centered", [False, True])
def test_from_kernel_of_a_unit_without_direction_has_finite_gradients(
    row: Row, centered: bool
) -> None:
    """The gradients of the other units are unchanged."""

    def loss(kernel: jax.Array) -> jax.Array:
        return (row.make(kernel, (-2,)).effective() * weights[:, : kernel.shape[1]]).sum()

    weights = normal(5, (8, 6), "float32")
    kernel = normal(0, (8, 6), "float32").at[:, -1].set(float(centered))
    gradient = jax.grad(loss)(kernel)
    assert np.isfinite(gradient).all()
    assert_near(gradient[:, :-1], np.asarray(jax.grad(loss)(kernel[:, :-1]), np.float64), FLOAT32)


NORMS = (WeightNormalized, CenteredWeightNormalized, WeightStandardized)


@pytest.mark.parametrize("size", [1e-11, 1e-14, 1e-16])
@pytest.mark.parametrize("kind", NORMS)
def test_gradients_of_small_units_scale_as_one_over_their_size(kind: type, size: float) -> None:
    """v / ||v|| does not depend on the size of v."""
    kernel, cotangent = normal(0, (8, 6), "float32"), normal(5, (8, 6), "float32")
    node = kind.from_kernel(kernel, -2)
    small, scale = jax.tree.leaves(node)
    small = jax.tree.unflatten(jax.tree.structure(node), [small * size, scale])
    expected, actual = (value_and_gradients(n, cotangent)[1] for n in (node, small))
    assert_near(actual[0] * size, np.asarray(expected[0], np.float64), FLOAT32)
    assert_near(actual[1], np.asarray(expected[1], np.float64), FLOAT32)
