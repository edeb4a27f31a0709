"""Initial weights: orthogonal, or fitted layer by layer to a minibatch."""

import math
import warnings
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from jaxnorm._axes import per_unit, unit_shape
from jaxnorm._checks import POSITIVE, check_number
from jaxnorm._layout import Layout, Setting, broadcast, flax_layout, kernels_by_path
from jaxnorm._matrices import as_matrices, singular_value
from jaxnorm._mesh import whole
from jaxnorm._node import Axes, is_node
from jaxnorm._numerics import (
    ROUNDING_ERRORS,
    multiplied,
    nonzero,
    promote,
    rounding_floor,
)
from jaxnorm._paths import Path, is_absent, listed, map_entries, named_entries, named_rows
from jaxnorm._phase_fit import at_outputs, at_taps, of_phases
from jaxnorm._phases import strides_of
from jaxnorm._reparametrize import effective
from jaxnorm._trace.interpret import Apply, Program, trace
from jaxnorm._trace.layers import KernelCall, run_layers
from jaxnorm._trace.phases import OutputPhase

Values = Float[Array, "..."]

#: The factor of each kernel, in the kernel's rank: one number or one per unit, common to the layers
#: of a stack or one per layer.
Factors = dict[Path, Values]

#: The new biases.
Biases = dict[Path, Values]

#: ``params -> (factors, new biases)``.
Fit = Callable[[PyTree], tuple[Factors, Biases]]

#: The passes after the first one over a model that rounds its kernels; the logarithm of a factor at
#: which a rounded kernel counts as fitted; and the part of the last one that is no progress.
PASSES, ROUNDED, STALLED = 10, 0.037, 0.9


def variance_preserving_init(
    apply: Apply,
    params: PyTree,
    *inputs: Any,
    layout: Layout = flax_layout,
    free: Sequence[str] = (),
) -> PyTree:
    """Multiplies each kernel by one scalar, so that its pre-activations have unit variance.

    The function makes one pass over a minibatch in execution order: each layer gets its inputs from
    the layers before it after their rescaling. The variance is pooled over samples, positions and
    units, with the units' means included: Var of all the numbers w_i'x together. (With one variance
    per unit the vanishing gradient of sigmoid networks that the paper explains does not appear.)
    Biases are left out of the variance and do not change.

    Args:
        apply: ``apply(params, *inputs)``, any library's model as a function of plain parameters;
            for NNX ``lambda params, x: functional.apply(params, state, x, train=True)[0]``.
        params: random parameters; reparametrized kernels are rescaled as such.
        *inputs: a minibatch, and the remaining arguments of ``apply``.
        layout: which leaves are kernels.
        free: regular expressions, searched for in the ``/``-joined paths, of parameters that the
            model uses as if they were inputs (learned queries), as in `traced_layout`.

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
        >>> import jax
        >>> params = {"kernel": 7 * jax.random.normal(jax.random.key(0), (16, 8))}
        >>> x = jax.random.normal(jax.random.key(1), (64, 16))
        >>> params = variance_preserving_init(lambda p, x: x @ p["kernel"], params, x)
        >>> round(float((x @ params["kernel"]).var()), 3)
        1.0

    Source: Kutsuna 2019, section 4.3.
    """

    def visit(call: KernelCall, collected: dict[Path, Any]) -> tuple[Values, Values]:
        factor = collected[call.path] if call.path in collected else _mean_and_factor(call)[1]
        rounded.update([call.path] if call.is_rounded else [])
        return multiplied(call.output, factor), factor

    def fit(params: PyTree) -> tuple[Factors, Biases]:
        plain = effective(params)
        ranks = {path: jnp.ndim(x) for path, x in named_entries(plain) if not is_absent(x)}
        _, collected = run_layers(
            apply, plain, inputs, layout, visit, only_products=True, free=free
        )
        factors = {
            path: jnp.expand_dims(factor, [i for i in range(-ranks[path], 0) if i not in layers])
            for path, (factor, layers) in collected.items()
        }
        return factors, {}

    rounded: set[Path] = set()
    return _fitted(fit, params, fit(params), rounded)


