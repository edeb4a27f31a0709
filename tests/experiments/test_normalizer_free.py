"""The method normalizer-free: the library's call, its means, and where it applies."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import jaxnorm as jn
from experiments.config import Config
from experiments.errors import UserError
from experiments.methods.optimizer import Rates
from experiments.methods.own_network import QuietBranches, of_own_network
from experiments.methods.table import METHODS
from experiments.training.state import TrainState
from experiments.training.trainer import Trainer, make_trainer
from jaxnorm.nnx import functionalize
from tests.experiments.parallel import (
    DATA,
    assert_same,
    batches,
    placement,
    put,
    trainer,
    with_keys,
)
from tests.trees import quick_jit

NAME = "normalizer-free"
OWN = Path(__file__).parent / "own_network.py"
RATE = 0.05

pytestmark = pytest.mark.usefixtures("standard_promotion")


@pytest.fixture(scope="module")
def one() -> Trainer:
    return trainer(NAME, placement("jit", 1), learning_rate=RATE)


@pytest.fixture(scope="module")
def start(one: Trainer) -> TrainState:
    with jax.numpy_dtype_promotion("standard"):
        return one.init(np.uint32(3), DATA.X_train)


def trained(which: Trainer, where, start: TrainState) -> TrainState:
    step, own, state = quick_jit(which.step), where.own_rows(32), put(where, start)
    for X, y in zip(*batches(), strict=True):
        state, _ = step(state, with_keys(*where.feed((X[own], y[own]), 32)))
    return state


def test_three_steps_are_those_of_the_users_loop(one: Trainer, start: TrainState) -> None:
    """With momentum, which moves with the means of the inputs after each update."""
    apply, params, state = functionalize(one.network(jax.random.split(jax.random.key(3), 4)[0]))

    def logits(params, x):
        return apply(params, state, x, train=True)[0]

    steps = 2 * (len(DATA.X_train) // 32)
    rates = optax.cosine_decay_schedule(RATE, steps)
    decay = optax.add_decayed_weights(1e-3, mask=lambda p: jax.tree.map(lambda x: x.ndim > 1, p))
    sgd = optax.chain(decay, optax.sgd(lambda count: rates(count * 1.0), momentum=0.9))
    raw, tx = jn.normalizer_free(logits, params, sgd, DATA.X_train)
    opt_state = tx.init(raw)
    first = jax.tree.leaves(opt_state)

    @quick_jit
    def step(raw, opt_state, x, y):
        def loss(raw):
            return optax.softmax_cross_entropy_with_integer_labels(logits(raw, x), y).mean()

        updates, opt_state = tx.update(jax.grad(loss)(raw), opt_state, raw)
        raw = optax.apply_updates(raw, updates)
        return raw, jn.refresh_input_means(jn.read(logits, raw, x), opt_state)

    assert_same(start.params, raw)
    for x, y in zip(*batches(), strict=True):
        raw, opt_state = step(raw, opt_state, x, y)
    state = trained(one, placement("jit", 1), start)
    assert_same(state.params, raw)
    # The experiments' optimizer has its rate and decay in its state, too.
    is_rates = lambda entry: isinstance(entry, Rates)  # noqa: E731
    entries = jax.tree.leaves(state.optimizer_state, is_leaf=is_rates)
    assert_same([entry for entry in entries if not is_rates(entry)], jax.tree.leaves(opt_state))
    moved = zip(first, jax.tree.leaves(opt_state), strict=True)
    assert not any(np.array_equal(a, b) for a, b in moved)


def test_the_start_is_fitted_to_training_rows(one: Trainer, start: TrainState) -> None:
    def logits(params, x):
        return one.context.functional.apply(params, start.model_state, x, train=True)[0]

    _, found = jn.collect_preactivations(jn.read(logits, start.params, jnp.asarray(DATA.X_train)))
    hidden = [np.asarray(layer, np.float64) for path, layer in found.items() if "head" not in path]
    assert len(hidden) == 2
    for layer in hidden:
        np.testing.assert_allclose(layer.mean(0), 0, atol=1e-4)
        np.testing.assert_allclose(layer.std(0), 1, rtol=1e-3)


@pytest.mark.kept("jit")
@pytest.mark.parametrize("entry", ["jit", "shard_map", "pmap"])
def test_devices_that_share_a_batch_train_the_same(
    entry: str, one: Trainer, start: TrainState
) -> None:
    """Each device's rows have means of their own, which are averaged."""
    where = placement(entry, 4)
    spread = trained(trainer(NAME, where, learning_rate=RATE), where, start)
    assert_same(spread.params, trained(one, placement("jit", 1), start).params)


@pytest.mark.slow
def test_the_call_quietens_the_branches_of_a_network_of_the_users_own_itself() -> None:
    config = Config(model=f"{OWN}:Residual", epochs=1, batch_size=16)
    kinds = [type(part) for part in of_own_network(METHODS[NAME], config).parts]
    assert QuietBranches not in kinds
    own = make_trainer(METHODS[NAME], config, DATA)
    assert not any(isinstance(m, nnx.BatchNorm) for _, m in nnx.iter_modules(own.context.model))
    raw = own.init(np.uint32(0), DATA.X_train).params

    def logits(params, x):
        return own.context.functional.apply(params, {}, x, train=True)[0]

    _, found = jn.collect_preactivations(jn.read(logits, raw, jnp.asarray(DATA.X_train)))
    stddevs = {path: float(jnp.mean(layer.std(0))) for path, layer in found.items()}
    assert stddevs["stem/kernel"] == pytest.approx(1, rel=1e-3)
    for block in (0, 1):
        assert stddevs[f"blocks/{block}/linear/kernel"] == pytest.approx(0.5**0.5, rel=1e-3)


@pytest.mark.slow
def test_constrain_head_takes_the_classifier_in() -> None:
    """The first kernel, which reads the rows' features, is never zero-sum."""
    for given, heads in ((False, 1), (True, 0)):
        made = trainer(NAME, placement("jit", 1), constrain_head=given)
        params = made.init(np.uint32(0), DATA.X_train).params
        sums = {
            path: float(jnp.abs(kernel.sum(0)).max())
            for path, kernel in jax.tree_util.tree_leaves_with_path(params)
            if kernel.ndim == 2
        }
        assert sum(value > 1e-3 for value in sums.values()) == heads + 1


def test_it_reads_rows_outside_of_gradients_and_so_is_not_private() -> None:
    with pytest.raises(UserError, match="fitted to training rows"):
        trainer(NAME, placement("jit", 1), epsilon=2.0)
