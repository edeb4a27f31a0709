"""`map_kernels`, with which users write their own constraints."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxnorm import Scaled, flax_layout, map_kernels, project, reparametrize
from tests import oracles
from tests.draws import draw
from tests.table import example_params
from tests.tolerances import FLOAT32


def plain_projection(kernel: Any, axes: Any) -> Any:
    """Projects onto the centered sphere of squared radius 2, as a user would write it."""
    centered = kernel - kernel.mean(axes, keepdims=True)
    return centered * (2 / (centered**2).sum(axes, keepdims=True)) ** 0.5


def test_a_projection_of_two_lines_equals_project() -> None:
    params = example_params()
    mapped, projected = map_kernels(plain_projection, flax_layout, params), project(params)
    assert jax.tree.structure(mapped) == jax.tree.structure(params)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, **FLOAT32), mapped, projected)


def test_kernels_get_their_axes_and_values_and_other_leaves_stay() -> None:
    params = reparametrize({"a": {"kernel": draw(0, 4, 3), "bias": draw(1, 3)}}, Scaled)
    calls = []

    def record(kernel: Any, axes: Any, update: Any, label: Any) -> Any:
        calls.append((kernel.shape, axes, label))
        return kernel + update

    updates = jax.tree.map(jnp.ones_like, params)
    labels = jax.tree.broadcast("label", params)
    mapped = map_kernels(record, flax_layout, params, updates, labels)
    assert calls == [((4, 3), (-2,), "label")]
    np.testing.assert_allclose(mapped["a"]["kernel"].kernel, params["a"]["kernel"].kernel + 1)
    assert mapped["a"]["kernel"].scale is params["a"]["kernel"].scale
    assert mapped["a"]["bias"] is params["a"]["bias"]


def test_placeholders_stay() -> None:
    tree = {"a": {"kernel": optax.MaskedNode(), "bias": None}, "b": {"kernel": draw(0, 4, 3)}}
    mapped = map_kernels(plain_projection, flax_layout, tree)
    assert mapped["a"] == tree["a"]
    sums, squared_norms = oracles.sums_and_squared_norms(mapped["b"]["kernel"], (-2,))
    np.testing.assert_allclose(sums, 0, **FLOAT32)
    np.testing.assert_allclose(squared_norms, 2, **FLOAT32)


def test_an_error_of_the_function_names_the_kernel() -> None:
    def fail(kernel: Any, axes: Any) -> Any:
        raise ValueError("no")

    with pytest.raises(ValueError, match=r"^no") as error:
        map_kernels(fail, flax_layout, example_params())
    assert "'conv/kernel'" in error.value.__notes__[0]