def orthogonal_init(
    apply: Apply,
    params: PyTree,
    *inputs: Any,
    layout: Layout = flax_layout,
    gain: float = 1.0,
) -> PyTree:
    """Replaces each random kernel by an orthogonal one; a convolution's by one at its center.

    W <- gain s Q of W = Q R, the fan-in x units matrix, with R_ii > 0 and s = sqrt(max(1, units /
    fan-in)), so that with a gain of 1 pre-activations have the mean square of the layer's inputs.
    Normally distributed W make Q uniform over the orthogonal matrices. A convolution with a stride
    of 1 keeps its center tap alone (delta-orthogonal), one with a stride of s the s taps at its
    center, along each axis: its positions then share no pixel, and leave none out, so that, away
    from the borders, it preserves the distances of images as the matrix does those of rows. A patch
    embedding, whose kernel is as large as its stride, is a matrix of all its taps. A kernel that is
    smaller than its stride does not see all pixels: it preserves the distances of those it sees.

    Args:
        apply: ``apply(params, *inputs)``, as in `variance_preserving_init`; it is traced, not run.
        params: random parameters, which are the source of randomness; plain kernels.
        *inputs: a minibatch, or its shapes, and the remaining arguments of ``apply``.
        layout: which leaves are kernels.
        gain: the factor of every kernel: 1 for shaped activations, tanh and selu, and sqrt(2) for
            relu.

    Returns:
        A tree of the same structure, shapes and types. Each layer of a stack that the model scans
        over is orthogonal by itself; a kernel of zeros stays zero.

    Raises:
        ValueError: for reparametrized kernels, for kernels with a part for each group of inputs (a
            grouped convolution, the heads of an attention output), for those that the model
            reshapes, transposes, rounds or does not multiply its input by, and for convolutions
            with a stride and dilated taps or dilated inputs (a transposed convolution).

    Call it once, before sharding: a sharded kernel costs collectives under jit, and inside
    shard_map each device would make its own part orthogonal.

    Example:
        >>> import jax
        >>> params = {"kernel": jax.random.normal(jax.random.key(0), (16, 8))}
        >>> x = jnp.ones((1, 16))
        >>> kernel = orthogonal_init(lambda p, x: x @ p["kernel"], params, x)["kernel"]
        >>> bool(jnp.allclose(kernel.T @ kernel, jnp.eye(8), atol=1e-5))
        True

    Source: Saxe et al. 2014 (arXiv 1312.6120); delta-orthogonal kernels are those of Xiao et al.
    2018 (arXiv 1806.05393), their scale that of Martens et al. 2021 (arXiv 2110.01765).
    """
    plain = effective(params)
    kernels = kernels_by_path(layout, plain)
    matrices = _matrix_kernels(trace(apply, plain, inputs, kernels))

    def orthogonal(path: Path, entry: Any) -> Any:
        if path not in kernels:
            return entry
        if is_node(entry) or path not in matrices:
            raise ValueError(
                f"the kernel {path!r} is reparametrized, reshaped, transposed or rounded before "
                "its product, not multiplied with the inputs, has a part for each group of them, "
                "or is of a transposed convolution with a stride, or of one with a stride and a "
                "dilation; wanted a plain kernel of one matrix product or convolution. Call "
                "orthogonal_init before reparametrize, and leave other kernels out of the layout."
            )
        return _orthogonal(entry, matrices[path], gain)

    return map_entries(orthogonal, params)


class MatrixKernel(NamedTuple):
    """Kernel that is one matrix, or one per layer of a stack, at some of its taps.

    Attributes:
        fan_in: the fan-in axes, the axes of taps included.
        stacked: the number of axes of layers.
        taps: the taps along each axis of positions, those that are not zero.
    """

    fan_in: Axes
    stacked: int
    taps: dict[int, slice]


def _matrix_kernels(program: Program) -> dict[Path, MatrixKernel]:
    kernels: dict[Path, MatrixKernel] = {}
    for layer in program.layers.values():
        use, params = layer.product.use, layer.equation.params
        in_groups = use.in_groups or params.get("feature_group_count", 1) > 1
        is_whole = use.kernel.is_unchanged and not use.kernel.rounded
        taps = _central_taps(layer.equation)
        if use.fan_in and is_whole and taps is not None and not (layer.product.biased or in_groups):
            kernels[use.kernel.path] = MatrixKernel(use.fan_in, len(use.kernel.scanned), taps)
    return kernels


def _central_taps(equation: Any) -> dict[int, slice] | None:
    """Returns as many taps at the center as the stride has pixels, by the axis of the kernel.

    None for a convolution of which these taps do not partition the pixels.
    """
    if equation.primitive.name != "conv_general_dilated":
        return {}
    params, kernel = equation.params, equation.invars[1].aval
    strides, dilations = params["window_strides"], (params["lhs_dilation"], params["rhs_dilation"])
    if any(size > 1 for size in dilations[0]) or (max(strides) > 1 and max(dilations[1]) > 1):
        return None
    taps: dict[int, slice] = {}
    for axis, stride in zip(params["dimension_numbers"].rhs_spec[2:], strides, strict=True):
        count = min(stride, kernel.shape[axis])
        first = (kernel.shape[axis] - count) // 2
        taps[axis - kernel.ndim] = slice(first, first + count)
    return taps


