"""Running statistics that are estimated anew, against NumPy and against another momentum."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import jaxnorm as jn
from tests.nnx.models import IMAGES, ResNet
from tests.trees import quick_jit

MOMENTA = (0.99, 0.9, 0.3)


class Net(nnx.Module):
    """A dense layer and batch normalization, then another of each."""

    def __init__(self, make, rngs):
        self.first, self.norm = nnx.Linear(3, 4, rngs=rngs), make(4)
        self.second, self.norms = nnx.Linear(4, 2, rngs=rngs), nnx.List([make(2)])

    def __call__(self, x):
        return self.norms[0](self.second(nnx.relu(self.norm(self.first(x)))))


def flax_norm(momentum):
    return lambda width: nnx.BatchNorm(width, momentum=momentum, rngs=nnx.Rngs(0))


def ghost_norm(momentum):
    return lambda width: jn.nnx.BatchNorm(width, momentum=momentum, groups=2)


def estimated(make, x, batch_size=None):
    model = Net(make, nnx.Rngs(0))
    apply, params, state = jn.nnx.functionalize(model)
    update = quick_jit(partial(apply, train=True))
    for rows in np.split(x, 4):  # some updates' worth of running statistics
        _, state = update(params, state, rows)
    return params, jn.nnx.estimate_statistics(model, params, state, x, batch_size=batch_size)


def rows(n=24):
    return (3 + 2 * np.random.default_rng(0).normal(size=(n, 3))).astype(np.float32)


@pytest.mark.parametrize("make", [flax_norm, ghost_norm], ids=lambda make: make.__name__)
def test_equals_numpy_and_does_not_depend_on_the_momentum(make):
    x = rows()
    states = [estimated(make(momentum), x, 8)[1] for momentum in MOMENTA]
    params, state = estimated(make(0.9), x, 8)
    first = {name: np.float64(leaf) for name, leaf in params["first"].items()}
    batches = (np.float64(x) @ first["kernel"] + first["bias"]).reshape(3, 8, 4)
    np.testing.assert_allclose(state["norm"]["mean"], batches.mean(1).mean(0), rtol=1e-5)
    np.testing.assert_allclose(state["norm"]["var"], batches.var(1).mean(0), rtol=1e-5)
    for other in states:
        jax.tree.map(np.testing.assert_array_equal, other, state)


def test_by_default_all_rows_are_one_batch_so_that_evaluation_equals_training():
    x = rows()
    model = Net(flax_norm(0.99), nnx.Rngs(0))
    apply, params, state = jn.nnx.functionalize(model)
    anew = jn.nnx.estimate_statistics(model, params, state, x)
    trained, evaluated = (
        apply(params, s, x, train=t)[0] for s, t in ((state, True), (anew, False))
    )
    np.testing.assert_allclose(trained, evaluated, rtol=1e-4, atol=1e-5)


def test_takes_abstract_models_and_reparametrized_kernels_under_jit():
    x = jnp.asarray(rows())
    make = flax_norm(0.9)
    abstract = nnx.eval_shape(lambda: Net(make, nnx.Rngs(0)))
    params, expected = estimated(make, x)
    raw = jn.reparametrize(params, jn.WeightNormalized)
    state = jax.tree.map(jnp.zeros_like, expected)
    estimate = jax.jit(
        lambda raw: jn.nnx.estimate_statistics(abstract, jn.effective(raw), state, x)
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), estimate(raw), expected)


def test_frozen_layers_population_norm_and_other_variables_stay():
    model = nnx.Sequential(
        nnx.BatchNorm(3, use_running_average=True, rngs=nnx.Rngs(0)),
        jn.nnx.PopulationNorm(3),
        nnx.Dropout(0.1, rngs=nnx.Rngs(1)),
        nnx.BatchNorm(3, rngs=nnx.Rngs(0)),
    )
    _, params, state = jn.nnx.functionalize(model)
    anew = jn.nnx.estimate_statistics(model, params, state, rows(9), batch_size=3)
    layers, old = anew["layers"], state["layers"]
    for number in (0, 1, 2):
        assert jax.tree.all(jax.tree.map(lambda a, b: jnp.all(a == b), layers[number], old[number]))
    assert np.abs(layers[3]["mean"]).min() > 0


def test_every_minibatch_has_draws_of_its_own():
    model = nnx.Sequential(
        nnx.Dropout(0.5, rngs=nnx.Rngs(1)),
        nnx.BatchNorm(3, use_scale=False, use_bias=False, rngs=nnx.Rngs(0)),
    )
    _, params, state = jn.nnx.functionalize(model)
    anew = jn.nnx.estimate_statistics(model, params, state, jnp.ones((4000, 3)), batch_size=2)
    np.testing.assert_allclose(anew["layers"][1]["mean"], 1.0, atol=0.1)


def test_reaches_every_layer_of_a_residual_network():
    model = ResNet(nnx.Rngs(0))
    _, params, state = jn.nnx.functionalize(model)
    x = jax.random.normal(jax.random.key(1), (8, *IMAGES[1:]))
    anew = jn.nnx.estimate_statistics(model, params, state, x)
    assert jax.tree.structure(anew) == jax.tree.structure(state)
    changed = jax.tree.map(lambda new, old: bool(jnp.any(new != old)), anew, state)
    assert all(jax.tree.leaves(changed))


def test_refuses_models_without_such_layers_and_batches_larger_than_the_rows():
    plain = nnx.Linear(3, 2, rngs=nnx.Rngs(0))
    _, params, state = jn.nnx.functionalize(plain)
    with pytest.raises(ValueError, match=r"Linear has no layer whose running .* model\.train"):
        jn.nnx.estimate_statistics(plain, params, state, rows())
    model = Net(flax_norm(0.9), nnx.Rngs(0))
    _, params, state = jn.nnx.functionalize(model)
    with pytest.raises(ValueError, match="there are 0 rows; wanted training rows"):
        jn.nnx.estimate_statistics(model, params, state)
    with pytest.raises(ValueError, match="batch_size is 25 and there are 24 rows"):
        jn.nnx.estimate_statistics(model, params, state, rows(), batch_size=25)
