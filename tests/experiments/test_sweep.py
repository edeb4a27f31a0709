"""Many small trainings in one program: each equals the ordinary training, whatever the padding."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from experiments.config import Config
from experiments.data.dataset import Dataset
from experiments.methods.optimizer import make_optimizer
from experiments.methods.table import METHODS
from experiments.models.style import AlphaDropout
from experiments.papers.vcl.padded import Sizes, padded, sizes_of
from experiments.papers.vcl.sweep import as_unpadded, make_sweep, padded_order
from experiments.training.evaluate import make_evaluate
from experiments.training.state import TrainState
from experiments.training.step import make_step
from experiments.training.trainer import make_context, make_init, network_of
from tests.experiments.parallel import with_keys
from tests.experiments.toy import toy_dataset

SETTINGS = Config(
    model="mlp",
    activation="elu",
    depth=1,
    width=8,
    head_dropout=0.5,
    learning_rate=0.05,
    weight_decay=0.0,
    rate_schedule=((0.5, 0.1),),
    epochs=2,
    batch_size=12,
)
TIGHT, ROOMY = Sizes(56, 14, 23, 6, 3), Sizes(70, 19, 40, 9, 5)
VCL = METHODS["vcl"].adjusted(Config(sample_size=6))


def splits() -> list[Dataset]:
    return [toy_dataset(seed) for seed in (0, 1)]


def test_sizes():
    assert sizes_of(toy_dataset(), 0.2) == TIGHT
    data = padded(splits(), 0.2, ROOMY)
    assert data.train.X.shape == (2, 70, 9)
    first = splits()[1]
    np.testing.assert_array_equal(data.validation.X[1, :14, :6], first.X_train[56:])
    assert not data.validation.X[1, 14:].any()
    assert not data.test.X[..., 6:].any()


@pytest.mark.slow
def test_a_sweep_is_the_ordinary_training():
    """Repeats one of its two runs step by step, with unpadded arrays and the other evaluation."""
    arguments = padded(splits(), 0.2, ROOMY), jnp.arange(2, dtype=jnp.uint32)
    curve = jax.device_get(make_sweep(VCL, SETTINGS, ROOMY)(*arguments))
    seed, data = jnp.uint32(1), splits()[1]
    sizes = Sizes(*map(np.int32, TIGHT))
    network = functools.partial(network_of, VCL, SETTINGS, (6,), 3)
    context, steps = make_context(VCL, network(jax.random.key(0)), SETTINGS, (6,)), 2 * (56 // 12)
    tx = make_optimizer(VCL, SETTINGS, steps, context)
    step = jax.jit(make_step(VCL, context, tx))
    init = make_init(VCL, context, network, lambda seed: tx)
    state = as_unpadded(init(seed, jnp.asarray(data.X_train)), seed, sizes)
    evaluate = jax.jit(make_evaluate(VCL, context.functional.apply))
    losses, curves = [], []
    for epoch in range(2):
        order = np.asarray(padded_order(state, 56, jnp.int32(sizes.train)))
        assert sorted(order) == list(range(56))
        for rows in order[:48].reshape(4, 12):
            state, metrics = step(state, with_keys(data.X_train[rows], data.y_train[rows]))
            losses.append(metrics.loss)
        state = state._replace(epoch=jnp.int32(epoch + 1))
        parts = (data.X_train[56:], data.y_train[56:]), (data.X_test, data.y_test)
        errors = [1 - evaluate(state, *part).accuracy for part in parts]
        curves.append((np.mean(losses[-4:]), *errors))
    # Only the order of sums differs, and with it the last digits after some steps.
    got = np.stack([each[1] for each in curve], -1)
    np.testing.assert_allclose(got, curves, rtol=1e-4)


def test_padded_rows_never_lead_the_order():
    state = TrainState(None, None, None, {}, jnp.uint32(3), jnp.int32(0), jnp.int32(0))
    small, large = (np.asarray(padded_order(state, n, jnp.int32(20))) for n in (20, 33))
    np.testing.assert_array_equal(large[:20], small)
    assert sorted(large[20:]) == list(range(20, 33))


def test_first_and_last_weights_have_the_data_s_own_sizes():
    """LeCun's and He's variances are 1 and 2 over the data's fan-in, whatever the padding."""
    model = SETTINGS.changed(activation="relu", width=400)
    network = functools.partial(network_of, METHODS["none"], model, (90,), 50)
    made = network(jax.random.key(0))
    context = make_context(METHODS["none"], made, model, (90,))
    tx = make_optimizer(METHODS["none"], model, 1, context)
    init = make_init(METHODS["none"], context, network, lambda seed: tx)
    sizes = Sizes(*map(np.int32, (9, 9, 9, 30, 10)))
    params = as_unpadded(init(jnp.uint32(0), jnp.zeros((9, 90))), jnp.uint32(0), sizes).params
    first, head = params["blocks"][0]["linear"]["kernel"][:30], params["head"]["kernel"][:, :10]
    # A truncated normal's sample variance of n numbers is off by less than sqrt(2 / n), about.
    assert float(first.var() * 30 / 2) == pytest.approx(1, abs=4 * (2 / 12000) ** 0.5)
    assert float(head.var() * 400) == pytest.approx(1, abs=4 * (2 / 4000) ** 0.5)


def test_alpha_dropout_keeps_mean_and_variance(key):
    layer = AlphaDropout(0.3, rngs=nnx.Rngs(dropout=key()))
    x = jax.random.normal(key(), (200_000,))
    y = np.asarray(layer(x), np.float64)
    # Five standard errors of the mean and (kurtosis below 4) of the variance.
    assert y.mean() == pytest.approx(0, abs=5 / 200_000**0.5)
    assert y.var() == pytest.approx(1, abs=5 * (3 / 200_000) ** 0.5)
    counts = np.unique(y, return_counts=True)[1]
    assert counts.max() / len(y) == pytest.approx(0.3, abs=5 * (0.21 / 200_000) ** 0.5)
    layer.eval()
    np.testing.assert_array_equal(layer(x), x)
