"""A linear unit under the variance constancy loss alone, on a mixture of two Gaussians."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from jaxnorm import initial_betas, positive_betas, variance_constancy_loss


class Mixture(NamedTuple):
    """Settings: two dimensions, the means apart along the first, both covariances 1.

    Attributes:
        separation: the distance of the means.
        sample_size: n, the size of each subset.
        groups: independent pairs of subsets per step.
        steps: steps of Adam, whose rate decays as a cosine.
        learning_rate: the rate at the first step.
        start: the norm of the first weights; beta starts at 1.
    """

    separation: float = 6.0
    sample_size: int = 50
    groups: int = 64
    steps: int = 5000
    learning_rate: float = 1e-2
    start: float | Float[Array, ""] = 1.0


class Unit(NamedTuple):
    """A trained unit.

    Attributes:
        weights: the weights after training.
        beta: beta after training.
        cosine: |cos| of the weights and the difference of the means, after each step.
    """

    weights: Float[Array, "... 2"]
    beta: Float[Array, "..."]
    cosine: Float[Array, "... steps"]


def mixture_samples(
    key: Array, p: float | Float[Array, ""], separation: float, size: int
) -> Float[Array, "size 2"]:
    """Draws samples of the mixture, from the right component with probability p."""
    noise, component = jax.random.split(key)
    right = jax.random.bernoulli(component, p, (size,))
    shift = jnp.where(right, separation / 2, -separation / 2)
    return jax.random.normal(noise, (size, 2)) + jnp.stack([shift, jnp.zeros(size)], 1)


def train_unit(
    key: Array, p: float | Float[Array, ""], angle: float | Float[Array, ""], setting: Mixture
) -> Unit:
    """Trains the unit from weights at an angle, in radians, to the means' difference."""
    first = setting.start * jnp.stack([jnp.cos(angle), jnp.sin(angle)])
    params = {"weights": first, "beta": initial_betas(jnp.zeros((2, 1)))}
    schedule = optax.cosine_decay_schedule(setting.learning_rate, setting.steps)
    optimizer = optax.adam(schedule)
    n, groups = setting.sample_size, setting.groups

    def loss(params: dict[str, Array], x: Float[Array, "rows 2"]) -> Float[Array, ""]:
        activations = (x @ params["weights"])[:, None]
        betas = positive_betas(params["beta"])
        return variance_constancy_loss(activations, betas, n, groups=groups)

    def step(state: Any, key: Array) -> Any:
        params, moments = state
        x = mixture_samples(key, p, setting.separation, 2 * n * groups)
        updates, moments = optimizer.update(jax.grad(loss)(params, x), moments)
        params = optax.apply_updates(params, updates)
        weights = params["weights"]
        return (params, moments), jnp.abs(weights[0]) / jnp.linalg.norm(weights)

    keys = jax.random.split(key, setting.steps)
    (params, _), cosine = jax.lax.scan(step, (params, optimizer.init(params)), keys)
    return Unit(params["weights"], positive_betas(params["beta"])[0], cosine)