def _orthogonal(kernel: Values, matrix: MatrixKernel, gain: float) -> Values:
    """Returns zeros around the center, which is made orthogonal."""
    center = tuple(matrix.taps.get(axis, slice(None)) for axis in range(-kernel.ndim, 0))

    def at_center(kernel: Values) -> Values:
        matrices, restore = as_matrices(promote(kernel[center]), matrix.fan_in, matrix.stacked)
        is_wide = matrices.shape[-2] < matrices.shape[-1]
        q, r = jnp.linalg.qr(matrices.mT if is_wide else matrices)
        q = q * jnp.sign(jnp.diagonal(r, axis1=-2, axis2=-1))[..., None, :]
        values = restore((q.mT if is_wide else q) * singular_value(matrices, gain**2))
        return jnp.zeros_like(kernel).at[center].set(values.astype(kernel.dtype))

    return whole(at_center)(kernel)


def data_dependent_init(
    apply: Apply,
    params: PyTree,
    *inputs: Any,
    layout: Layout = flax_layout,
    free: Sequence[str] = (),
    stddev: Setting = 1.0,
) -> PyTree:
    """Gives each unit pre-activations of zero mean and unit variance on one minibatch.

    w_i <- w_i d / s_i and b_i <- -m_i d / s_i, m_i and s_i the mean and standard deviation of w_i'x
    over samples and positions, d the wanted one, layer by layer in execution order: each layer gets
    its inputs from the layers before it after their own initialization. The bias is the parameter,
    of one value per unit in any shape, that the model adds to the product directly and uses nowhere
    else; a layer without one only gets its variance. A unit of a transposed convolution with a
    stride is a phase and a channel: each phase gets its variance, and all of a channel one mean.

    Args:
        apply: ``apply(params, *inputs)``, any library's model as a function of plain parameters;
            for NNX ``lambda params, x: functional.apply(params, state, x, train=True)[0]``.
        params: random parameters; reparametrized kernels are rescaled as such (`WeightNormalized`
            then starts at g_i = ||w_i|| / s_i).
        *inputs: a minibatch, and the remaining arguments of ``apply``.
        layout: which leaves are kernels.
        free: regular expressions, searched for in the ``/``-joined paths, of parameters that the
            model uses as if they were inputs (learned queries), as in `traced_layout`.
        stddev: d, the standard deviation of the pre-activations: a positive number, or a pytree
            prefix of them: the `residual_factors`, for branches that start quietly.

    Returns:
        A tree of the same structure. A unit whose pre-activations are all equal keeps its weights;
        a kernel that is used twice is initialized by its first use, and each layer of a stack,
        which the model scans over, by its own turn; kernel and bias are then stacked along their
        first axes.

    Raises:
        ValueError: as `variance_preserving_init`, and for a kernel that the model reshapes or
            transposes before it uses it, or also uses along other axes, so that its units cannot be
            told apart.

    Warns:
        UserWarning: for a bias beside a kernel that cannot be fitted, because the model adds it to
            a sum (as a recurrent cell does), after a gain, to the products of several kernels or
            not at all, or because it does not have one value per unit; and for a model that still
            has batch normalization, as `traced_layout`.

    Under jit the moments are those of the whole minibatch, however it is sharded; under pmap and
    shard_map, of the device's own: call it once, before sharding.

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
    wanted, plain = _by_path(stddev, effective(params)), dict[Path, Any]()
    rounded, bias_of = set[Path](), dict[Path, Path]()
    # A scale is one number per channel; plain kernels and coordinates have room for each phase.
    channels = {
        path
        for path, x in named_entries(params)
        if is_node(x) and (x.scale_field or not strides_of(x.fan_in_axes))
    }

    def added_bias(call: KernelCall, units: tuple[int, ...]) -> Values | None:
        """Bias that the model adds to this product next; None if it cannot be fitted."""
        shape = (*plain[call.path].shape[: len(call.turns)], *units)
        if call.bias is None or plain[call.bias].size != math.prod(shape):
            return None
        bias_of.setdefault(call.path, call.bias)
        return promote(plain[call.bias], call.output).reshape(shape)[call.turns]

    def visit(call: KernelCall, collected: dict[Path, Any]) -> tuple[Values, Any]:
        if not call.keeps_units:
            raise _unordered_units(call.path)
        rounded.update([call.path] if call.is_rounded else [])
        sample_axes = [axis for axis in range(call.output.ndim) if axis not in call.unit_axes]
        units = tuple(call.output.shape[axis] for axis in sorted(call.unit_axes))
        bias = added_bias(call, units)
        phases = () if call.path in channels else _seen_phases(call)
        if call.path in collected:
            new_bias, scale, factor = collected[call.path]
        else:
            scale = of_phases(call.output, phases, lambda x: _scale(call, x, sample_axes))
            scale = scale * wanted[call.path]
            factor = _per_unit(scale, plain[call.path], call, phases)
        if scale.shape != (*(phase.stride for phase in phases), *units):
            raise _unordered_units(call.path)
        output = promote(call.output) * at_outputs(scale, phases, call.output, call.unit_axes)
        if call.path not in collected:
            new_bias = None if bias is None else -output.mean(sample_axes)
        if bias is not None and new_bias is not None:
            output = output + jnp.expand_dims(new_bias - bias, sample_axes)
        return output.astype(call.output.dtype), (new_bias, scale, factor)

    def fit(params: PyTree) -> tuple[Factors, Biases]:
        plain.update(named_entries(effective(params)))
        options: Any = {"only_products": True, "free": free}
        _, collected = run_layers(apply, params, inputs, layout, visit, **options)
        results = {path: result for path, (result, _) in collected.items()}
        biases = {bias_of[path]: new for path, (new, *_) in results.items() if new is not None}
        return {path: factor for path, (*_, factor) in results.items()}, biases

    factors, biases = fit(params)
    _warn_of_unfitted(plain, factors.keys(), biases.keys())
    return _fitted(fit, params, (factors, biases), rounded)


def _fitted(fit: Fit, params: PyTree, fits: tuple[Factors, Biases], rounded: set[Path]) -> PyTree:
    """Fits parameters, and again if the model rounds kernels: q(f w) is not f q(w).

    ``fits`` is the result of ``fit(params)``, and ``rounded`` has the rounded kernels. Raises
    ValueError, or makes the kernel NaN in a trace, if it is not fitted after some passes.
    """
    factors, biases = fits
    fitted = _updated(params, factors, biases)
    off: dict[Path, Any] = {}
    for _ in range(PASSES if rounded else 0):
        before = {path: jnp.abs(jnp.log(factors[path])) for path in sorted(rounded)}
        factors, biases = fit(fitted)
        sizes = {path: jnp.abs(jnp.log(factors[path])) for path in before}
        off = {path: (size > ROUNDED).any() for path, size in sizes.items()}
        if not any(isinstance(x, jax.core.Tracer) for x in off.values()) and not any(off.values()):
            return fitted
        # Units that are fitted stay: another factor would round them in another way. Those that no
        # factor changes stay too: they would grow without end.
        steps = {
            path: jnp.where(
                (size > ROUNDED) & (size < jnp.maximum(0.5, STALLED * before[path])),
                factors[path],
                1,
            )
            for path, size in sizes.items()
        }
        fitted = _updated(fitted, factors | steps, biases)
    if any(isinstance(x, jax.core.Tracer) for x in off.values()):
        return _updated(fitted, {path: jnp.where(x, jnp.nan, 1.0) for path, x in off.items()}, {})
    if off:
        raise ValueError(
            f"the model rounds the kernels {listed(path for path, x in off.items() if x)}, and no "
            "factor on them gives their pre-activations unit variance (the sign of a kernel has no "
            "scale, and coarse levels have few); wanted a rounding whose scale follows the "
            "kernel's, such as the sign times the mean size of a unit's weights. Or leave them out "
            "of the layout."
        )
    return fitted


def _scale(call: KernelCall, output: Values, sample_axes: list[int]) -> Values:
    """Returns 1 over the standard deviation of each unit of some outputs."""
    return _mean_and_factor(call._replace(output=output), tuple(sample_axes))[1]


def _seen_phases(call: KernelCall) -> tuple[OutputPhase, ...]:
    """Returns the phases of a product; none if it has too few outputs to see each."""
    shape = call.output.shape
    are_seen = all(shape[phase.place] >= phase.stride for phase in call.phases)
    return call.phases if are_seen else ()


def _per_unit(
    scale: Values, kernel: Any, call: KernelCall, phases: tuple[OutputPhase, ...]
) -> Values:
    """Returns values of the units of a product in the rank of one layer's kernel."""
    fan_in = call.fan_in or ()
    if phases:
        return at_taps(scale, phases, fan_in, kernel.ndim - len(call.turns))
    units = unit_shape(kernel, fan_in)[len(call.turns) :]
    return per_unit(scale.reshape(units), fan_in)


