"""Every method takes a step, and its constraint holds on constrained kernels only."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from experiments.config import Config
from experiments.data.dataset import Dataset
from experiments.errors import UserError
from experiments.methods.constrained import ClippedByLayer
from experiments.methods.optimizer import make_optimizer, schedule_of
from experiments.methods.part import Output
from experiments.methods.population import GammaDecay
from experiments.methods.scale_noise import ScaleNoise
from experiments.methods.table import METHODS, find_methods
from experiments.methods.variance_constancy import VarianceConstancy
from experiments.training.trainer import make_trainer, network_of
from jaxnorm import (
    CenteredWeightNormalized,
    LinearlyConstrained,
    Scaled,
    SpectrallyNormalized,
    WeightNormalized,
    constraint_drift,
    effective,
    reparametrize,
)
from jaxnorm.nnx import ScaleAndBias
from tests.experiments.parallel import with_keys
from tests.experiments.toy import SETTINGS, after_an_epoch, start, toy_dataset, toy_trainer


def test_flags_reach_the_parts_that_have_them_and_no_other():
    flags = Config(vcl_weight=0.5, sample_size=3, probes=7, decay_times=2.0, clip=0.0, noise=0.3)
    vcl = METHODS["vcl"].adjusted(flags).get(VarianceConstancy)
    assert (vcl.vcl_weight, vcl.sample_size) == (0.5, 3)
    decay = METHODS["pn+gamma-decay"].adjusted(flags).get(GammaDecay)
    assert (decay.probes, decay.decay_times, decay.refresh_every) == (7, 2.0, 10)
    cwo = METHODS["cwo"].adjusted(flags)
    assert (cwo.get(ClippedByLayer).clip, cwo.get(ScaleNoise).noise) == (0.0, 0.3)
    assert METHODS["bn"].adjusted(flags) == METHODS["bn"]


def test_names_of_methods():
    assert [method.name for method in find_methods(" gn, cwo-sphere ")] == ["gn", "cwo-sphere"]
    with pytest.raises(UserError, match="named twice"):
        find_methods("bn,bn")


def slow(*case):
    return pytest.param(*case, marks=pytest.mark.slow)


#: A network of its own, and scales that stay 1 on purpose: see `test_published_since`. Two ReLU
#: layers are too few to be shaped: see `test_shaped`.
OTHERS = ("ngpt", "edm2", "tat", "tat-normal")
METHOD = [name for name in METHODS if name not in OTHERS]


@pytest.mark.slow  # `test_glossary` holds a step of the default methods to their users' code.
@pytest.mark.parametrize("name", METHOD)
def test_training_moves_every_leaf(name):
    trainer = toy_trainer(name)
    before, after = start(trainer, 0).params, after_an_epoch(trainer).params
    for (path, old), new in zip(
        jax.tree.leaves_with_path(before), jax.tree.leaves(after), strict=True
    ):
        assert np.isfinite(new).all(), jax.tree_util.keystr(path)
        # The count of values has a gradient and no value.
        is_count = jax.tree_util.keystr(path).endswith(".count")
        assert is_count or not np.array_equal(old, new), jax.tree_util.keystr(path)


@pytest.mark.kept("cwo-sphere-sgd")
@pytest.mark.usefixtures("standard_promotion")
@pytest.mark.parametrize(
    ("name", "base", "kept"),
    [
        ("cwo", "sgd", {"sum", "squared_norm"}),
        slow("cwo", "adam", {"sum", "squared_norm"}),
        slow("cwo-centre-sphere", "sgd", {"sum", "squared_norm"}),
        slow("cwo-centre", "sgd", {"sum"}),
        slow("cwo-centre", "adam", {"sum"}),
        ("cwo-sphere", "sgd", {"squared_norm"}),
    ],
)
def test_what_is_constrained_stays_and_the_rest_is_free(name, base, kept):
    trainer = toy_trainer(name, base)
    state = after_an_epoch(trainer)
    for what, drift in constraint_drift(state.params, layout=trainer.layout).items():
        assert (drift < 1e-5) if what in kept else (drift > 0.1), what
    assert not isinstance(state.params["head"]["kernel"], Scaled)
    assert abs(np.asarray(state.params["head"]["kernel"]).sum(0)).max() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["cwo-first-free", *(slow(f"{each}-first-free") for each in ("lcw", "cwn", "ws"))]
)
def test_a_free_first_layer_alone_has_units_of_another_sum_than_zero(name):
    trainer = toy_trainer(name)
    raw = after_an_epoch(trainer).params
    first, second = (np.asarray(effective(raw)["blocks"][i]["linear"]["kernel"]) for i in (0, 1))
    assert abs(first.sum(0)).min() > 1e-3
    np.testing.assert_allclose(second.sum(0), 0.0, atol=1e-5)
    if name.startswith("cwo"):
        drift = constraint_drift(raw, layout=trainer.layout)
        assert float(drift["squared_norm"]) < 1e-5
    assert float(trainer.method.drift(raw, trainer.context)) < 1e-5


def test_a_network_without_a_first_layer_has_none_to_be_left_free():
    dataset = Dataset(*[np.zeros((8, 4), np.int32)] * 4, "tokens", 3)
    config = Config(model="transformer", width=8, batch_size=8)
    with pytest.raises(UserError, match="no first layer to be left free"):
        make_trainer(METHODS["cwo-first-free"], config, dataset)


@pytest.mark.slow
def test_the_head_can_be_included():
    params = after_an_epoch(toy_trainer("cwo", constrain_head=True)).params
    assert isinstance(params["head"]["kernel"], Scaled)
    assert float(constraint_drift(params)["sum"]) < 1e-5


def toy_parameters(name):
    kernel = jax.random.normal(jax.random.key(0), (5, 4))
    params = {
        "blocks": {
            0: {"linear": {"kernel": kernel, "bias": jnp.ones(4)}, "norm": {"scale": jnp.ones(4)}}
        },
        "head": {"kernel": kernel[:4], "bias": jnp.ones(4)},
    }
    return METHODS[name].parameters(params, toy_trainer(name).context, jnp.zeros((1, 6)))


def test_initial_parameters_keep_what_they_can():
    plain, scaled = toy_parameters("none"), toy_parameters("cwo-none")
    for got, expected in zip(
        jax.tree.leaves(effective(scaled)), jax.tree.leaves(plain), strict=True
    ):
        np.testing.assert_array_equal(got, expected)
    kernel = np.asarray(plain["blocks"][0]["linear"]["kernel"], np.float64)
    centred = kernel - kernel.mean(0)
    expected = centred * np.sqrt(2 / (centred**2).sum(0))
    got = effective(toy_parameters("cwo"))["blocks"][0]["linear"]["kernel"]
    np.testing.assert_allclose(got, expected, rtol=1e-5)
    got = effective(toy_parameters("cwo-centre"))["blocks"][0]["linear"]["kernel"]
    np.testing.assert_allclose(got, centred, atol=1e-6)


def test_a_rate_that_decays_loses_the_same_part_at_each_step():
    decaying = schedule_of(SETTINGS.changed(learning_rate=0.4, rate_decay=0.1), 8)
    found = [float(decaying(jnp.int32(step))) for step in (0, 1, 10)]
    np.testing.assert_allclose(found, [0.4, 0.4 * 0.9, 0.4 * 0.9**10], rtol=1e-5)


def test_linear_noise_is_that_of_each_hidden_layer():
    context = toy_trainer("cwo-linear").context
    noise = METHODS["cwo-linear"].changed(ScaleNoise, noise=1.0).get(ScaleNoise)
    stddev = noise.stddev_of_kernels(context)
    assert [stddev["blocks"][i]["linear"]["kernel"] for i in range(2)] == [0.5, 1.0]
    assert stddev["head"]["kernel"] is None


def test_before_branches_scale_bias_and_noise_are_layers():
    """WRN-28-10 has two layers in each of twelve units and one at the end, and plain kernels."""
    model = Config(model="wrn28x10", channels=4)
    key = jax.random.key(0)
    method = METHODS["cwo-linear"].changed(ScaleNoise, noise=1.0)
    network = functools.partial(network_of, method, model)
    made = nnx.eval_shape(lambda: network((8, 8, 3), 10, key))
    layers = [m for _, m in nnx.iter_modules(made) if isinstance(m, ScaleAndBias)]
    assert sorted(layer.stddev for layer in layers) == [(i + 1) / 25 for i in range(25)]
    assert made.last.norm.stddev == 1
    assert made.units[0].first.norm.stddev == 1 / 25
    assert made.units[0].second.norm.stddev == 2 / 25
    assert all(m.bias is None for _, m in nnx.iter_modules(made) if isinstance(m, nnx.Conv))


@pytest.mark.slow
def test_noise_is_drawn_for_each_sample_or_once_a_step_and_never_both():
    """The logits of four equal rows differ with one draw per sample, and only then."""
    data = toy_dataset()
    for name, differ in (("cwo", True), ("cwo-step", False), ("cwo-centre-sphere", False)):
        trainer = toy_trainer(name)
        state = start(trainer, 0)
        batch = with_keys(jnp.tile(data.X_train[:1], (4, 1)), data.y_train[:4])

        def network(weights, X, trainer=trainer, state=state):
            found = trainer.context.functional.apply(weights, state.model_state, X, train=True)
            return Output(*found, loss=jnp.float32(0))

        raw, own = state.params, state.method_state
        forward = trainer.method.forward(network, raw, own, batch.keys, trainer.context)
        logits = np.asarray(forward(trainer.method.weights(raw, own), batch.X).logits)
        assert (np.ptp(logits, 0) > 1e-6).all() == differ, name


#: The node of a method's kernels, and which of a kernel's leaves decay: what is shaped as it.
DECAYED = {
    "none": (None, {"": True}),
    "cwo-none": (Scaled, {"/kernel": True, "/scale": False}),
    "wn": (WeightNormalized, {"/direction": True, "/scale": False}),
    "cwn": (CenteredWeightNormalized, {"/centered_direction": True, "/scale": False}),
    "lcw": (LinearlyConstrained, {"/coordinates": True}),
    "sn": (SpectrallyNormalized, {"/kernel": True}),
}


@pytest.mark.parametrize("name", DECAYED)
def test_weight_decay_reaches_kernels_alone(name):
    """With a rate of 0.5 and a decay of 0.1, scales, biases and normalizers do not shrink."""
    (kind, leaves), context = DECAYED[name], toy_trainer(name).context
    params = toy_parameters("none")
    params = params if kind is None else reparametrize(params, kind, context.layout)
    zeros, updates = jax.tree.map(jnp.zeros_like, params), []
    for decay in (0.0, 0.1):
        settings = Config(learning_rate=0.5, weight_decay=decay)
        tx = make_optimizer(METHODS[name], settings, 10, context)
        updates.append(tx.update(zeros, tx.init(params), params)[0])
    own = "blocks/0/linear/kernel"
    decayed = {own + leaf: on for leaf, on in leaves.items()} | {"head/kernel": True}
    rows = zip(*map(jax.tree.leaves, updates), jax.tree.leaves(params), strict=True)
    paths = [jax.tree_util.keystr(path, simple=True, separator="/")
             for path, _ in jax.tree.leaves_with_path(params)]  # fmt: skip
    assert {path for path in paths if path.startswith(own)} <= decayed.keys()
    for path, (plain, update, value) in zip(paths, rows, strict=True):
        factor = 0.05 if decayed.get(path, False) else 0.0
        np.testing.assert_allclose(plain - update, factor * value, atol=1e-7, err_msg=path)
