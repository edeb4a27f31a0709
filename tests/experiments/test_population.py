"""Methods that refresh from a large sample: the rows that they use, and when."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.methods.part import Output
from experiments.methods.paths import by_path
from experiments.methods.population import GammaDecay
from experiments.methods.table import METHODS
from experiments.training.ahead_of_time import AheadOfTime
from experiments.training.epoch import EpochPlan, Refresh, Stepwise
from experiments.training.evaluate import make_evaluate
from jaxnorm import effective
from jaxnorm.normprop import standardized
from tests.experiments.parallel import assert_same, with_keys
from tests.experiments.toy import SETTINGS, start, toy_dataset, toy_trainer

#: Each test here takes many seconds.
pytestmark = pytest.mark.slow


def population_of(params, X):
    """Returns the mean and variance of each hidden layer's product, in float64."""
    x, seen = np.asarray(X, np.float64), []
    for index in sorted(params["blocks"]):
        block = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params["blocks"][index])
        h = x @ block["linear"]["kernel"]
        seen.append((h.mean(0), h.var(0)))
        u = (h - h.mean(0)) / np.sqrt(h.var(0) + 1e-5)
        x = np.maximum(u * block["norm"]["scale"] + block["norm"]["bias"], 0)
    return seen


def test_an_epoch_ends_with_the_statistics_of_the_final_parameters():
    data, trainer = toy_dataset(), toy_trainer("pn")
    state, _ = trainer.epoch(start(trainer, 0), *data[:2])
    for index, (mean, variance) in enumerate(population_of(state.params, data.X_train)):
        kept = state.model_state["blocks"][index]["norm"]
        np.testing.assert_allclose(kept["mean"], mean, atol=1e-4)
        np.testing.assert_allclose(kept["var"], variance, rtol=1e-3)


def test_refreshes_fall_due_every_so_many_steps_and_at_the_end():
    refresh = Refresh(3, lambda *_: None)
    assert [i for i in range(8) if refresh.is_due(i, 8)] == [2, 5, 7]
    due = jax.jit(lambda i: refresh.is_due(i, 8))
    assert [i for i in range(8) if due(jnp.int32(i))] == [2, 5, 7]


@pytest.mark.parametrize("method", ["pn+gamma-decay", "wn+gamma-decay"])
def test_stepwise_and_scanned_epochs_refresh_alike(method):
    data, trainer = toy_dataset(), toy_trainer(method)
    stepwise = Stepwise(EpochPlan(trainer.step, 16, refreshes=trainer.plan.refreshes))
    one, _ = stepwise(start(trainer, 3), *data[:2])
    other, _ = trainer.epoch(start(trainer, 3), *data[:2])
    assert_same(one, other, 1e-4, 1e-6)
    strengths = jax.tree.leaves(one.method_state["GammaDecay"])
    assert all((np.asarray(each) > 0).any() for each in strengths)


def test_the_decay_is_part_of_the_loss():
    """Its gradient is 2 zeta gamma, which one step of plain SGD adds to the scales."""
    data, trainer = toy_dataset(), toy_trainer("pn+gamma-decay")
    state = start(trainer, 0)
    step, batch = AheadOfTime(trainer.step), with_keys(data.X_train[:16], data.y_train[:16])
    without, _ = step(state, batch)
    zeros = state.method_state["GammaDecay"]
    strengths = {site: jnp.full_like(each, 0.1) for site, each in zeros.items()}
    with_decay, _ = step(state._replace(method_state={"GammaDecay": strengths}), batch)
    before, plain, decayed = (by_path(s.params) for s in (state, without, with_decay))
    rate = SETTINGS.learning_rate
    for site in strengths:
        moved = np.asarray(decayed[f"{site}/scale"]) - np.asarray(plain[f"{site}/scale"])
        expected = -rate * 2 * 0.1 * np.asarray(before[f"{site}/scale"])
        np.testing.assert_allclose(moved, expected, rtol=1e-3, atol=1e-7)


def test_the_strength_is_multiplied_as_asked():
    raw = {"a": {"scale": jnp.array([2.0, 1.0]), "bias": jnp.zeros(2)}}
    part, own = GammaDecay(decay_times=3.0), {"a": jnp.array([0.5, 0.25])}
    context, keys = toy_trainer("pn+gamma-decay").context, jax.random.split(jax.random.key(0), 1)
    plain = Output(jnp.zeros((1, 2)), {}, jnp.float32(1.0))
    found = part.forward(lambda weights, X: plain, raw, own, keys, context)(raw, keys)
    assert float(found.loss) == pytest.approx(1 + 3 * (0.5 * 4 + 0.25))


def test_batch_data_normalization_keeps_running_statistics_for_evaluation():
    data, trainer = toy_dataset(), toy_trainer("normprop-batch")
    state = start(trainer, 0)
    for _ in range(3):
        state, _ = trainer.epoch(state, *data[:2])
    kept = state.model_state["norm"]
    np.testing.assert_allclose(kept["mean"], data.X_train.mean(0), atol=0.5)
    plain = effective(state.params)["network"]

    def apply(params, model_state, X, train):
        x = (X - kept["mean"][None]) / jnp.sqrt(kept["var"][None] + 1e-5)
        relu = standardized(jax.nn.relu)
        for index in sorted(plain["blocks"]):
            layer = plain["blocks"][index]["linear"]
            x = relu(x @ layer["kernel"] + layer["bias"][None])
        return x @ plain["head"]["kernel"] + plain["head"]["bias"][None], model_state

    expected = make_evaluate(METHODS["normprop-batch"], apply)(state, *jax.device_put(data[2:4]))
    got = trainer.evaluate(state, *data[2:4])
    assert float(got.loss) == pytest.approx(float(expected.loss), rel=1e-3)
