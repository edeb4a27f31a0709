"""BN at one layer: the normalized layer, and the findings on the batch size."""

import jax.numpy as jnp
import pytest
from flax import nnx

from experiments.config import Config
from experiments.models.registry import build
from experiments.papers.bn.fig2ef import view
from experiments.papers.grid import Cell
from experiments.papers.scores import gamma_squared
from experiments.papers.training import Trained
from jaxnorm.nnx import functionalize
from tests.experiments.toy import run_of


@pytest.mark.parametrize("layer", range(1, 6))
def test_one_layer_has_scales_and_the_others_their_own_bias(layer):
    settings = Config(model="cnn4", channels=2, norm_at=layer)
    model = nnx.eval_shape(lambda: build(settings, (4, 4, 1), 3, nnx.Rngs(0), norm="bn"))
    params = functionalize(model).params
    blocks = [*params["blocks"].values(), params["dense"]]
    assert len(blocks) == 5
    for number, block in enumerate(blocks, 1):
        assert ("norm" in block) == (number == layer)
        assert ("bias" in block["linear"]) == (number != layer)


def trained(*gains, loss=1.0):
    """Makes runs in which gamma^2 grows by these numbers per seed in two doublings of the batch."""
    return [
        Trained(
            Cell(f"BN at layer {layer}", "bn", changes={"batch_size": size}),
            [
                run_of("bn", seed, 0.9, loss * (3 if size == 16 else 1))._replace(
                    scores={"gamma_squared": 1 + gain * (size == 64)}
                )
                for seed, gain in enumerate(gains)
            ],
        )
        for layer in (2, 5)
        for size in (16, 64)
    ]


def test_slopes_are_judged_by_their_interval_over_seeds():
    scale, _, loss, _ = view(trained(0.5, 0.1))[0]
    # Two doublings: 0.25 and 0.05 a doubling; t = 12.706 of one degree of freedom, times 0.1.
    assert scale.statement == "gamma^2 over a doubling of M, BN at layer 2"
    assert scale.ours == "+0.15 [-1.12, +1.42]"
    assert (scale.holds, scale.reason) == (None, "undecided")
    assert (loss.ours, loss.holds) == ("-1 [-1, -1]", False)


def test_an_interval_decides_and_one_seed_or_what_diverged_does_not():
    assert view(trained(15.0, 16.0))[0][0].holds
    assert view(trained(15.0))[0][0].reason == "undecided"
    claims = view(trained(0.5, 0.1, loss=float("nan")))[0]
    assert [claim.reason for claim in claims[2:]] == ["not trained", "not trained"]


def test_the_mean_square_is_over_the_units_of_the_only_normalizer():
    norm = {"scale": jnp.array([1.0, -3.0]), "bias": jnp.array([5.0, 5.0])}
    params = {"dense": {"linear": {"kernel": jnp.ones((4, 2))}, "norm": norm}}
    assert gamma_squared(params) == 5.0