def _by_path(stddev: Setting, params: PyTree) -> dict[Path, Any]:
    """Returns the wanted standard deviation of each leaf, checked."""
    values = broadcast(stddev, params, "stddev")
    rows = [row for row in named_rows(params, values, is_leaf=is_absent) if not is_absent(row[1])]
    for path, _, value in rows:
        check_number(value, POSITIVE, "stddev", "1.0 for example", f"the parameter {path!r}")
    return {path: value for path, _, value in rows}


def _warn_of_unfitted(
    plain: dict[Path, Any], kernels: Iterable[Path], fitted: Collection[Path]
) -> None:
    """Warns of biases by their names, beside the kernels, that take no mean out."""
    biases = {p: x for p, x in plain.items() if p.name in ("bias", "b") and not is_absent(x)}
    for kernel in kernels:
        bias = _bias_path(kernel, biases)
        if bias in biases.keys() - fitted:
            warnings.warn(
                f"the model does not add the bias {bias!r} to the product of the kernel {kernel!r} "
                "directly, or uses it elsewhere too, so it cannot take a mean out: it does not "
                "change, and these units only get their variance. Add it to the product itself, or "
                "give it another name if it is no bias.",
                UserWarning,
                stacklevel=3,
            )


def _mean_and_factor(
    call: KernelCall, sample_axes: tuple[int, ...] | None = None
) -> tuple[Values, Values]:
    """Mean of the pre-activations, and 1 over their standard deviation.

    The factor is 1 if all values are equal up to rounding, and NaN if the variance is traced and
    not finite. Raises ValueError for a known variance that is not finite.
    """
    if not call.output.size:
        raise ValueError(
            f"the pre-activations of the kernel {call.path!r} have the shape {call.output.shape}: "
            "the minibatch is empty; wanted at least two rows of data."
        )
    wide = promote(call.output)
    mean, variance = wide.mean(sample_axes), wide.var(sample_axes)
    if not isinstance(variance, jax.core.Tracer) and not np.isfinite(variance).all():
        raise ValueError(
            f"the pre-activations of the kernel {call.path!r} are infinite or NaN, or their "
            "squares overflow, so their variance is not finite; wanted a minibatch and parameters "
            "that are finite. Look for NaN in the inputs, and at the outputs of the layers before "
            "this one."
        )
    # A sum over a whole minibatch gathers more errors than a sum over one unit's weights.
    is_constant = variance <= rounding_floor(mean, 8 * ROUNDING_ERRORS)
    factor = 1 / jnp.sqrt(nonzero(variance, is_constant))
    return mean, jnp.where(jnp.isfinite(variance), factor, jnp.nan)


