"""Differentially private training: gradients of single rows, clipped, added up, and noisy."""

from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import PyTree

from experiments.config import Config
from experiments.errors import UserError
from experiments.extras import library
from experiments.methods.method import Method
from experiments.methods.part import Context, Optimizer
from experiments.methods.reparametrized import Initialized
from experiments.training.devices import Placement
from experiments.training.state import Batch, Metrics, TrainState

#: The largest norm of the gradient of a row.
LARGEST_NORM = 1.0


def of_single_rows(measure: Any) -> Any:
    """What ``measure`` finds of each row by itself: stacked gradients, and the mean metrics.

    Args:
        measure: ``(state, batch) -> (model state, (gradient, metrics))``, of a model that keeps
            nothing beside its parameters.
    """

    def each(state: TrainState, batch: Batch) -> tuple[PyTree, tuple[PyTree, Metrics]]:
        rows = jax.tree.map(lambda x: x[:, None], batch)
        _, (gradients, metrics) = jax.vmap(measure, in_axes=(None, 0))(state, rows)
        return state.model_state, (gradients, jax.tree.map(jnp.mean, metrics))

    return each


def private_optimizer(
    optimizer: Optimizer, epsilon: float, share: float, steps: int, rows: int, seed: Any
) -> Optimizer:
    """An optimizer of the gradients of single rows (Abadi et al. 2016, algorithm 1).

    Each gradient is clipped, and their mean gets Gaussian noise. Whatever ``optimizer`` makes of
    it, projections included, costs no privacy.

    Args:
        optimizer: of their mean.
        epsilon: of the whole training.
        share: of the training rows in a batch.
        steps: of the whole training.
        rows: for training; delta is a tenth of a row's share of them.
        seed: of the noise.
    """
    noise = noise_multiplier(epsilon, 0.1 / rows, share, steps)
    private = optax.contrib.differentially_private_aggregate(
        LARGEST_NORM, noise, jax.random.key(seed)
    )
    return optax.chain(private, optimizer)


@lru_cache
def noise_multiplier(epsilon: float, delta: float, share: float, steps: int) -> float:
    """The noise's standard deviation over the largest norm: the least for the privacy wanted.

    Accounted for by Rényi divergences, and as is usual as if each row were drawn on its own for
    each batch (Poisson), while batches are parts of a random order. The moments by which inputs
    are standardized count as public.
    """
    dp = library("dp_accounting", "--epsilon", "private", "other training needs nothing")
    rdp = library("dp_accounting.rdp", "--epsilon", "private", "other training needs nothing")

    def training(noise: float) -> Any:
        step = dp.PoissonSampledDpEvent(share, dp.GaussianDpEvent(noise))
        return dp.SelfComposedDpEvent(step, steps)

    accountant = partial(rdp.RdpAccountant, range(2, 256))
    return float(dp.calibrate_dp_mechanism(accountant, training, epsilon, delta))


def check_private(method: Method, context: Context, config: Config, placement: Placement) -> None:
    """Raises UserError for a method or a setting under which a row touches more than its gradient.

    Batch normalization and its relatives give each row an output that depends on the other rows,
    and a gradient of a row by itself is not theirs.
    """
    if config.epsilon is None:
        return
    parts = method.parts
    if jax.tree.leaves(context.functional.state):
        why = "its network keeps statistics, or draws, beside its parameters"
    elif any(part.rows_of_a_group or part.refresh_every for part in parts):
        why = "it looks at several rows at once"
    elif method.get(Initialized) is not None:
        why = "its initialization is fitted to training rows"
    elif placement.axis_name is not None or config.accumulate > 1:
        raise UserError("--epsilon goes with --parallel jit, and without --accumulate.")
    else:
        return
    raise UserError(
        f"--epsilon is differentially private training, of the gradients of single rows, and "
        f"{method.name} cannot be trained so: {why}. Wanted a method whose rows do not see each "
        "other, such as none, gn, ln, cwo or normprop."
    )
