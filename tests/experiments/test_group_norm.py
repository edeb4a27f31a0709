"""Groups that hold enough values, and the refusal of layers that have too few."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from experiments.config import Config
from experiments.data.load import load
from experiments.errors import UserError
from experiments.methods.table import METHODS
from experiments.models.from_file import group_norm_like
from experiments.models.group_norm import EPSILON, GroupNorm, group_count
from experiments.models.norms import NORMS
from experiments.models.registry import build
from experiments.training.fit import fit
from experiments.training.trainer import make_trainer
from tests.experiments.toy import toy_dataset

OWN = Path(__file__).parent / "own_network.py"


@pytest.mark.parametrize(
    ("units", "positions", "groups"),
    [
        (32, 1, 2),  # dense layers: sixteen units in each
        (64, 1, 4),
        (256, 1, 16),
        (1024, 1, 16),
        (40, 1, 2),
        (48, 1, 3),
        (17, 1, 1),  # a prime
        (16, 1, 1),
        (15, 1, 0),
        (2, 1, 0),
        (8, 32 * 32, 4),  # maps as in the committed results: two channels or more
        (16, 16 * 16, 8),
        (32, 8 * 8, 16),
        (64, 2 * 2, 16),
        (32, 2 * 2, 8),  # small maps: fewer groups
        (75, 1, 3),
        (8, 2, 1),
        (1, 64, 1),
        (4, 3, 0),
    ],
)
def test_a_group_has_at_least_sixteen_values(units: int, positions: int, groups: int) -> None:
    assert group_count(units, positions) == groups


def normalized(x: np.ndarray, groups: int) -> np.ndarray:
    """Returns rows (rows, positions, units) less the mean and over the deviation of each group."""
    parts = x.reshape(len(x), x.shape[1], groups, -1).astype(float)
    centered = parts - parts.mean((1, 3), keepdims=True)
    deviation = np.sqrt((centered**2).mean((1, 3), keepdims=True) + EPSILON)
    return (centered / deviation).reshape(x.shape)


@pytest.mark.kept("12-4")
@pytest.mark.parametrize("name", ["gn", "ln"])
@pytest.mark.parametrize(("units", "positions"), [(32, 1), (8, 16), (12, 4)])
def test_groups_follow_the_positions(name: str, units: int, positions: int) -> None:
    x = np.random.default_rng(0).normal(1.0, 3.0, (3, positions, units)).astype(np.float32)
    groups = group_count(units, positions) if name == "gn" else 1
    layer = NORMS[name](units, rngs=nnx.Rngs(0))
    expected = normalized(x, groups)
    np.testing.assert_allclose(layer(jnp.asarray(x)), expected, rtol=1e-4, atol=1e-4)
    if positions == 1:
        rows = layer(jnp.asarray(x[:, 0]))
        np.testing.assert_allclose(rows, expected[:, 0], rtol=1e-4, atol=1e-4)
    assert np.unique(np.abs(expected).round(3)).size > 2  # no sign function


def test_two_units_of_a_dense_layer_are_no_group() -> None:
    x = jnp.asarray(np.random.default_rng(0).normal(size=(4, 32)), jnp.float32)
    values = np.abs(NORMS["gn"](32, rngs=nnx.Rngs(0))(x))
    assert ((values < 0.9) | (values > 1.1)).mean() > 0.5


def test_the_units_of_a_batch_norm_may_be_another_axis_than_the_last() -> None:
    x = jnp.asarray(np.random.default_rng(0).normal(size=(2, 8, 3, 8)), jnp.float32)
    first = group_norm_like(nnx.BatchNorm(8, axis=1, rngs=nnx.Rngs(0)), nnx.Rngs(0))
    last = group_norm_like(nnx.BatchNorm(8, rngs=nnx.Rngs(0)), nnx.Rngs(0))
    np.testing.assert_array_equal(first(x), jnp.moveaxis(last(jnp.moveaxis(x, 1, -1)), -1, 1))
    assert not np.allclose(first(x), last(x), atol=0.1)


def test_it_takes_the_arguments_of_a_batch_norm() -> None:
    layer = GroupNorm(4, rngs=nnx.Rngs(0))
    x = jnp.asarray(np.random.default_rng(0).normal(size=(2, 9, 4)), jnp.float32)
    np.testing.assert_array_equal(layer(x, use_running_average=True), layer(x))
    mask = jnp.arange(9)[None, :, None] < 8
    kept = layer(x[:, :8])
    np.testing.assert_allclose(layer(x, mask=mask)[:, :8], kept, rtol=1e-5, atol=1e-5)


def trained_on(method: str, model: str, width: int) -> None:
    config = Config(model=model, depth=2, width=width, batch_size=16)
    make_trainer(METHODS[method], config, toy_dataset())


@pytest.mark.parametrize("method", ["gn", "ws+gn"])
@pytest.mark.parametrize("model", ["mlp", f"{OWN}:Residual"])
def test_a_layer_too_narrow_for_a_group_is_refused_before_training(method: str, model: str) -> None:
    with pytest.raises(UserError, match=r"gn got .* 8 x 1 values.* at least 16.*wider.*bn or none"):
        trained_on(method, model, width=8)


@pytest.mark.parametrize(("method", "width", "least"), [("ln", 3, 4), ("ln", 1, 4), ("rms", 1, 2)])
def test_other_normalizers_refuse_what_they_would_turn_into_signs(
    method: str, width: int, least: int
) -> None:
    with pytest.raises(UserError, match=rf"{method} got .* {width} x 1 .*at least {least}"):
        trained_on(method, "mlp", width)


def logits_of(config: Config) -> tuple[int, ...]:
    """Returns the shape of the logits of a network with group normalization."""

    def run(x: jax.Array) -> jax.Array:
        return build(config, x.shape[1:], 10, nnx.Rngs(0), norm="gn")(x)

    return jax.eval_shape(run, jax.ShapeDtypeStruct((2, 8, 8, 3), jnp.float32)).shape


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        # The last stack has maps of 1 x 1, of 37 or of 9 channels.
        (Config(model="elu11", channels=8), Config(model="elu11", channels=2)),
        # A token is one position.
        (Config(model="patches", depth=1, width=16), Config(model="patches", depth=1, width=8)),
    ],
)
def test_networks_whose_late_layers_have_one_position(wide: Config, narrow: Config) -> None:
    assert logits_of(wide) == (2, 10)
    with pytest.raises(UserError, match=r"gn got .* x 1 values"):
        logits_of(narrow)


@pytest.mark.slow
def test_narrow_dense_layers_learn_digits() -> None:
    config, data = Config(model="mlp", depth=2, width=32, epochs=3), load("digits", 0)
    run = fit(make_trainer(METHODS["gn"], config, data), data, 0)
    assert run.curve[-1].test_accuracy > 0.8
    assert not run.outcome
