"""How many numbers there are to learn."""

import jax
import jax.numpy as jnp
import pytest

from jaxnorm import (
    CenteredWeightNormalized,
    LinearlyConstrained,
    Scaled,
    SpectrallyNormalized,
    WeightNormalized,
    WeightStandardized,
    attach_singular_vectors,
    parameter_count,
    power_iteration,
    reparametrize,
)

WEIGHTS, UNITS = 3 * 3 * 2 * 4, 4


@pytest.mark.parametrize(
    ("kind", "count"),
    [
        (LinearlyConstrained, WEIGHTS - UNITS),
        (WeightNormalized, WEIGHTS + UNITS),
        (CenteredWeightNormalized, WEIGHTS + UNITS),
        (WeightStandardized, WEIGHTS + UNITS),
        (SpectrallyNormalized, WEIGHTS),
        (Scaled, WEIGHTS + UNITS),
    ],
)
def test_one_kernel_of_each_kind(kind: type, count: int) -> None:
    params = {"kernel": jax.ShapeDtypeStruct((3, 3, 2, 4), jnp.float32)}
    raw = jax.eval_shape(lambda p: reparametrize(p, kind), params)
    assert raw["kernel"].parameter_count() == count
    assert parameter_count(raw) == count


def test_nested_nodes_and_plain_leaves() -> None:
    params = {"a": {"kernel": jnp.ones((8, 6)), "bias": jnp.ones(6)}, "gone": None}
    raw = reparametrize(reparametrize(params, LinearlyConstrained), Scaled)
    assert parameter_count(params) == 8 * 6 + 6
    assert parameter_count(raw) == (8 - 1) * 6 + 6 + 6


def test_stacked_kernels() -> None:
    kernels = jnp.ones((5, 8, 6))
    node = jax.vmap(lambda k: LinearlyConstrained.from_kernel(k, 0))(kernels)
    assert parameter_count({"kernel": node}) == 5 * (8 - 1) * 6


def test_singular_vectors_are_no_parameters_in_the_tree_that_is_trained() -> None:
    raw = {"kernel": SpectrallyNormalized.from_kernel(jnp.ones((8, 6)), -2)}
    attached = attach_singular_vectors(raw, power_iteration(raw))
    assert parameter_count(raw) == 8 * 6
    assert parameter_count(attached) == 8 * 6
