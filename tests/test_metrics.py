"""`metrics` and `parameter_count` against NumPy in float64 and numbers counted by hand."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxnorm as jn
from jaxnorm import (
    CenteredWeightNormalized,
    LinearlyConstrained,
    Scaled,
    SpectrallyNormalized,
    WeightNormalized,
    WeightStandardized,
    parameter_count,
    reparametrize,
)
from jaxnorm.spectral import attach_singular_vectors, power_iteration
from tests.table import example_gradients, example_params

#: Kernels of the example by name.
KERNELS = {
    "conv/kernel": lambda tree: tree["conv"]["kernel"],
    "dense/kernel": lambda tree: tree["dense"]["kernel"],
    "scaled/kernel": lambda tree: tree["scaled"]["kernel"].kernel,
}
STEP = ("norm", "update_norm", "relative_update")


def wide(array: Any) -> np.ndarray:
    return np.asarray(array, np.float64)


def norm(tree: Any) -> float:
    return float(np.sqrt(sum((wide(leaf) ** 2).sum() for leaf in jax.tree.leaves(tree))))


def oracle(params: Any, updates: Any) -> dict[str, float]:
    """Result of `metrics` in float64."""
    values = {}
    for name, pick in KERNELS.items():
        moved = norm(pick(updates))
        row = (norm(pick(params)), moved, moved / norm(pick(params)))
        values |= {f"{name}/{key}": x for key, x in zip(STEP, row, strict=True)}
    values["total/norm"], values["total/update_norm"] = norm(params), norm(updates)
    values["total/relative_update"] = norm(updates) / norm(params)
    return values


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_metrics_equal_the_oracle(dtype: Any) -> None:
    params, updates = example_params(dtype), example_gradients(dtype)
    values = jax.jit(lambda p, u: jn.metrics(p, u))(params, updates)
    expected = oracle(params, updates)
    assert values.keys() == expected.keys()
    for name, value in values.items():
        assert value.shape == ()
        assert value.dtype == jnp.float32
        np.testing.assert_allclose(value, expected[name], rtol=1e-5, err_msg=name)


def test_the_relative_update_of_fixed_or_zero_weights_is_zero() -> None:
    params = {"a": {"kernel": jnp.zeros((2, 2))}, "b": {"kernel": jnp.ones((2, 2))}, "c": None}
    updates = {"a": {"kernel": jnp.ones((2, 2))}, "b": {"kernel": optax.MaskedNode()}, "c": None}
    values = jn.metrics(params, updates)
    assert values["a/kernel/relative_update"] == values["b/kernel/relative_update"] == 0
    assert values["b/kernel/update_norm"] == 0
    assert values["total/relative_update"] == 1


def test_python_floats_count_as_parameters() -> None:
    """Keys and integer counters do not."""
    params = {"kernel": jnp.ones((2, 2)), "key": jax.random.key(0), "count": 3, "temperature": 0.5}
    as_arrays = params | {"count": jnp.int32(3), "temperature": jnp.float32(0.5)}
    assert jn.metrics(params, params) == jn.metrics(as_arrays, as_arrays)
    assert float(jn.metrics(params)["total/norm"]) == pytest.approx(4.25**0.5)
    assert jn.parameter_count({"kernel": params["kernel"], "temperature": 0.5}) == 5
    assert jn.describe(params) == jn.describe(as_arrays)


def test_all_kernels_may_be_masked() -> None:
    values = jn.metrics({"kernel": optax.MaskedNode(), "bias": 2 * jnp.ones(4)})
    assert {name: float(x) for name, x in values.items()} == {"total/norm": 4.0}
    assert jn.metrics({"kernel": optax.MaskedNode(), "count": jnp.int32(3)}) == {"total/norm": 0.0}


def test_updates_under_multi_steps_are_zero_until_the_step_lands(standard_promotion) -> None:
    params = example_params()
    tx = optax.MultiSteps(optax.sgd(0.1), every_k_schedule=2)
    state = tx.init(params)
    for lands in (False, True):
        updates, state = tx.update(params, state, params)
        assert bool(tx.has_updated(state)) == lands
        assert (float(jn.metrics(params, updates)["total/update_norm"]) > 0) == lands


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
def test_parameter_count_of_each_kind(kind: type, count: int) -> None:
    params = {"kernel": jax.ShapeDtypeStruct((3, 3, 2, 4), jnp.float32)}
    raw = jax.eval_shape(lambda p: reparametrize(p, kind), params)
    assert raw["kernel"].parameter_count() == count
    assert parameter_count(raw) == count


def test_parameter_count_of_nested_nodes_and_plain_leaves() -> None:
    params = {"a": {"kernel": jnp.ones((8, 6)), "bias": jnp.ones(6)}, "absent": None}
    raw = reparametrize(reparametrize(params, LinearlyConstrained), Scaled)
    assert parameter_count(params) == 8 * 6 + 6
    assert parameter_count(raw) == (8 - 1) * 6 + 6 + 6


def test_parameter_count_of_stacked_kernels() -> None:
    kernels = jnp.ones((5, 8, 6))
    node = jax.vmap(lambda k: LinearlyConstrained.from_kernel(k, 0))(kernels)
    assert parameter_count({"kernel": node}) == 5 * (8 - 1) * 6


def test_singular_vectors_do_not_count() -> None:
    raw = {"kernel": SpectrallyNormalized.from_kernel(jnp.ones((8, 6)), -2)}
    attached = attach_singular_vectors(raw, power_iteration(raw))
    assert parameter_count(raw) == 8 * 6
    assert parameter_count(attached) == 8 * 6
