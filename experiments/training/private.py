"""Differentially private training: gradients of single rows, clipped, summed, and noisy."""

from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import PyTree

from experiments.config import Config
from experiments.errors import UserError, library
from experiments.methods.method import Method
from experiments.methods.normalizer_free import NormalizerFree
from experiments.methods.part import Context, Optimizer
from experiments.methods.reparametrized import Initialized
from experiments.training.devices import Placement
from experiments.training.state import Batch, Metrics, TrainState

#: The largest norm of the gradient of a row.
LARGEST_NORM = 1.0


def per_row(measure: Any) -> Any:
    """Maps ``measure`` over single rows: stacked gradients, and the mean metrics.

    Args:
        measure: ``(state, batch) -> (model state, (gradient, metrics))``, of a model without state
            beside its parameters.
    """

    def each(state: TrainState, batch: Batch) -> tuple[PyTree, tuple[PyTree, Metrics]]:
        rows = jax.tree.map(lambda x: x[:, None], batch)
        _, (gradients, metrics) = jax.vmap(measure, in_axes=(None, 0))(state, rows)
        return state.model_state, (gradients, jax.tree.map(jnp.mean, metrics))

    return each


def private_optimizer(
    optimizer: Optimizer, epsilon: float, share: float, steps: int, rows: int, seed: Any
) -> Optimizer:
    """Makes an optimizer of the gradients of single rows (Abadi et al. 2016, algorithm 1).

    Each gradient is clipped, and their mean gets Gaussian noise. Later transformations by
    ``optimizer``, projections included, cost no privacy.

    Args:
        optimizer: the optimizer of the noisy mean.
        epsilon: the privacy budget of the whole training.
        share: the share of the training rows in a batch.
        steps: the steps of the whole training.
        rows: the number of training rows; delta is 0.1 / rows.
        seed: the seed of the noise.
    """
    noise = noise_multiplier(epsilon, 0.1 / rows, share, steps)
    private = optax.contrib.differentially_private_aggregate(
        LARGEST_NORM, noise, jax.random.key(seed)
    )
    return optax.chain(private, optimizer)


@lru_cache
def noise_multiplier(epsilon: float, delta: float, share: float, steps: int) -> float:
    """Returns the least noise for (epsilon, delta): its deviation over the clipping norm.

    Privacy is accounted for by Rényi divergences. As is usual, the accountant assumes that each
    batch draws rows independently (Poisson), although batches are parts of a random order. The
    moments that standardize inputs count as public.
    """
    dp = library("dp_accounting", "--epsilon", "private", "other training needs nothing")
    rdp = library("dp_accounting.rdp", "--epsilon", "private", "other training needs nothing")

    def training(noise: float) -> Any:
        step = dp.PoissonSampledDpEvent(share, dp.GaussianDpEvent(noise))
        return dp.SelfComposedDpEvent(step, steps)

    accountant = partial(rdp.RdpAccountant, range(2, 256))
    return float(dp.calibrate_dp_mechanism(accountant, training, epsilon, delta))


def check_private(method: Method, context: Context, config: Config, placement: Placement) -> None:
    """Raises UserError for a method or setting in which a row affects more than its gradient.

    Batch normalization and its relatives let the output of each row depend on other rows, so that
    they have no gradient of a single row.

    """
    if config.epsilon is None:
        return
    parts = method.parts
    if jax.tree.leaves(context.functional.state):
        why = "its network keeps statistics, or draws, beside its parameters"
    elif any(part.rows_per_group or part.refresh_every for part in parts):
        why = "it depends on several rows at once"
    elif method.get(Initialized) is not None or method.get(NormalizerFree) is not None:
        why = "its initialization is fitted to training rows"
    elif placement.axis_name is not None or config.accumulate > 1:
        raise UserError("--epsilon goes with --parallel jit, and without --accumulate.")
    else:
        return
    raise UserError(
        f"--epsilon is differentially private training, of the gradients of single rows, and "
        f"{method.name} cannot be trained so: {why}. Wanted a method without dependence between "
        "rows, such as none, gn, ln, cwo or normprop."
    )