def _updated(params: PyTree, factors: Factors, biases: Biases) -> PyTree:
    """Parameters with rescaled kernels, plain or reparametrized, and new biases."""

    def updated(path: Path, entry: Any) -> Any:
        if path in factors:
            factor = factors[path]
            if is_node(entry):
                strides = strides_of(entry.fan_in_axes)
                whole = [axis for axis in entry.fan_in_axes if axis not in strides]
                if any(factor.shape[axis] != 1 for axis in whole):
                    raise ValueError(
                        f"the kernel {path!r} is reparametrized with the fan-in axes "
                        f"{entry.fan_in_axes}, and the model scans over layers, or has units, "
                        "along one of them; reparametrize with the layout traced_layout(apply, "
                        "params, *inputs)."
                    )
                return entry.rescaled(factor)
            return jax.tree.map(lambda kernel: multiplied(kernel, factor), entry)
        if path in biases:
            return jax.tree.map(lambda x: biases[path].reshape(x.shape).astype(x.dtype), entry)
        return entry

    return map_entries(updated, params)


def _bias_path(kernel: Path, biases: dict[Path, Any]) -> Path:
    """Path of a kernel's bias, which need not exist; Haiku names the two w and b."""
    short = kernel.beside("b")
    return short if kernel.name == "w" and short in biases else kernel.beside("bias")


def _unordered_units(kernel: Path) -> ValueError:
    return ValueError(
        f"the model reshapes or transposes the kernel {kernel!r} before it uses it, or also uses "
        "it along other axes, so its units cannot be told apart. Leave it out of the layout."
    )
