"""Federated averaging: the result of a round, the clients' rows, and the projection after it."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest

from experiments.errors import UserError
from experiments.methods.table import METHODS
from experiments.training.federated import shares
from experiments.training.trainer import make_trainer
from tests.experiments.parallel import assert_same
from tests.experiments.toy import SETTINGS, start, toy_dataset

CLIENTS = 5
OWN = 14  # Rows of a client: 70 over 5.


@functools.cache
def after_a_round(name, clients, batch_size):
    config = SETTINGS.changed(clients=clients, batch_size=batch_size, weight_decay=0.0)
    data, trainer = toy_dataset(), make_trainer(METHODS[name], config, toy_dataset())
    return trainer, trainer.epoch(start(trainer, 0), data.X_train, data.y_train)


@pytest.mark.slow
def test_with_one_step_each_a_round_is_a_step_on_all_rows():
    """The mean of clients' gradients is the gradient on all their rows (McMahan et al. 2017)."""
    _, (apart, _) = after_a_round("none", CLIENTS, OWN)
    _, (together, _) = after_a_round("none", None, CLIENTS * OWN)
    assert_same(apart.params, together.params, 1e-5, 1e-6)


@pytest.mark.slow
def test_averaged_kernels_are_projected():
    _, (state, _) = after_a_round("cwo", CLIENTS, 7)
    for block in state.params["blocks"].values():
        kernel = np.float64(block["linear"]["kernel"].kernel)
        np.testing.assert_allclose(kernel.sum(0), 0, atol=1e-5)
        np.testing.assert_allclose((kernel**2).sum(0), 2, rtol=1e-5)


def test_each_client_has_few_classes_and_no_row_is_anothers():
    labels = jnp.asarray(np.random.default_rng(0).permutation(np.repeat(np.arange(10), 33)))
    rows = np.asarray(shares(labels, 10, jnp.uint32(3)))
    assert rows.shape == (10, 32)
    assert len(np.unique(rows)) == rows.size
    assert max(len(np.unique(labels[own])) for own in rows) <= 4  # Two pieces of two at most.
    assert not np.array_equal(rows, shares(labels, 10, jnp.uint32(4)))


@pytest.mark.slow
def test_a_batch_is_the_rows_of_all_clients():
    trainer, (state, _) = after_a_round("none", CLIENTS, 7)
    batch = trainer.epoch.batch(state, *map(jnp.asarray, toy_dataset()[:2]), 0)
    assert batch.X.shape == (CLIENTS * 7, 6)


def test_tokens_have_no_clients():
    data = toy_dataset()
    many = data._replace(y_train=np.stack([data.y_train] * 2, axis=1))
    with pytest.raises(UserError, match="--clients"):
        make_trainer(METHODS["none"], SETTINGS.changed(clients=2), many)


def test_more_clients_than_rows_are_told_how_many_there_may_be():
    with pytest.raises(UserError, match=r"--clients is 36, and toy has 70 .* at most 35"):
        make_trainer(METHODS["none"], SETTINGS.changed(clients=36), toy_dataset())
