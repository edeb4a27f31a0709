"""Findings about a run at chance, in its outcome and in the table's note."""

import math

import jax
import jax.numpy as jnp
import pytest
from jaxtyping import PyTree

from experiments.compare import UNTRAINED, failure_lines
from experiments.config import Config
from experiments.methods.table import METHODS
from experiments.runs.comparison import Comparison
from experiments.runs.store import Store
from experiments.training.chance import explained
from experiments.training.history import NoCheckpoints
from experiments.training.run import AT_CHANCE, NOTHING_FOUND, Epoch, Run
from experiments.training.trainer import Trainer, make_trainer
from tests.experiments.toy import save_toy, start, toy_dataset, toy_trainer

#: The loss of a constant guess among three classes.
GUESS = math.log(3)


def entry(number: int, loss: float, accuracy: float = 0.33) -> Epoch:
    return Epoch(number, loss, accuracy, loss, accuracy)


def looked_at(params: PyTree, *curve: Epoch, trainer: Trainer | None = None) -> str:
    """Returns the outcome of a run at chance that ends with those parameters."""
    trainer = trainer or toy_trainer("none")
    state = start(trainer, 0)._replace(params=params)
    curve = curve or (entry(1, GUESS),)
    run = Run(trainer.method.name, 0, list(curve), 1.0, 10, state, AT_CHANCE)
    return explained(run, trainer, toy_dataset()).outcome


def edited(path: str, change: object, params: PyTree | None = None) -> PyTree:
    """Returns the initial parameters with the leaves changed whose path contains ``path``."""

    def at(where: object, leaf: jax.Array) -> jax.Array:
        name = jax.tree_util.keystr(where, simple=True, separator="/")
        return change(leaf) if path in name else leaf

    initial = start(toy_trainer("none"), 0).params if params is None else params
    return jax.tree_util.tree_map_with_path(at, initial)


def moved() -> PyTree:
    """Returns parameters at some distance from the initial ones, of a network with nothing off."""
    return edited("kernel", lambda kernel: kernel * 1.1)


@pytest.mark.slow
def test_rectifiers_that_are_always_off_are_dormant() -> None:
    some = edited("blocks/1/linear/bias", lambda bias: bias.at[:6].add(-1e3))
    said = looked_at(some)
    assert said.startswith("at chance, ")
    assert "75% of the units of blocks/1/linear/kernel are dormant" in said
    assert "does not depend" not in said


def test_a_network_whose_rectifiers_are_all_off_does_not_depend_on_its_input() -> None:
    off = edited("blocks/1/linear/bias", lambda bias: bias - 1e3)
    said = looked_at(off)
    assert "its output does not depend on its input" in said
    assert "100% of the units of blocks/" in said


def test_a_layer_of_constant_output_is_named() -> None:
    said = looked_at(edited("blocks/1/linear/kernel", jnp.zeros_like))
    assert "the output of blocks/1/linear/kernel is the same in all rows" in said
    said = looked_at(edited("head/kernel", jnp.zeros_like))
    assert "the output of head/kernel is the same in all rows" in said


def test_numbers_that_are_not_finite_are_all_that_is_said() -> None:
    said = looked_at(edited("head/bias", lambda bias: bias * jnp.nan))
    assert said == "at chance, its parameters are not finite"
    trainer = toy_trainer("bn")
    state = start(trainer, 0)
    state = state._replace(model_state=jax.tree.map(lambda x: x - jnp.inf, state.model_state))
    run = Run("bn", 0, [entry(1, GUESS)], 1.0, 10, state, AT_CHANCE)
    found = explained(run, trainer, toy_dataset()).outcome
    assert found == "at chance, its output in evaluation is not finite"


@pytest.mark.parametrize(
    ("change", "losses", "words"),
    [
        (1.1, (5.0, 9.0), "the loss rose from"),
        (1.1, (0.5, GUESS), "the loss had fallen to 0.5 in epoch 1"),
        (9.0, (GUESS, GUESS), "its weights moved by 8 times their initial size"),
    ],
)
def test_a_rate_that_is_too_high(change: float, losses: tuple[float, ...], words: str) -> None:
    params = jax.tree.map(lambda leaf: leaf * change, start(toy_trainer("none"), 0).params)
    curve = [entry(n, loss, 0.9 if loss < 1 else 0.33) for n, loss in enumerate(losses, 1)]
    said = looked_at(params, *curve)
    assert words in said
    assert "the learning rate, 0.05, is too high" in said


def test_a_rate_that_is_too_low() -> None:
    said = looked_at(start(toy_trainer("none"), 0).params)
    assert "its weights moved by 0.0%: the learning rate, 0.05, is too low" in said


def test_a_network_with_nothing_off_is_said_to_have_nothing() -> None:
    assert looked_at(moved()) == f"at chance, {NOTHING_FOUND}"


@pytest.mark.slow
def test_batch_normalization_of_one_row_is_constant_in_training_alone() -> None:
    config = Config(depth=2, width=8, epochs=1, batch_size=1, train_rows=20)
    trainer = make_trainer(METHODS["bn"], config, toy_dataset())
    params = jax.tree.map(lambda leaf: leaf * 1.1, start(trainer, 0).params)
    said = looked_at(params, trainer=trainer)
    assert "in training, in batches of 1, its output does not depend on its input" in said


def test_other_runs_stay_as_they_are() -> None:
    trainer = toy_trainer("none")
    for outcome, state in (("", start(trainer, 0)), ("diverged", None), (AT_CHANCE, None)):
        run = Run("none", 0, [entry(1, GUESS)], 1.0, 10, state, outcome)
        assert explained(run, trainer, toy_dataset()) == run


@pytest.mark.slow
def test_a_kept_run_shows_what_was_found(tmp_path) -> None:
    """Such a rate trains nothing; another program reads what was found from the store."""
    config = Config(dataset=save_toy(tmp_path), model="mlp", depth=1, width=4, epochs=1)
    comparison = Comparison(config.changed(learning_rate=1e-12, batch_size=16))
    (spec,) = comparison.specs([("none", (), 0)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("experiments.training.fit.outcome", lambda *_: AT_CHANCE)
        run = comparison.trained(spec, NoCheckpoints())
    assert "the learning rate, 1e-12, is too low" in run.outcome
    assert run.failure == AT_CHANCE
    store = Store(tmp_path)
    store.add(spec, run._replace(state=None))
    (kept,) = Store(tmp_path).finished([spec]).values()
    assert kept.outcome == run.outcome


def test_the_note_names_what_was_found_and_advises_only_without_it() -> None:
    runs = [
        Run("gn", 0, [entry(1, GUESS)], 1.0, 10, None, f"{AT_CHANCE}, its parameters are odd"),
        Run("ln", 1, [entry(1, GUESS)], 1.0, 10, None, f"{AT_CHANCE}, {NOTHING_FOUND}"),
    ]
    assert failure_lines(runs[:1]) == ["gn, seed 0: at chance, its parameters are odd."]
    assert failure_lines(runs)[1:] == [f"ln, seed 1: at chance, {NOTHING_FOUND}.", UNTRAINED]
    earlier = [runs[0]._replace(outcome=AT_CHANCE)]
    assert failure_lines(earlier) == ["gn, seed 0: at chance.", UNTRAINED]
