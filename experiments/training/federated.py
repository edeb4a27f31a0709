"""Federated averaging: clients with few classes train separately, then average their weights."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key, PyTree, Shaped, UInt

from experiments.data.dataset import Dataset
from experiments.errors import UserError
from experiments.training.epoch import EpochPlan, Scanned, batch_of, batch_order, make_epoch
from experiments.training.state import AnyArray, Batch, StepMetrics, TrainState, is_key, run_keys

#: The pieces of the rows sorted by label that each client gets.
PIECES = 2


class Federated(Scanned):
    """A runner that trains every client for an epoch from the same state, and averages the states.

    Args:
        plan: the plan of a client's epoch.
        project: puts averaged raw parameters back on the method's set.
        clients: the number of clients.
    """

    def __init__(self, plan: EpochPlan, project: Callable[[PyTree], PyTree], clients: int):
        super().__init__(plan, make_round(plan, project, clients))
        self._clients = clients

    def batch(self, state: TrainState, X: AnyArray, y: AnyArray, index: int) -> Batch:
        """Returns the rows of all clients at that step."""
        rows = shares(jnp.asarray(y), self._clients, state.seed)
        order = batch_order(state, rows.shape[1], self._plan.batch_size)
        taken = rows[:, order[index]].ravel()
        batch = jax.jit(partial(batch_of, augment=self._plan.augment))
        return batch(state, X[taken], y[taken], np.int32(index))


def make_round(
    plan: EpochPlan, project: Callable[[PyTree], PyTree], clients: int
) -> Callable[[TrainState, Array, Array], tuple[TrainState, StepMetrics]]:
    """Makes a round ``(state, X, y) -> (state, mean metrics)`` of federated averaging.

    Source: McMahan et al. 2017, algorithm 1, with all clients in every round. Momentum and running
    statistics are averaged too.
    """
    epoch = make_epoch(plan)

    def round_of_all(state: TrainState, X: Array, y: Array) -> tuple[TrainState, StepMetrics]:
        rows = shares(y, clients, state.seed)
        states, metrics = jax.vmap(epoch, in_axes=(None, 0, 0))(state, X[rows], y[rows])
        state = jax.tree.map(_mean, states)
        return state._replace(params=project(state.params)), jax.tree.map(jnp.mean, metrics)

    return round_of_all


def shares(
    labels: Int[Array, " rows"], clients: int, seed: UInt[Array, ""]
) -> Int[Array, "clients share"]:
    """Returns the rows of each client: two pieces of the rows sorted by label.

    So most clients have two classes. Rows that fill no whole piece belong to no client.
    """
    size = len(labels) // (PIECES * clients)
    key = jax.random.fold_in(run_keys(seed)[1], clients)
    pieces = jnp.argsort(labels)[: PIECES * clients * size].reshape(-1, size)
    return jax.random.permutation(key, pieces).reshape(clients, -1)


def rows_per_client(dataset: Dataset, clients: int) -> int:
    """Returns the number of training rows of each client."""
    if dataset.stream or dataset.y_train.ndim > 1:
        raise UserError("--clients needs rows in memory, each with one label.")
    rows = PIECES * (dataset.train_rows // (PIECES * clients))
    if not rows:
        raise UserError(
            f"--clients is {clients}, and {dataset.name} has {dataset.train_rows} training rows, "
            f"{PIECES} of which a client needs; wanted at most {dataset.train_rows // PIECES}."
        )
    return rows


def _mean(leaf: Shaped[Array, "clients *shape"] | Key[Array, "clients *shape"]) -> Array:
    """Averages floating-point numbers over clients; counts and keys are equal on all."""
    floating = not is_key(leaf) and jnp.issubdtype(leaf.dtype, jnp.floating)
    return leaf.mean(0) if floating else leaf[0]
