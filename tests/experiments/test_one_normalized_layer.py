"""BN at one layer: which layer of the network it is, and what is said of the batch size."""

import jax.numpy as jnp
import pytest
from flax import nnx

from experiments.config import Config
from experiments.errors import UserError
from experiments.models.registry import build
from experiments.papers.bn import fig2ef
from experiments.papers.bn.fig2ef import Point, Settings, point_of, run
from experiments.papers.item import Context
from experiments.training.fit import Run
from experiments.training.history import Epoch
from experiments.training.state import TrainState
from jaxnorm.nnx import functionalize

SETTINGS = Settings(layers=(2, 5), batch_sizes=(16, 64), rows=64, test_rows=16, seeds=2)


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


def trained(settings, layer, batch_size, data):
    """gamma^2 grows by 0.5 and by 0.1 in two doublings of the batch, the loss falls by 2."""
    large = batch_size == 64
    return [
        Point(layer, batch_size, seed, 1 + gain * large, 0.1, 3.0 - 2 * large, 0.9)
        for seed, gain in enumerate((0.5, 0.1))
    ]


@pytest.fixture
def places(monkeypatch):
    """The places that are trained, in a stand-in for training."""
    seen = []

    def stand_in(settings, layer, batch_size, data):
        seen.append((layer, batch_size))
        return trained(settings, layer, batch_size, data)

    monkeypatch.setattr(fig2ef, "_trained", stand_in)
    return seen


def test_slopes_are_judged_by_their_interval_over_seeds(places, tmp_path):
    report = run(SETTINGS, Context(None, tmp_path, lambda fraction, what: None))
    assert places == [(2, 16), (2, 64), (5, 16), (5, 64)]
    scale, _, loss, _ = report.claims
    # Two doublings: 0.25 and 0.05 a doubling; t = 12.706 of one degree of freedom, times 0.1.
    assert scale.statement == "gamma^2 over a doubling of M, BN at layer 2"
    assert scale.ours == "by +0.15, 95% from -1.12 to +1.42"
    assert (scale.holds, scale.said) == (None, "undecided")
    assert (loss.ours, loss.holds) == ("by -1, 95% from -1 to -1", False)
    assert len(report.rows) == 8


def test_an_interval_above_zero_holds_and_one_seed_decides_nothing(places, tmp_path, monkeypatch):
    def growing(settings, layer, batch_size, data):
        points = trained(settings, layer, batch_size, data)[: settings.seeds]
        return [p._replace(gamma_squared=batch_size + 0.1 * p.seed * batch_size) for p in points]

    monkeypatch.setattr(fig2ef, "_trained", growing)
    for seeds, verdict in ((2, (True, "")), (1, (None, "undecided"))):
        (tmp_path / str(seeds)).mkdir()
        context = Context(None, tmp_path / str(seeds), lambda fraction, what: None)
        claims = run(SETTINGS.changed(seeds=seeds), context).claims
        assert (claims[0].holds, claims[0].said) == verdict


def test_what_diverged_decides_nothing(places, tmp_path, monkeypatch):
    monkeypatch.setattr(
        fig2ef,
        "_trained",
        lambda *place: [p._replace(test_loss=float("nan")) for p in trained(*place)],
    )
    claims = run(SETTINGS, Context(None, tmp_path, lambda fraction, what: None)).claims
    assert [claim.said for claim in claims[2:]] == ["not trained", "not trained"]


def test_finished_places_are_kept(places, tmp_path):
    context = Context(None, tmp_path, lambda fraction, what: None)
    first = run(SETTINGS, context)
    places.clear()
    assert run(SETTINGS, context).rows == first.rows
    assert not places
    with pytest.raises(UserError, match=r"another protocol \(epochs differ\)"):
        run(SETTINGS.changed(epochs=1), context)


def test_the_mean_square_is_over_the_units_of_the_only_normalizer():
    norm = {"scale": jnp.array([1.0, -3.0]), "bias": jnp.array([5.0, 5.0])}
    params = {"dense": {"linear": {"kernel": jnp.ones((4, 2))}, "norm": norm}}
    curve = [Epoch(1, 1.0, 0.5, 1.0, 0.5), Epoch(2, 0.1, 0.9, 0.2, 0.8)]
    state = TrainState(params, *[None] * (len(TrainState._fields) - 1))
    run = Run("bn", 3, curve, 1.0, 10, state)
    assert point_of(4, 64, run) == Point(4, 64, 3, 5.0, 0.1, 0.2, 0.8)
