"""The warm-up and the clipping of layers, which all methods of a comparison share."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from experiments.config import Config
from experiments.methods.clipping import clip_layers
from experiments.methods.optimizer import make_optimizer, schedule_of
from experiments.methods.table import METHODS
from tests.experiments.toy import toy_trainer


def rates(config: Config, steps: int = 40) -> np.ndarray:
    schedule = schedule_of(config, steps)
    return np.array([schedule(jnp.int32(step)) for step in range(steps)])


def test_the_rate_rises_from_zero_and_falls_by_half_a_cosine() -> None:
    config = Config(learning_rate=0.3, warm_up=0.1)
    expected = [0.3 * step / 4 for step in range(4)]
    expected += [0.15 * (1 + np.cos(np.pi * step / 36)) for step in range(36)]
    np.testing.assert_allclose(rates(config), expected, rtol=1e-5, atol=1e-7)


def test_other_schedules_rise_too() -> None:
    for options in ({"rate_decay": 0.01}, {"rate_schedule": ((0.5, 0.1),)}):
        config = Config(learning_rate=0.3, **options)
        rise = np.minimum(1, np.arange(40) / 8)
        found = rates(config.changed(warm_up=0.2))
        np.testing.assert_allclose(found, rise * rates(config), rtol=1e-6)


def test_a_warm_up_of_a_part_of_an_update_is_one_update() -> None:
    assert rates(Config(warm_up=0.001))[:2].tolist() == pytest.approx([0, 0.05])


@pytest.mark.parametrize(("method", "clips"), [("bn", True), ("agc", False), ("vcl", False)])
def test_layers_are_clipped_except_by_methods_that_clip_themselves(
    method: str, clips: bool
) -> None:
    context = toy_trainer("none").context
    config = Config(weight_decay=0.0, clip_layers=1.0)
    params = jax.tree.map(lambda x: jnp.ones(x.shape, x.dtype), context.functional.params)
    assert METHODS[method].clips == (not clips)

    def update(method: str, config: Config) -> dict[str, jax.Array]:
        tx = make_optimizer(METHODS[method], config, 10, context)
        gradient = jax.tree.map(lambda x: 100 * x, params)
        updates = tx.update(gradient, tx.init(params), params)[0]
        return {jax.tree_util.keystr(k): v for k, v in jax.tree.leaves_with_path(updates)}

    plain, found = (update(method, each) for each in (config.changed(clip_layers=None), config))
    for name, leaf in found.items():
        if not clips:
            np.testing.assert_array_equal(leaf, plain[name])
        elif leaf.ndim > 1:
            assert np.linalg.norm(leaf) < 0.06 < np.linalg.norm(plain[name])


def test_names_that_are_paths_are_layers_of_their_own() -> None:
    """As the parameters of Linen, Haiku and Equinox are named."""
    flat = {"params": {"a/b/kernel": jnp.full((2,), 3.0), "a/b/bias": jnp.full((2,), 4.0)}}
    flat["params"]["c/kernel"] = jnp.full((2,), 0.1)
    nested = {"a": {"b": {"kernel": jnp.full((2,), 3.0), "bias": jnp.full((2,), 4.0)}}}
    found, _ = clip_layers(1.0).update(flat, optax.EmptyState())
    expected, _ = clip_layers(1.0).update(nested, optax.EmptyState())
    assert found["params"].keys() == flat["params"].keys()
    np.testing.assert_array_equal(found["params"]["a/b/kernel"], expected["a"]["b"]["kernel"])
    np.testing.assert_array_equal(found["params"]["a/b/bias"], expected["a"]["b"]["bias"])
    np.testing.assert_array_equal(found["params"]["c/kernel"], flat["params"]["c/kernel"])
    norm = np.sqrt(sum(np.sum(np.square(x)) for x in expected["a"]["b"].values()))
    np.testing.assert_allclose(norm, 1, rtol=1e-6)
