"""The loss of the rows that it reads, in a training step: that of the whole minibatch, in NumPy."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxnorm import exclude
from jaxnorm.losses import (
    collect_preactivations,
    initial_betas,
    positive_betas,
    total_variance_constancy,
)
from tests.losses.oracles import variance_constancy

SAMPLES, GROUPS, WEIGHT, SAMPLE_SIZE = 64, 8, 0.1, 2
LAYERS = ("first", "second")


def draw(seed: int, *shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


X, Y = draw(0, SAMPLES, 6), draw(1, SAMPLES, 2)


def start() -> dict[str, Any]:
    weights = {"first": draw(2, 6, 5) / 2, "second": draw(3, 5, 4) / 3, "head": draw(4, 4, 2) / 3}
    shapes = {"first": jnp.zeros((SAMPLES, 5)), "second": jnp.zeros((SAMPLES, 4))}
    return {"weights": weights, "betas": initial_betas(shapes)}


def network(weights: Any, x: Any) -> Any:
    for name in LAYERS:
        x = jax.nn.elu(x @ weights[name]["kernel"])
    return x @ weights["head"]["kernel"]


def objective(params: Any) -> jax.Array:
    """The mean squared error plus the loss of the rows that the loss's docstring takes."""
    weights = {name: {"kernel": kernel} for name, kernel in params["weights"].items()}
    shares = X.reshape(GROUPS, -1, X.shape[1])[:, : 2 * SAMPLE_SIZE]
    rows = shares.reshape(-1, X.shape[1])
    _, found = collect_preactivations(network, weights, rows, layout=exclude("^head/"))
    layers = {name: found[f"{name}/kernel"] for name in LAYERS}
    betas = positive_betas(params["betas"])
    loss = total_variance_constancy(layers, betas, SAMPLE_SIZE, groups=GROUPS)
    return jnp.square(network(weights, X) - Y).mean() + WEIGHT * loss


def of_numpy(params: Any) -> float:
    """The objective in float64, with the loss of the whole minibatch's pre-activations."""
    x, total = np.asarray(X, np.float64), 0.0
    for name in LAYERS:
        h = x @ params["weights"][name]
        beta = np.log1p(np.exp(params["betas"][name]))
        total += variance_constancy(h, beta, SAMPLE_SIZE, groups=GROUPS)
        x = np.where(h > 0, h, np.expm1(np.minimum(h, 0)))
    error = np.square(x @ params["weights"]["head"] - np.asarray(Y, np.float64)).mean()
    return float(error + WEIGHT * total)


def test_the_gradient_is_that_of_finite_differences_in_numpy() -> None:
    params = jax.tree.map(lambda p: np.array(p, np.float64), start())
    gradient = jax.jit(jax.grad(objective))(start())
    for array, got in zip(jax.tree.leaves(params), jax.tree.leaves(gradient), strict=True):
        for place in np.ndindex(array.shape):
            ends, kept = [], array[place]
            for step in (1e-5, -1e-5):
                array[place] = kept + step
                ends.append(of_numpy(params))
            array[place] = kept
            np.testing.assert_allclose(got[place], (ends[0] - ends[1]) / 2e-5, rtol=1e-4, atol=1e-5)
