"""Batch normalization's training in a plain network, whose kernels are kept by slow averages.

The parameters are batch normalization's: per layer a kernel V, scales γ and biases β. With slow
averages μ and σ² of the units' V x, the network has the kernels γ V / σ and the biases β - γ μ / σ.
Its forward pass is a plain network's: no statistics, and examples never interact. γ stands behind
the product here, so that it has a gradient where it is 0; `folded` multiplies it into the kernels.

With ŷ = (V x - μ) / σ and δ its gradient, batch normalization replaces δ by `projected` δ:
δ - mean(δ) - ŷ mean(δ ŷ), the part of δ that does not move the unit's mean and variance.

- "full": the layer's kernel and the layers below get the projected δ.
- "own": the layer's kernel gets the projected δ, the layers below get δ.

The means of `projected` are over the examples of a step. If μ and σ² are those of the same
examples, "full" is batch normalization to rounding.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from examples.keeping.networks import Kind, Network, Params, along, passed, product

EPSILON = 1e-5
stop = jax.lax.stop_gradient


class Settings(NamedTuple):
    """Options of the method.

    Attributes:
        backward: "full" or "own".
        exact: whether `projected` uses ŷ standardized by the step's own examples; with ŷ of slow
            averages it is no projection, and a component whose variance is above 2 grows.
        predicted: whether the averages move with the kernels by a first-order prediction.
    """

    backward: str = "full"
    exact: bool = True
    predicted: bool = False


class Moments(NamedTuple):
    """Mean and variance of a layer's V x per unit, and their derivatives by V if predicted."""

    mean: jax.Array
    var: jax.Array
    slope_mean: Any = None
    slope_var: Any = None


def over_examples(y: jax.Array) -> jax.Array:
    """Returns means over examples and positions."""
    return y.mean(tuple(range(y.ndim - 1)), keepdims=True)


@jax.custom_vjp
def projected(y: jax.Array, direction: jax.Array) -> jax.Array:
    """Returns ``y``; its derivative takes mean and ``direction`` out of the gradient."""
    del direction
    return y


def _backward(direction: jax.Array, delta: jax.Array) -> tuple[jax.Array, None]:
    moment = over_examples(delta * direction)
    return delta - over_examples(delta) - direction * moment, None


projected.defvjp(lambda y, direction: (y, direction), _backward)


def standardized(y: jax.Array, epsilon: jax.Array) -> jax.Array:
    """Returns ``y`` with mean 0 and variance 1 over examples, without a gradient."""
    centered = stop(y - over_examples(y))
    return centered * jax.lax.rsqrt(over_examples(centered**2) + epsilon)


def forward(
    network: Network, params: Params, averages: dict[str, Moments], x: jax.Array, s: Settings
) -> tuple[jax.Array, dict[str, Moments]]:
    """Returns the logits, and the moments of these examples by layer."""
    return passed(network, params, averages, x, (kept, moments), s)


def kept(kernel: jax.Array, average: Moments, x: jax.Array, kind: Kind, s: Settings) -> jax.Array:
    """Returns ŷ of one layer, with the method's backward pass."""
    std = jnp.sqrt(average.var + EPSILON)

    def of(x: jax.Array, kernel: jax.Array) -> jax.Array:
        y = product(x, kernel / along(std, kernel), kind)
        return y - along(average.mean / std, y)

    def with_projection(y: jax.Array) -> jax.Array:
        epsilon = along(EPSILON / std**2, y)
        return projected(y, standardized(y, epsilon) if s.exact else stop(y))

    if s.backward == "full":
        return with_projection(of(x, kernel))
    # The compiler computes the three equal products once.
    y = with_projection(of(stop(x), kernel)) + of(x, stop(kernel))
    return y - stop(of(x, kernel))


def moments(
    y: jax.Array, average: Moments, x: jax.Array, kernel: jax.Array, kind: Kind, s: Settings
) -> Moments:
    """Returns the moments of V x from ŷ, with their slopes where they are predicted."""
    std, mean = jnp.sqrt(average.var + EPSILON), over_examples(y)
    var = over_examples((y - mean) ** 2)
    found = Moments(average.mean + std * mean.ravel(), std**2 * var.ravel())
    if not s.predicted:
        return found
    share = jnp.full_like(y, y.shape[-1] / y.size)
    pull = jax.vjp(lambda kernel: product(x, kernel, kind), kernel)[1]
    slopes = pull(share)[0], pull(2 * share * (y - mean) * along(std, y))[0]
    return found._replace(slope_mean=slopes[0], slope_var=slopes[1])


def moved(average: Moments, found: Moments, old: Any, new: Any, decay: Any) -> Moments:
    """Returns the averages after a step that took a layer's parameters from ``old`` to ``new``."""
    mean, var = (decay * a + (1 - decay) * b for a, b in zip(average[:2], found[:2], strict=True))
    if found.slope_mean is None:
        return Moments(mean, var)
    update = new["kernel"] - old["kernel"]
    mean = mean + (found.slope_mean * update).sum((0, 1, 2))
    # A first-order prediction may pass 0: a step takes at most three quarters of a variance.
    return Moments(mean, jnp.maximum(var + (found.slope_var * update).sum((0, 1, 2)), var / 4))


def folded(params: Params, averages: dict[str, Moments]) -> Params:
    """Returns the kernels and biases of the plain network."""
    result = dict(params)
    for name, average in averages.items():
        kernel, bias, scale = (params[name][part] for part in ("kernel", "bias", "scale"))
        factor = scale * jax.lax.rsqrt(average.var + EPSILON)
        bias = bias - factor * average.mean
        result[name] = {"kernel": kernel * along(factor, kernel), "bias": bias}
    return result
