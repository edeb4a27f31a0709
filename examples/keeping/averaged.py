"""Kernels kept by slow averages, with backward statistics that are averages over updates as well.

With few rows the means of δ and of δ ŷ over a batch are noise. Here the parts of batch
normalization's backward pass are chosen one by one:

- the layer's own kernel gets δ - mean(δ) - ŷ mean(δ ŷ) of the step's examples ("batch"), or,
  without any statistic of the step ("slow"), its plain gradient by inputs whose mean is taken
  out, in the tangent of the sphere on which V lies;
- the layers below get δ ("plain") or δ - a - ŷ s with averages a and s of mean(δ) and
  mean(δ ŷ) ("averaged");
- with zero sums (MABN: Yan et al. 2020) the sum over the fan-in is taken out of V, and all get
  δ - ŷ s, where ŷ is V x over the root of a slow second moment.

If the averages forget at once and the forward statistics are those of the step's own examples,
"batch" with "averaged" is batch normalization, and zero sums are division by the root mean square.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from examples.keeping.networks import Kind, Network, Params, along, normalized, passed, product
from examples.keeping.reference import EPSILON, over_examples, projected, standardized, stop


class Averaged(NamedTuple):
    """Options of the method.

    Attributes:
        own: "batch" or "slow".
        below: "plain" or "averaged".
        zero_sums: whether V has zero sums, and second moments replace variances.
        decay: of the backward averages; they are means of all updates while those are fewer.
    """

    own: str = "batch"
    below: str = "averaged"
    zero_sums: bool = False
    decay: float = 0.99


class Slow(NamedTuple):
    """Averages of one layer.

    Attributes:
        mean: of V x, per unit; 0 with zero sums.
        var: of V x, per unit; the second moment with zero sums.
        inputs: mean of what each entry of V reads, in the shape of V.
        delta: mean of δ, per unit.
        delta_y: mean of δ ŷ, per unit.
        age: number of updates.
    """

    mean: jax.Array
    var: jax.Array
    inputs: jax.Array
    delta: jax.Array
    delta_y: jax.Array
    age: jax.Array


@partial(jax.custom_vjp, nondiff_argnums=(4,))
def averaged(
    y: jax.Array, delta: jax.Array, delta_y: jax.Array, share: jax.Array, both: bool
) -> jax.Array:
    """Returns ``y``; its derivative takes averages out, and returns them as those of the averages.

    ``share`` is what this step has in the averages; without ``both`` that of δ is 0.
    """
    del delta, delta_y, share, both
    return y


def _backward(both: bool, kept: tuple[jax.Array, ...], d: jax.Array) -> tuple[Any, ...]:
    y, delta, delta_y, share = kept
    delta = (1 - share) * delta + share * over_examples(d).ravel() if both else 0 * delta
    delta_y = (1 - share) * delta_y + share * over_examples(d * y).ravel()
    return d - along(delta, d) - y * along(delta_y, d), delta, delta_y, None


averaged.defvjp(lambda y, *averages_and_both: (y, (y, *averages_and_both[:3])), _backward)


def centered(kernel: jax.Array) -> jax.Array:
    """Returns the kernel with zero sums over each unit's fan-in."""
    return kernel - kernel.mean((0, 1, 2), keepdims=True)


def tangent(kernel: jax.Array) -> jax.Array:
    """Returns the kernel; its gradient loses the part along each unit's kernel."""
    length = jnp.sqrt((kernel**2).sum((0, 1, 2), keepdims=True)) + 1e-12
    return kernel * stop(length) / length


def forward(
    network: Network, params: Params, averages: dict[str, Slow], x: jax.Array, s: Averaged
) -> tuple[jax.Array, dict[str, Slow]]:
    """Returns the logits, and the forward moments of these examples by layer.

    The gradient by ``averages`` has their new backward averages.
    """
    return passed(network, params, averages, x, (kept, moments), s)


def kept(kernel: jax.Array, average: Slow, x: jax.Array, kind: Kind, s: Averaged) -> jax.Array:
    """Returns ŷ of one layer, with the method's backward pass."""
    std = stop(jnp.sqrt(average.var + EPSILON))
    share = stop(jnp.maximum(1 - s.decay, 1 / (average.age + 1)))

    def of(x: jax.Array, kernel: jax.Array) -> jax.Array:
        y = product(x, kernel / along(std, kernel), kind)
        return y - along(stop(average.mean) / std, y)

    def below(y: jax.Array, both: bool) -> jax.Array:
        return averaged(y, average.delta, average.delta_y, share, both)

    if s.zero_sums:
        return below(of(x, centered(kernel)), False)
    down = of(x, stop(kernel))
    down = below(down, True) if s.below == "averaged" else down
    if s.own == "batch":
        own = of(stop(x), kernel)
        own = projected(own, standardized(own, along(EPSILON / std**2, own)))
    else:
        turned = tangent(kernel) / along(std, kernel)
        shift = (stop(average.inputs) * turned).sum((0, 1, 2))
        own = product(stop(x), turned, kind)
        own = own - along(shift, own)
    return down + own - stop(own)


def moments(
    y: jax.Array, average: Slow, x: jax.Array, kernel: jax.Array, kind: Kind, s: Averaged
) -> Slow:
    """Returns the forward moments of these examples; the backward averages as they are."""
    std, mean = jnp.sqrt(average.var + EPSILON), over_examples(y)
    if s.zero_sums:
        return average._replace(var=std**2 * over_examples(y**2).ravel())
    share = jnp.full_like(y, y.shape[-1] / y.size)
    inputs = jax.vjp(lambda kernel: product(x, kernel, kind), kernel)[1](share)[0]
    var = std**2 * over_examples((y - mean) ** 2).ravel()
    return average._replace(mean=average.mean + std * mean.ravel(), var=var, inputs=inputs)


def started(network: Network, params: Params, x: jax.Array, s: Averaged) -> dict[str, Slow]:
    """Returns averages that have seen no update: the moments of these examples, layer by layer."""
    averages = {}

    def standardize(name: str, x: jax.Array, kind: Kind) -> jax.Array:
        kernel = params[name]["kernel"]
        kernel = centered(kernel) if s.zero_sums else kernel
        y = product(x, kernel, kind)
        zero, one = jnp.zeros(y.shape[-1], y.dtype), jnp.ones(y.shape[-1], y.dtype)
        raw = Slow(zero, one - EPSILON, 0 * kernel, zero, zero, jnp.zeros((), y.dtype))
        average = averages[name] = moments(y, raw, x, kernel, kind, s)
        return (y - along(average.mean, y)) * jax.lax.rsqrt(along(average.var, y) + EPSILON)

    normalized(network, params, standardize, x)
    return averages


def moved(average: Slow, found: Slow, pulled: Slow, decay: jax.Array) -> Slow:
    """Returns the averages after an update; ``pulled`` is the gradient by them."""
    mixed = (decay * a + (1 - decay) * b for a, b in zip(average[:3], found[:3], strict=True))
    return Slow(*mixed, pulled.delta, pulled.delta_y, average.age + 1)
