"""The initialization of weight normalization: unit by unit, from one minibatch."""

import math
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from jaxnorm._numerics import promote
from jaxnorm._tracing import Apply, KernelCall, run_layers
from jaxnorm._trees._axes import per_unit
from jaxnorm._trees._layout import Layout, flax_layout
from jaxnorm._trees._paths import Path, entries, is_absent, rebuild_entries
from jaxnorm.initializers._fitted import one_over_deviation, rescaled
from jaxnorm.reparam._reparametrize import effective

Values = Float[Array, "..."]

#: The mean of each unit's pre-activations, None if it goes into no bias; and one over their
#: standard deviation, in the kernel's rank.
Moments = tuple[Values | None, Values]


def data_dependent_init(
    apply: Apply,
    params: PyTree,
    *inputs: Any,
    layout: Layout = flax_layout,
    free: Sequence[str] = (),
) -> PyTree:
    """Gives every unit pre-activations of zero mean and unit variance on one minibatch.

    w_i <- w_i / s_i and b_i <- -m_i / s_i, m_i and s_i the mean and standard deviation of w_i'x
    over samples and positions, layer by layer in execution order: each layer sees what the layers
    before it make after their own initialization. The bias is the leaf named ``bias``, or Haiku's
    ``b`` of a ``w``, beside the kernel, of one value a unit in any shape, if the model adds it to
    the product directly and does nothing else with it; a layer without one only gets its variance.

    Args:
        apply: ``apply(params, *inputs)``, any library's model as a function of plain parameters;
            for NNX ``lambda params, x: functional.apply(params, state, x, train=True)[0]``.
        params: random parameters; reparametrized kernels are rescaled as such (`WeightNormalized`
            then starts at g_i = ||w_i|| / s_i).
        *inputs: a minibatch, and whatever else ``apply`` takes.
        layout: which leaves are kernels.
        free: regular expressions, searched for in the ``/``-joined paths, of parameters that the
            model uses as if they were inputs (learned queries), as `traced_layout` takes them.

    Returns:
        A tree of the same structure. A unit whose pre-activations are all equal keeps its weights;
        a kernel that is used twice is initialized by its first use, and each layer of a stack,
        which the model scans over, by its own turn; kernel and bias are then stacked along their
        first axes.

    Raises:
        ValueError: as `variance_preserving_init` does, for a kernel that the model reshapes or
            transposes before it uses it, or uses along other axes too, whose units cannot be told
            apart.

    Warns:
        UserWarning: for a bias beside a kernel that stays as it is, as the model adds it to a sum
            (a recurrent cell's), after a gain, to the products of several kernels, or not at all,
            or as it does not have one value a unit.

    Example:
        >>> import jax
        >>> kernel = jax.random.normal(jax.random.key(0), (16, 8))
        >>> x = 3 + jax.random.normal(jax.random.key(1), (64, 16))
        >>> apply = lambda p, x: x @ p["kernel"] + p["bias"][None]
        >>> params = data_dependent_init(apply, {"kernel": kernel, "bias": jnp.zeros(8)}, x)
        >>> bool(jnp.allclose(apply(params, x).mean(0), 0, atol=1e-5))
        True

    Source: Salimans and Kingma 2016, section 3.
    """
    plain = dict(entries(effective(params)))
    biases = {
        path: leaf
        for path, leaf in plain.items()
        if path.name in ("bias", "b") and not is_absent(leaf)
    }

    def old_bias(call: KernelCall, scale: Values) -> Values | None:
        """What the model adds to this product next, one value a unit."""
        beside, layers = _bias_beside(call.path, biases), plain[call.path].shape[: len(call.turns)]
        shape = (*layers, *scale.shape)
        if call.bias is None or call.bias != beside or biases[beside].size != math.prod(shape):
            return None
        return promote(biases[beside], scale).reshape(shape)[call.turns]

    def visit(call: KernelCall, found: dict[Path, Moments]) -> tuple[Values, Moments]:
        sample_axes = _sample_axes(call)
        mean, factor = found.get(call.path) or _moments(call, sample_axes)
        scale = _scale(call, factor)
        output = promote(call.output) * jnp.expand_dims(scale, sample_axes)
        old = old_bias(call, scale)
        if old is None and call.path not in found:
            mean = None
        if old is not None and mean is not None:
            # The model adds the old bias next: what it must come to is -mean * factor.
            output = output - jnp.expand_dims(mean * scale + old, sample_axes)
        return output.astype(call.output.dtype), (mean, factor)

    _, seen = run_layers(apply, params, inputs, layout, visit, alone=True, free=free)
    moments: dict[Path, Moments] = {path: found for path, (found, _) in seen.items()}
    fitted = {
        _bias_beside(path, biases): -mean * factor.reshape(mean.shape)
        for path, (mean, factor) in moments.items()
        if mean is not None
    }
    factors = {path: factor for path, (_, factor) in moments.items()}
    _warn_of_unfitted(factors, biases, fitted)
    return _with_biases(rescaled(params, factors), fitted)


def _bias_beside(kernel: Path, biases: dict[Path, Any]) -> Path:
    """The path of the bias of a kernel, or where it would be; Haiku names the two w and b."""
    short = kernel.beside("b")
    return short if kernel.name == "w" and short in biases else kernel.beside("bias")


def _with_biases(params: PyTree, biases: dict[Path, Values]) -> PyTree:
    def replaced(path: Path, entry: Any) -> Any:
        if path not in biases:
            return entry
        return jax.tree.map(lambda leaf: biases[path].reshape(leaf.shape).astype(leaf.dtype), entry)

    return rebuild_entries(params, [replaced(path, entry) for path, entry in entries(params)])


def _warn_of_unfitted(
    kernels: Iterable[Path], biases: dict[Path, Any], fitted: dict[Path, Any]
) -> None:
    """Says of a bias that it stays as it is."""
    for path in kernels:
        bias = _bias_beside(path, biases)
        if bias in biases and bias not in fitted:
            warnings.warn(
                f"the model does not add the bias {bias!r} to the product of the kernel {path!r} "
                "as it is, or uses it elsewhere too, so it cannot take a mean out: it stays, and "
                "these units only get their variance. Add it to the product itself, or give it "
                "another name if it is no bias.",
                UserWarning,
                stacklevel=1,
            )


def _no_units(kernel: Path) -> ValueError:
    return ValueError(
        f"the model reshapes or transposes the kernel {kernel!r} before it uses it, or uses it "
        "again along other axes, so its units cannot be told apart. Leave it out of the layout."
    )


def _sample_axes(call: KernelCall) -> tuple[int, ...]:
    """The axes of the pre-activations that do not count units."""
    if call.unit_axes is None:
        raise _no_units(call.path)
    return tuple(axis for axis in range(call.output.ndim) if axis not in call.unit_axes)


def _scale(call: KernelCall, factor: Values) -> Values:
    """The factors of a kernel's first use, which has the units of this one, one value a unit."""
    axes = call.fan_in or ()
    if any(factor.shape[axis] != 1 for axis in axes):
        raise _no_units(call.path)
    return factor.squeeze(axes)


def _moments(call: KernelCall, sample_axes: tuple[int, ...]) -> Moments:
    """The mean of each unit, and one over its standard deviation (1 where that is zero)."""
    wide = promote(call.output)
    mean, variance = wide.mean(sample_axes), wide.var(sample_axes)
    return mean, per_unit(one_over_deviation(mean, variance, call.path), call.fan_in or ())
