"""The unit of the original residual networks: its shortcuts, and the order after the sum."""

from typing import Any

import jax
import numpy as np
import pytest
from flax import nnx

import jaxnorm
from experiments.config import Config
from experiments.data.dataset import Dataset
from experiments.methods.table import METHODS
from experiments.models.norms import NORMS
from experiments.models.residual import Residual
from experiments.models.style import Style
from experiments.training.trainer import Trainer, make_trainer
from jaxnorm.nnx import Functional, functionalize
from tests.draws import float32

Layers = tuple[tuple[int, int, int], ...]


def unit(layers: Layers, project: bool, norm: str | None = None, dropout: float = 0.0) -> Residual:
    style = Style(None if norm is None else NORMS[norm], dropout=dropout)
    return Residual(2, layers, project, style, nnx.Rngs(0))


def images() -> jax.Array:
    return float32(np.random.default_rng(0).normal(size=(3, 4, 6, 2)))


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
    """Convolutions are normalized; the branch's last and the shortcut are not activated."""
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


def initial(trainer: Trainer, X: np.ndarray[Any, Any]) -> tuple[Functional, Any]:
    """Returns the network of seed 0, and the raw parameters that the method gives it."""
    network = functionalize(trainer.network(jax.random.key(0)))
    context = trainer.context._replace(functional=network)
    return network, trainer.method.parameters(network.params, context, jax.numpy.asarray(X))


@pytest.mark.kept("cnn9")
@pytest.mark.parametrize(
    ("method", "model", "last", "branches"),
    [
        ("cwo-centre", "resnet110", 1, 54),
        ("cwo-sphere", "resnet50", 2, 16),
        ("cwo-sphere", "wrn28x10", 1, 0),
        ("cwo-centre", "cnn9", 1, 0),
    ],
)
def test_scales_at_the_ends_of_branches_alone_start_smaller(
    method: str, model: str, last: int, branches: int
) -> None:
    config = Config(model=model, channels=8 if model == "wrn28x10" else 4, batch_size=4)
    X = np.zeros((4, 8, 8, 3), np.float32)
    data = Dataset(X, np.arange(4, dtype=np.int32) % 2, X, np.zeros(4, np.int32), "zeros", 2)
    raw = initial(make_trainer(METHODS[method], config, data), X)[1]
    nodes = jax.tree.leaves_with_path(raw, is_leaf=lambda x: isinstance(x, jaxnorm.Scaled))
    scales = {
        jax.tree_util.keystr(path, simple=True, separator="/"): np.asarray(node.scale)
        for path, node in nodes
        if isinstance(node, jaxnorm.Scaled)
    }
    quiet = {path for path, scale in scales.items() if (scale != 1.0).any()}
    expected = {path for path in scales if f"branch/{last}/" in path} if branches else set()
    assert quiet == expected
    assert len(quiet) == branches
    for path in quiet:
        np.testing.assert_allclose(scales[path], branches**-0.5, rtol=1e-6)


@pytest.mark.slow
def test_logits_of_54_branches_start_of_order_one() -> None:
    """With scales of 1 their deviation would be of order 100 in this narrow network."""
    X = np.random.default_rng(0).standard_normal((4, 8, 8, 3)).astype(np.float32)
    y = np.arange(4, dtype=np.int32) % 2
    method = METHODS["cwo-linear"]
    config = Config(model="resnet110", channels=4, epochs=1, batch_size=4)
    network, raw = initial(make_trainer(method, config, Dataset(X, y, X, y, "random", 2)), X)

    def deviation(params: object) -> jax.Array:  # One program of 110 layers compiles for a minute.
        weights = method.weights(params, method.state(params))
        return network.apply(weights, network.state, jax.numpy.asarray(X), train=False)[0].std()

    is_scaled = lambda x: isinstance(x, jaxnorm.Scaled)  # noqa: E731
    loud = jax.tree.map(
        lambda x: jaxnorm.Scaled.from_kernel(x.kernel, x.fan_in_axes) if is_scaled(x) else x,
        raw,
        is_leaf=is_scaled,
    )
    assert deviation(raw) < 3
    assert deviation(loud) > 50
