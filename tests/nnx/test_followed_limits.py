"""Models in which a normalization may look as if it could be written into a kernel, but cannot."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxnorm.nnx import fold_batch_norm, replace_batch_norm
from tests.nnx.cases import evaluated, kinds, slashed, trained
from tests.nnx.models import WIDTH, Custom, dense, norm

#: The promise, float32: one or two layers with sums over at most 72 weights, values of order one.
FLOAT32 = {"rtol": 1e-5, "atol": 1e-5}


def of(forward: Callable[[Any, Any], Any], **layers: Callable[[nnx.Rngs], Any]) -> Any:
    rngs = nnx.Rngs(0)
    made = {"layer": dense, "norm": norm} | layers
    return trained(Custom(forward, **{name: make(rngs) for name, make in made.items()}))


def shared_norm(m: Any, x: Any) -> Any:
    return m.norm(m.second(nnx.relu(m.norm(m.layer(x)))))


def shared_norm_elsewhere(m: Any, x: Any) -> Any:
    return m.norm(m.second(nnx.relu(m.norm(nnx.relu(m.layer(x))))))


def shared_norm_in_a_branch(m: Any, x: Any) -> Any:
    y = m.norm(m.layer(x))
    return jax.lax.cond(y.sum() < jnp.inf, lambda: m.norm(y), lambda: y)


def transposed_kernel(m: Any, x: Any) -> Any:
    """A tied decoder."""
    return nnx.relu(m.norm(m.layer(x))) @ m.layer.kernel[...].T


def weight_decay(m: Any, x: Any) -> Any:
    return m.norm(m.layer(x)) + (m.layer.kernel[...] ** 2).sum()


def bias_decay(m: Any, x: Any) -> Any:
    return m.norm(m.layer(x)) + (m.layer.bias[...] ** 2).sum()


def kernel_in_a_branch(m: Any, x: Any) -> Any:
    y = m.norm(m.layer(x))
    return jax.lax.cond(y.sum() < jnp.inf, lambda: m.layer(y), lambda: y)


def bias_twice(m: Any, x: Any) -> Any:
    return m.norm(m.layer(x) + m.layer.bias[...].reshape(1, WIDTH))


def bias_after(m: Any, x: Any) -> Any:
    return m.norm(x @ m.layer.kernel[...]) + m.layer.bias[...].reshape(1, WIDTH)


def scaled(m: Any, x: Any) -> Any:
    """The kernel's own norm is not that of what is multiplied."""
    return m.norm(x @ (m.layer.kernel[...] / 2) + m.layer.bias[...].reshape(1, WIDTH))


def carried(m: Any, x: Any) -> Any:
    """The layer's output is read by the next turn of the loop."""

    def turn(state: Any, _: None) -> Any:
        y = m.layer(state)
        return y, m.norm(y)

    return jax.lax.scan(turn, x, length=3)[1]


def over_rows(rngs: nnx.Rngs) -> nnx.BatchNorm:
    return norm(rngs, axis=1)


REMAINS = {
    "shared_norm": lambda: of(shared_norm, second=dense),
    "scaled": lambda: of(scaled),
    "shared_norm_elsewhere": lambda: of(shared_norm_elsewhere, second=dense),
    "shared_norm_in_a_branch": lambda: of(shared_norm_in_a_branch),
    "transposed_kernel": lambda: of(transposed_kernel),
    "weight_decay": lambda: of(weight_decay),
    "bias_decay": lambda: of(bias_decay),
    "kernel_in_a_branch": lambda: of(kernel_in_a_branch),
    "bias_twice": lambda: of(bias_twice),
    "bias_after": lambda: of(bias_after),
    "carried": lambda: of(carried),
}


def input_of(*shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(0).normal(size=shape), jnp.float32)


def assert_remains(model: Any, x: Any) -> None:
    folded, remaining = fold_batch_norm(model, x)
    assert list(map(slashed, remaining)) == ["norm"]
    np.testing.assert_allclose(folded(x), evaluated(model, x), **FLOAT32)
    model.norm.scale[...] = jnp.ones(WIDTH)  # which a kernel could carry
    assert kinds(replace_batch_norm(model, x))["norm"] == "ScaleAndBias"


def assert_folds(model: Any, x: Any, path: str) -> None:
    folded, remaining = fold_batch_norm(model, x)
    assert not remaining
    assert kinds(folded).get(path, "Identity") == "Identity"
    np.testing.assert_allclose(folded(x), evaluated(model, x), **FLOAT32)


@pytest.mark.parametrize("name", REMAINS)
def test_remains(name: str) -> None:
    model = REMAINS[name]()
    model.layer.bias[...] = jnp.linspace(-1.0, 1.0, WIDTH)
    assert_remains(model, input_of(6, WIDTH))


def test_normalization_along_another_axis_remains() -> None:
    """Along the rows, of which there are as many as units."""
    model = of(lambda m, x: m.norm(m.layer(x)), norm=over_rows)
    assert_remains(model, input_of(2, WIDTH, WIDTH))


def test_the_last_axis_counted_from_the_front() -> None:
    model = of(lambda m, x: m.norm(m.layer(x)), norm=over_rows)
    assert_folds(model, input_of(6, WIDTH), "norm")


@pytest.mark.parametrize("shape", [(2, 3, 5, 5, 4), (5, 5, 4)])
def test_convolution_with_more_batch_axes_or_none(shape: tuple[int, ...]) -> None:
    """The layer reshapes its output, whose last axis still counts units."""
    model = of(
        lambda m, x: m.norm(m.layer(x)), layer=lambda rngs: nnx.Conv(4, WIDTH, (3, 3), rngs=rngs)
    )
    assert_folds(model, input_of(*shape), "norm")


def test_masked_convolution() -> None:
    """A layer that keeps an array which is no variable; its kernel is a product with it."""

    def masked(rngs: nnx.Rngs) -> nnx.Conv:
        mask = jnp.ones((3, 3, 4, WIDTH)).at[0].set(0.0)
        return nnx.Conv(4, WIDTH, (3, 3), mask=mask, rngs=rngs)

    x = input_of(2, 5, 5, 4)
    assert_remains(of(lambda m, x: m.norm(m.layer(x)), layer=masked), x)


def test_layers_in_a_tuple() -> None:
    rngs = nnx.Rngs(0)
    layers = nnx.data((dense(rngs), norm(rngs)))
    model = trained(Custom(lambda m, x: m.layers[1](m.layers[0](x)), layers=layers))
    assert_folds(model, input_of(6, WIDTH), "layers/1")
    assert "BatchNorm" not in kinds(replace_batch_norm(model)).values()
