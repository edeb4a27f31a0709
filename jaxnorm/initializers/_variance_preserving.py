"""Rescales random weights, layer by layer, so that pre-activations have unit variance."""

from typing import Any

from jaxtyping import Array, Float, PyTree

from jaxnorm._numerics import promote
from jaxnorm._tracing import Apply, Factors, KernelCall, rescaled, run_layers
from jaxnorm._trees._layout import Layout, flax_layout
from jaxnorm.initializers._one_over_deviation import one_over_deviation


def variance_preserving_init(
    apply: Apply, params: PyTree, *inputs: Any, layout: Layout = flax_layout
) -> PyTree:
    """Multiplies each kernel by one scalar, so that its pre-activations have unit variance.

    One pass over a minibatch in execution order: each layer sees inputs that the layers before it,
    rescaled already, make. The variance is pooled over samples, positions and units, with the
    units' means included: Var of all the numbers w_i'x together. (With one variance a unit the
    vanishing gradient of sigmoid networks that the paper explains does not appear.) Biases are left
    out of the variance and left as they are.

    Args:
        apply: ``apply(params, *inputs)``, any library's model as a function of plain parameters;
            for NNX ``lambda params, x: functional.apply(params, state, x, train=True)[0]``.
        params: random parameters; reparametrized kernels are rescaled as such.
        *inputs: a minibatch, and whatever else ``apply`` takes.
        layout: which leaves are kernels.

    Returns:
        A tree of the same structure. A layer whose pre-activations are all equal keeps its kernel;
        a kernel that is used twice is rescaled by its first use. A spectrally normalized kernel
        has no scale to change: wrap it in `Scaled`.

    Raises:
        ValueError: if the layout constrains nothing, or knows a kernel that the model does not
            multiply its input by, or uses inside a loop; for pre-activations that are infinite or
            NaN. Under jit, where values are not known, their kernel becomes NaN instead.

    Example:
        >>> import jax
        >>> params = {"kernel": 7 * jax.random.normal(jax.random.key(0), (16, 8))}
        >>> x = jax.random.normal(jax.random.key(1), (64, 16))
        >>> params = variance_preserving_init(lambda p, x: x @ p["kernel"], params, x)
        >>> round(float((x @ params["kernel"]).var()), 3)
        1.0

    Source: Kutsuna 2019, section 4.3.
    """
    factors: Factors = {}

    def visit(call: KernelCall) -> Float[Array, "..."]:
        if call.path not in factors:
            factors[call.path] = _factor(call)
        factor = factors[call.path]
        return call.output * factor.astype(call.output.dtype)

    run_layers(apply, params, inputs, layout, visit)
    return rescaled(params, factors)


def _factor(call: KernelCall) -> Float[Array, ""]:
    wide = promote(call.output)
    return one_over_deviation(wide.mean(), wide.var(), call.path)
