"""Initial weights whose pre-activations have unit variance, by one factor per kernel."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from jaxnorm._fitted import Biases, Factors, fitted, mean_and_factor
from jaxnorm._layout import Layout
from jaxnorm._numerics import multiplied
from jaxnorm._paths import Path, is_absent, named_entries
from jaxnorm._reparametrize import effective
from jaxnorm._trace.layers import KernelCall, run_layers
from jaxnorm._trace.reading import Reading, of_reading

Values = Float[Array, "..."]


@of_reading
def variance_preserving_init(
    net: Reading,
    params: PyTree = None,
    *inputs: Any,
    layout: Layout | None = None,
) -> PyTree:
    """Multiplies each kernel by one scalar, so that its pre-activations have unit variance.

    The function makes one pass over a minibatch in execution order: each layer gets its inputs from
    the layers before it after their rescaling. The variance is pooled over samples, positions and
    units, with the units' means included: Var of all the numbers w_i'x together. (With one variance
    per unit the vanishing gradient of sigmoid networks that the paper explains does not appear.)
    Biases are left out of the variance and do not change.

    Args:
        net: the model, as `read` returns it.
        params: random parameters, if they are not the reading's; reparametrized kernels are
            rescaled as such.
        *inputs: the current minibatch and the other arguments, if they are not the reading's.
        layout: which leaves are kernels; None for the reading's.

    Returns:
        A tree of the same structure. A layer whose pre-activations are all equal keeps its kernel;
        a kernel that is used twice is rescaled by its first use, and each layer of a stack, which
        the model scans over, by its own turn.
        If the model rounds a kernel, with a straight-through gradient or by a cast to 8 bits, it is
        run again until the factor fits: to 3 percent. A spectrally normalized kernel has no scale
        to change: wrap it in `Scaled`.

    Raises:
        ValueError: if the layout constrains nothing, or contains a kernel that the model does not
            multiply its input by, or that it also multiplies in another form (its square, say), or
            looks up (a tied embedding), or uses inside a loop other than a scan over stacked
            kernels, one layer per turn; for a stack that is reparametrized along its layers; for an
            empty minibatch; for a kernel that the model rounds so coarsely that no factor fits (its
            sign); for pre-activations that are infinite or NaN. Under jit and in scans,
            where values are not known, the kernel of such pre-activations becomes NaN instead.

    Warns:
        UserWarning: if the model still has batch normalization, as `traced_layout`.

    Under jit the variance is that of the whole minibatch, however it is sharded; under pmap and
    shard_map, of the device's own: call it once, before sharding.

    Example:
        >>> from jaxnorm import read
        >>> import jax
        >>> params = {"kernel": 7 * jax.random.normal(jax.random.key(0), (16, 8))}
        >>> x = jax.random.normal(jax.random.key(1), (64, 16))
        >>> params = variance_preserving_init(read(lambda p, x: x @ p["kernel"], params, x))
        >>> round(float((x @ params["kernel"]).var()), 3)
        1.0

    Source: Kutsuna 2019, section 4.3.
    """

    def visit(call: KernelCall, collected: dict[Path, Any]) -> tuple[Values, Values]:
        factor = collected[call.path] if call.path in collected else mean_and_factor(call)[1]
        rounded.update([call.path] if call.is_rounded else [])
        return multiplied(call.output, factor), factor

    def fit(params: PyTree) -> tuple[Factors, Biases]:
        plain = effective(params)
        ranks = {path: jnp.ndim(x) for path, x in named_entries(plain) if not is_absent(x)}
        _, collected = run_layers(net.at(plain, net.inputs), layout, visit, only_products=True)
        factors = {
            path: jnp.expand_dims(factor, [i for i in range(-ranks[path], 0) if i not in layers])
            for path, (factor, layers) in collected.items()
        }
        return factors, {}

    net = net.now(params, inputs)
    rounded = set[Path]()
    return fitted(fit, net.params, fit(net.params), rounded)
