"""Rescales random weights, layer by layer, so that pre-activations have unit variance."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from jaxnorm._numerics import promote
from jaxnorm._tracing import Apply, KernelCall, run_layers
from jaxnorm._trees._layout import Layout, flax_layout
from jaxnorm._trees._paths import Path, entries
from jaxnorm.initializers._fitted import one_over_deviation, rescaled
from jaxnorm.reparam._reparametrize import effective


def variance_preserving_init(
    apply: Apply,
    params: PyTree,
    *inputs: Any,
    layout: Layout = flax_layout,
    free: Sequence[str] = (),
) -> PyTree:
    """Multiplies each kernel by one scalar, so that its pre-activations have unit variance.

    The function makes one pass over a minibatch in execution order: each layer sees inputs that the
    layers before it, rescaled already, make. The variance is pooled over samples, positions and
    units, with the units' means included: Var of all the numbers w_i'x together. (With one variance
    a unit the vanishing gradient of sigmoid networks that the paper explains does not appear.)
    Biases are left out of the variance and left as they are.

    Args:
        apply: ``apply(params, *inputs)``, any library's model as a function of plain parameters;
            for NNX ``lambda params, x: functional.apply(params, state, x, train=True)[0]``.
        params: random parameters; reparametrized kernels are rescaled as such.
        *inputs: a minibatch, and whatever else ``apply`` takes.
        layout: which leaves are kernels.
        free: regular expressions, searched for in the ``/``-joined paths, of parameters that the
            model uses as if they were inputs (learned queries), as `traced_layout` takes them.

    Returns:
        A tree of the same structure. A layer whose pre-activations are all equal keeps its kernel;
        a kernel that is used twice is rescaled by its first use, and each layer of a stack, which
        the model scans over, by its own turn. A spectrally normalized kernel has no scale to
        change: wrap it in `Scaled`.

    Raises:
        ValueError: if the layout constrains nothing, or knows a kernel that the model does not
            multiply its input by, or multiplies also in another form (its square, say), or uses
            inside a loop, but for one layer a turn of a scan over stacked kernels, or also looks up
            (a tied embedding); for a stack that is reparametrized along its layers; for
            pre-activations that are infinite or NaN. Under jit and in scans, where values are not
            known, their kernel becomes NaN instead.

    Example:
        >>> import jax
        >>> params = {"kernel": 7 * jax.random.normal(jax.random.key(0), (16, 8))}
        >>> x = jax.random.normal(jax.random.key(1), (64, 16))
        >>> params = variance_preserving_init(lambda p, x: x @ p["kernel"], params, x)
        >>> round(float((x @ params["kernel"]).var()), 3)
        1.0

    Source: Kutsuna 2019, section 4.3.
    """
    plain = effective(params)
    _, seen = run_layers(apply, plain, inputs, layout, _visit, alone=True, free=free)
    ranks = {path: leaf.ndim for path, leaf in entries(plain) if path in seen}
    factors = {
        path: jnp.expand_dims(factor, [i for i in range(-ranks[path], 0) if i not in layers])
        for path, (factor, layers) in seen.items()
    }
    return rescaled(params, factors)


def _visit(
    call: KernelCall, found: dict[Path, Any]
) -> tuple[Float[Array, "..."], Float[Array, ""]]:
    factor = found[call.path] if call.path in found else _factor(call)
    return call.output * factor.astype(call.output.dtype), factor


def _factor(call: KernelCall) -> Float[Array, ""]:
    wide = promote(call.output)
    return one_over_deviation(wide.mean(), wide.var(), call.path)
