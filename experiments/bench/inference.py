"""The forward pass of a trained network: its weights made in each call, at hand, or folded."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from flax import nnx
from jaxtyping import Array

from experiments.bench.step import BASELINE, CONTROL, config_of, random_batch, trainer_of
from experiments.bench.table import Measured
from experiments.bench.timing import Compiled, costs_in_turn
from experiments.methods.method import Method
from experiments.methods.paths import by_path
from experiments.methods.table import METHODS, find_methods
from experiments.training.evaluate import evaluated_weights
from experiments.training.state import Batch
from jaxnorm.nnx import BatchNorm, fold_batch_norm, functionalize

COLUMNS = ("network", "ms", "ratio", "ratio_low", "ratio_high", "gflops", "gbytes")


def bench_inference(flags: Any) -> Measured:
    """Forward passes in evaluation: weights made in each call, at hand, or BN folded into them."""
    batch = random_batch(flags.batch_size, flags.model)
    subjects = dict(_subjects(BASELINE, METHODS[BASELINE], flags, batch))
    subjects[CONTROL] = subjects[BASELINE]
    for method in find_methods(flags.methods):
        subjects |= dict(_subjects(method.name, method, flags, batch))
    rows = costs_in_turn(subjects, BASELINE, flags.repeats)
    return Measured(COLUMNS, rows, f"{flags.model}, {flags.batch_size} rows.")


def _subjects(
    name: str, method: Method, flags: Any, batch: Batch
) -> Iterator[tuple[str, Compiled]]:
    """A method's network as it was trained, and in the forms that one would deploy."""
    trainer = trainer_of(method, config_of(flags), batch)
    X, state = batch.X, trainer.init(np.uint32(0), np.asarray(batch.X))
    network = trainer.network(jax.random.key(0))
    apply = functionalize(network).apply

    def trained(state: Any, X: Array) -> Array:
        weights = evaluated_weights(method, state)
        return apply(weights, state.model_state, X, train=False)[0]

    yield name, _compiled(trained, state, X)
    weights = jax.jit(lambda state: evaluated_weights(method, state))(state)
    if by_path(weights).keys() != by_path(state.params).keys():
        at_hand = lambda weights, X: apply(weights, state.model_state, X, train=False)[0]  # noqa: E731
        yield f"{name}, weights at hand", _compiled(at_hand, weights, X)
    if any(isinstance(each, (nnx.BatchNorm, BatchNorm)) for _, each in nnx.iter_modules(network)):
        folded = functionalize(fold_batch_norm(network, X).model)
        forward = lambda params, X: folded.apply(params, folded.state, X, train=False)[0]  # noqa: E731
        yield f"{name}, folded", _compiled(forward, folded.params, X)


def _compiled(forward: Callable[..., Array], *arguments: Any) -> Compiled:
    return jax.jit(forward).lower(*arguments).compile(), arguments
