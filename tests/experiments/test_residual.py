"""The unit of the original residual networks: its shortcuts and what is after the sum."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from experiments.models.norms import NORMS
from experiments.models.residual import Residual
from experiments.models.style import Style

Layers = tuple[tuple[int, int, int], ...]


def unit(layers: Layers, project: bool, norm: str | None = None, dropout: float = 0.0) -> Residual:
    style = Style(None if norm is None else NORMS[norm], dropout=dropout)
    return Residual(2, layers, project, style, nnx.Rngs(0))


def images() -> jax.Array:
    return jnp.asarray(np.random.default_rng(0).normal(size=(3, 4, 6, 2)), jnp.float32)


@pytest.mark.parametrize("stride", [1, 2])
def test_zeros_stand_for_the_channels_to_come(stride: int) -> None:
    residual = unit(((3, 3, stride), (5, 3, 1)), project=False)
    residual.branch[-1].linear.kernel[...] *= 0.0  # Its bias is zero already.
    x = images()
    expected = np.zeros((3, 4 // stride, 6 // stride, 5), np.float32)
    expected[..., :2] = np.maximum(x, 0)[:, ::stride, ::stride]
    np.testing.assert_array_equal(residual(x), expected)
    assert residual.shortcut is None


def test_a_projection_takes_every_other_position_to_all_channels() -> None:
    residual = unit(((3, 1, 1), (3, 3, 2), (5, 1, 1)), project=True)
    residual.branch[-1].linear.kernel[...] *= 0.0
    x = images()
    kernel = np.asarray(residual.shortcut.linear.kernel[...])[0, 0]
    expected = np.maximum(x[:, ::2, ::2] @ kernel, 0)
    np.testing.assert_allclose(residual(x), expected, rtol=1e-5, atol=1e-6)


def test_what_is_normalized_activated_and_dropped() -> None:
    """Convolutions are normalized; the last of the branch and the shortcut are not activated."""
    residual = nnx.eval_shape(lambda: unit(((3, 3, 2), (5, 3, 1)), True, "bn", 0.5))
    first, last = residual.branch
    assert first.activation is jax.nn.relu
    assert residual.sum.activation is jax.nn.relu
    for block in (last, residual.shortcut):
        assert block.norm is not None
        assert block.linear.bias is None
        assert block.activation is not jax.nn.relu
    assert residual.sum.norm is None
    drops = [path for path, m in nnx.iter_modules(residual) if isinstance(m, nnx.Dropout)]
    assert drops == [("sum", "dropout")]
