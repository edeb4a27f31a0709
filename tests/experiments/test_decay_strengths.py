"""The inputs of the strengths of gamma decay: the unit's input, and fresh random signs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.methods.part import Context, Sample
from experiments.methods.population import GammaDecay
from jaxnorm import WeightNormalized, effective, exclude, flax_layout
from jaxnorm.nnx import Functional
from tests.draws import draw
from tests.experiments.parallel import assert_same
from tests.experiments.toy import start, toy_dataset, toy_trainer
from tests.trees import quick_jit


def network(weights, model_state, X, train):
    hidden, head = weights["hidden"], weights["head"]
    h = jnp.tanh(X @ hidden["kernel"] + hidden["bias"][None])
    return h @ head["kernel"] + head["bias"][None], model_state


@pytest.mark.slow
def test_a_bias_that_the_input_takes_over_changes_no_strength():
    """W'(x + d) = W'x + b, so pre-activations and their normalization are the same."""
    bias, X, y = draw(1, 4), draw(2, 64, 4), jnp.arange(64) % 3
    node = WeightNormalized.from_kernel(draw(0, 4, 4) + 2 * jnp.eye(4), (-2,))
    moved = jnp.linalg.solve(node.effective().T, bias)
    head = {"kernel": draw(3, 4, 3), "bias": draw(4, 3)}

    layouts = {"kernels": flax_layout, "layout": flax_layout, "hidden": exclude("^head/")}
    functional = Functional(network, None, None)
    context = Context(functional, None, (4,), None, **layouts, batch_size=16)

    @quick_jit
    def strengths(bias, X):
        raw, key = {"hidden": {"kernel": node, "bias": bias}, "head": head}, jax.random.key(5)
        sample = Sample(raw, {}, effective, X, y, key, shard=lambda rows: rows)
        return GammaDecay(nonnegative=False).strengths((X, y), sample, context)

    with_bias, without = strengths(bias, X), strengths(0 * bias, X + moved[None])
    assert with_bias.keys() == {"hidden/kernel"}
    got, wanted = with_bias["hidden/kernel"], without["hidden/kernel"]
    assert np.abs(wanted).min() > 1e-4
    np.testing.assert_allclose(got, wanted, rtol=1e-3)


@pytest.mark.slow
def test_every_refresh_draws_signs_of_its_own():
    """Signs differ between epochs and within one, and repeat for the same place."""
    data, trainer = toy_dataset(), toy_trainer("wn+gamma-decay")
    state = start(trainer, 0)
    (refresh,) = trainer.plan.refreshes
    run = quick_jit(refresh.run)
    places = [(0, 9), (1, 9), (0, 19), (0, 9)]
    first, epoch, step, again = (
        jax.tree.leaves(
            run(state._replace(epoch=jnp.int32(epoch)), *data[:2], jnp.int32(index)).method_state
        )
        for epoch, index in places
    )
    assert any(np.any(np.asarray(leaf) > 0) for leaf in first)
    for other in (epoch, step):
        assert any(np.any(np.asarray(a) != b) for a, b in zip(first, other, strict=True))
    assert_same(first, again, 0, 0)
