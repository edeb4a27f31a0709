"""Other authors' updates against their papers' formulas, in float64 NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from experiments.config import Config
from experiments.methods.constrained import ClippedByLayer
from experiments.methods.method import Method
from experiments.methods.optimizer import make_optimizer
from experiments.methods.rivals.adamp import TangentUpdates
from experiments.methods.rivals.adaptive_clipping import AdaptivelyClipped
from experiments.methods.rivals.hyperball import hyperball
from experiments.methods.rivals.nero import UnitwiseGradients
from experiments.methods.table import METHODS
from tests.experiments.toy import start, toy_trainer

RATE = 0.3


@pytest.fixture(scope="module")
def trees():
    """Makes a kernel of five inputs and four units, its bias, and two gradients."""
    random = np.random.default_rng(0)

    def tree():
        layer = {"kernel": random.normal(size=(5, 4)), "bias": random.normal(size=4)}
        tree = {"blocks": {0: {"linear": layer}}, "head": {"kernel": np.ones((4, 3))}}
        return jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), tree)

    return [tree() for _ in range(3)]


def updates_of(part, trees):
    """Returns the updates of the kernel and of the bias at two steps of SGD with that part."""
    params, *gradients = trees
    tx = part.optimizer(optax.sgd(RATE), toy_trainer("none").context, 0)
    state, found = tx.init(params), []
    for gradient in gradients:
        updates, state = tx.update(gradient, state, params)
        found.append(updates["blocks"][0]["linear"])
    return found


def arrays(trees):
    return [
        {name: np.asarray(x, np.float64) for name, x in tree["blocks"][0]["linear"].items()}
        for tree in trees
    ]


def test_nero_divides_each_unit_s_gradient_by_its_running_size(trees):
    found = updates_of(UnitwiseGradients(0.9), trees)
    _, one, two = arrays(trees)
    first, second = ((g["kernel"] ** 2).sum(0) for g in (one, two))
    sizes = [first, (0.09 * first + 0.1 * second) / 0.19]
    for got, gradient, squared in zip(found, (one, two), sizes, strict=True):
        np.testing.assert_allclose(got["kernel"], -RATE * gradient["kernel"] / squared**0.5, 1e-5)
        np.testing.assert_allclose(got["bias"], -RATE * gradient["bias"], 1e-6)


def test_hyperball_rescales_the_optimizer_s_update_and_keeps_the_norm(trees):
    """Behind momentum of 0.9 and a learning rate of 7, which does not matter."""
    params, *gradients = arrays(trees)
    tx = hyperball(optax.sgd(7.0, momentum=0.9), toy_trainer("none").context.layout, RATE)
    tree, state = trees[0], tx.init(trees[0])
    kernel, momentum = params["kernel"], 0
    for raw, gradient in zip(trees[1:], gradients, strict=True):
        updates, state = tx.update(raw, state, tree)
        tree = optax.apply_updates(tree, updates)
        momentum = 0.9 * momentum + gradient["kernel"]
        moved = kernel - RATE * np.linalg.norm(kernel) * momentum / np.linalg.norm(momentum)
        kernel = moved * np.linalg.norm(kernel) / np.linalg.norm(moved)
        got = tree["blocks"][0]["linear"]["kernel"]
        np.testing.assert_allclose(got, kernel, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hyperball", "cwo-angle"])
def test_the_learning_rate_is_the_length_of_a_step_and_decays_with_its_schedule(name, trees):
    """The second of two steps of half a cosine has half the length."""
    context, params, gradient = toy_trainer(name).context, *trees[:2]
    step = Method("step", "", METHODS[name].parts[:1])
    tx = make_optimizer(step, Config(learning_rate=0.01, weight_decay=0.0), 2, context)
    state, kernel, lengths = tx.init(params), params["blocks"][0]["linear"]["kernel"], []
    for _ in range(2):
        updates, state = tx.update(gradient, state, params)
        update = updates["blocks"][0]["linear"]["kernel"]
        lengths.append(jnp.linalg.norm(update) / jnp.linalg.norm(kernel))
    np.testing.assert_allclose(lengths[0] / lengths[1], 2, rtol=0.02)
    along = (
        1 if name == "cwo-angle" else 0.7
    )  # The projection takes away what is along the weights.
    assert 0.01 * along < lengths[0] * 1.0001 < 0.01001


def test_hyperball_decays_the_free_kernels_alone(trees):
    context, (params, gradient, _), updates = toy_trainer("hyperball").context, trees, []
    for decay in (0.0, 0.1):
        config = Config(learning_rate=0.5, weight_decay=decay)
        tx = make_optimizer(METHODS["hyperball"], config, 2, context)
        updates.append(tx.update(gradient, tx.init(params), params)[0])
    plain, decayed = updates
    np.testing.assert_array_equal(*(x["blocks"][0]["linear"]["kernel"] for x in updates))
    np.testing.assert_allclose(plain["head"]["kernel"] - decayed["head"]["kernel"], 0.05, rtol=1e-5)


def test_adamp_leaves_out_what_is_along_the_weights_where_the_gradient_is_across_them(trees):
    params, gradient, _ = arrays(trees)
    w, g = params["kernel"], gradient["kernel"].copy()
    g[:, :2] -= w[:, :2] * (w * g).sum(0)[:2] / (w**2).sum(0)[:2]
    tree = {"blocks": {0: {"linear": {"kernel": jnp.asarray(g, jnp.float32)}}}, "head": jnp.ones(3)}
    weights = {"blocks": {0: {"linear": {"kernel": trees[0]["blocks"][0]["linear"]["kernel"]}}}}
    updates = jax.tree.map(lambda x: x + 1, tree)  # As momentum does: not across any more.
    layout = toy_trainer("none").context.kernels
    got = TangentUpdates(0.1).tangent(updates, tree, weights | {"head": jnp.ones(3)}, layout)
    got = got["blocks"][0]["linear"]["kernel"]
    cosine = abs((w * g).sum(0)) / np.sqrt((w**2).sum(0) * (g**2).sum(0))
    across = cosine < 0.1 / 5**0.5
    assert across[:2].all()
    assert not across.all()
    along = ((g + 1) * w).sum(0) / (w**2).sum(0)
    np.testing.assert_allclose(got, g + 1 - across * along * w, rtol=1e-4, atol=1e-5)


def test_adaptive_clipping_bounds_each_unit_by_its_weights(trees):
    found = updates_of(AdaptivelyClipped(0.5), trees)
    params, *gradients = arrays(trees)
    clipped = 0
    for got, gradient in zip(found, gradients, strict=True):
        g = gradient["kernel"]
        most = 0.5 * np.linalg.norm(params["kernel"], axis=0) / np.linalg.norm(g, axis=0)
        clipped += (most < 1).sum()
        np.testing.assert_allclose(got["kernel"], -RATE * g * np.minimum(1, most), rtol=1e-5)
        np.testing.assert_allclose(got["bias"], -RATE * gradient["bias"], 1e-6)
    assert clipped


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hyperball", "agc"])
def test_a_zero_gradient_leaves_finite_parameters(name, trees):
    trainer = toy_trainer(name)
    state = start(trainer, 0)
    zeros = jax.tree.map(jnp.zeros_like, state.params)
    tx = make_optimizer(trainer.method, Config(), 10, trainer.context)
    updates, _ = tx.update(zeros, tx.init(state.params), state.params)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(updates))


def test_gradients_are_not_clipped_at_0(trees):
    plain = [-RATE * tree["blocks"][0]["linear"]["kernel"] for tree in trees[1:]]
    for limit, clipped in ((0.0, False), (0.1, True)):
        found = updates_of(ClippedByLayer(limit), trees)
        same = [np.allclose(each["kernel"], one) for each, one in zip(found, plain, strict=True)]
        assert same == [not clipped] * 2
