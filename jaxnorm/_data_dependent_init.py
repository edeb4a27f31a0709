"""Initial weights whose units have mean 0 and variance 1 on a minibatch, by their own factors."""

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from jaxnorm._axes import per_unit, unit_shape
from jaxnorm._checks import POSITIVE, check_number, warn
from jaxnorm._fitted import Biases, Factors, fitted, mean_and_factor
from jaxnorm._layout import Layout, Setting, broadcast
from jaxnorm._node import is_node
from jaxnorm._numerics import promote
from jaxnorm._paths import Path, is_absent, named_entries, named_rows
from jaxnorm._phases import strides_of
from jaxnorm._reparametrize import effective
from jaxnorm._trace.layers import KernelCall, run_layers
from jaxnorm._trace.phases import OutputPhase, at_outputs, at_taps, at_written, of_phases
from jaxnorm._trace.reading import Reading, of_reading

Values = Float[Array, "..."]


@of_reading
def data_dependent_init(
    net: Reading,
    params: PyTree = None,
    *inputs: Any,
    layout: Layout | None = None,
    stddev: Setting = 1.0,
) -> PyTree:
    """Gives each unit pre-activations of zero mean and unit variance on one minibatch.

    w_i <- w_i d / s_i and b_i <- -m_i d / s_i, m_i and s_i the mean and standard deviation of w_i'x
    over samples and positions, d the wanted one, layer by layer in execution order: each layer gets
    its inputs from the layers before it after their own initialization. The bias is the parameter,
    of one value per channel in any shape, that the model adds to the product directly and uses
    nowhere else; a layer without one only gets its variance. A unit of a transposed convolution
    with a stride is a phase and a channel: each phase gets its variance, and all of a channel one
    mean. Outputs that no tap reaches, between the strides of a kernel of one tap say, are zeros,
    and do not count for the variance.

    Args:
        net: the model, as `read` returns it.
        params: random parameters, if they are not the reading's; reparametrized kernels are
            rescaled as such (`WeightNormalized` then starts at g_i = ||w_i|| / s_i).
        *inputs: the current minibatch and the other arguments, if they are not the reading's.
        layout: which leaves are kernels; None for the reading's.
        stddev: d, the standard deviation of the pre-activations: a positive number, or a pytree
            prefix of them: the `residual_factors`, for branches that start quietly.

    Returns:
        A tree of the same structure. A unit whose pre-activations are all equal, such as one
        behind a scale of zero, has nothing to be fitted to: its weights are multiplied by d alone;
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
            not at all, or because it does not have one value per channel; and for a model that
            still has batch normalization, as `traced_layout`.

    Under jit the moments are those of the whole minibatch, however it is sharded; under pmap and
    shard_map, of the device's own: call it once, before sharding.

    Example:
        >>> from jaxnorm import read
        >>> import jax
        >>> kernel = jax.random.normal(jax.random.key(0), (16, 8))
        >>> x = 3 + jax.random.normal(jax.random.key(1), (64, 16))
        >>> apply = lambda p, x: x @ p["kernel"] + p["bias"][None]
        >>> params = data_dependent_init(read(apply, {"kernel": kernel, "bias": jnp.zeros(8)}, x))
        >>> bool(jnp.allclose(apply(params, x).mean(0), 0, atol=1e-5))
        True

    Source: Salimans and Kingma 2016, section 3.
    """
    net = net.now(params, inputs)
    params = net.params
    units = _Units(_by_path(stddev, effective(params)), _with_channels(params))

    def fit(params: PyTree) -> tuple[Factors, Biases]:
        units.plain = dict(named_entries(effective(params)))
        at_these = net.at(params, net.inputs)
        _, collected = run_layers(at_these, layout, units.visit, only_products=True)
        results = {path: result for path, (result, _) in collected.items()}
        biases = {
            units.bias_of[path]: new for path, (new, *_) in results.items() if new is not None
        }
        return {path: factor for path, (*_, factor) in results.items()}, biases

    factors, biases = fit(params)
    _warn_of_unfitted(units.plain, factors.keys(), biases.keys())
    return fitted(fit, params, (factors, biases), units.rounded)


@dataclass
class _Units:
    """Fit of the units of a model, layer by layer.

    Attributes:
        wanted: the standard deviation of each kernel's pre-activations.
        channels: the kernels that have one scale per channel, and none per phase.
        plain: the parameters of this pass.
        bias_of: the bias of each kernel, as far as the pass came.
        rounded: the kernels that the model rounds, as far as the pass came.
    """

    wanted: dict[Path, Any]
    channels: set[Path]
    plain: dict[Path, Any] = field(default_factory=dict)
    bias_of: dict[Path, Path] = field(default_factory=dict)
    rounded: set[Path] = field(default_factory=set)

    def visit(self, call: KernelCall, collected: dict[Path, Any]) -> tuple[Values, Any]:
        """Returns the fitted output of one use of a kernel, with the new bias, scale and factor."""
        if not call.keeps_units:
            raise _unordered_units(call.path)
        self.rounded.update([call.path] if call.is_rounded else [])
        sample_axes, units = [*call.positions], call.units
        bias = self.added_bias(call)
        phases = () if call.path in self.channels else _seen_phases(call)
        is_first = call.path not in collected
        new_bias, scale, factor = (
            (None, *self.fit(call, phases, sample_axes)) if is_first else collected[call.path]
        )
        if scale.shape != (*(phase.stride for phase in phases), *units):
            raise _unordered_units(call.path)
        output = promote(call.output) * at_outputs(scale, phases, call.output, call.unit_axes)
        if is_first and bias is not None:
            new_bias = -output.mean(sample_axes)
        if bias is not None and new_bias is not None:
            output = output + jnp.expand_dims(new_bias - bias, sample_axes)
        return output.astype(call.output.dtype), (new_bias, scale, factor)

    def fit(
        self, call: KernelCall, phases: tuple[OutputPhase, ...], sample_axes: list[int]
    ) -> tuple[Values, Values]:
        """Returns the scale of each unit of a product, and the factor of its kernel."""
        output = at_written(call.output, [phase for phase in call.phases if phase not in phases])
        scale = of_phases(output, phases, lambda x: _scale(call, x, sample_axes))
        scale = scale * self.wanted[call.path]
        return scale, _per_unit(scale, self.plain[call.path], call, phases)

    def added_bias(self, call: KernelCall) -> Values | None:
        """Returns the bias that the model adds to this product; None if it cannot be fitted."""
        kernel = self.plain[call.path]
        size = math.prod((*kernel.shape[: len(call.turns)], *call.units))
        if call.bias is None or self.plain[call.bias].size != size:
            return None
        if self.bias_of.setdefault(call.path, call.bias) != call.bias:
            return None  # a second use with a bias of its own
        bias: Values = call.of_layer(promote(self.plain[call.bias], call.output), kernel)
        return bias


def _with_channels(params: PyTree) -> set[Path]:
    """Returns the nodes with one scale per channel; plain kernels have room for each phase."""
    return {
        path
        for path, x in named_entries(params)
        if is_node(x) and (x.scale_field or not strides_of(x.fan_in_axes))
    }


def _scale(call: KernelCall, output: Values, sample_axes: list[int]) -> Values:
    """Returns 1 over the standard deviation of each unit of some outputs."""
    return mean_and_factor(call._replace(output=output), tuple(sample_axes))[1]


def _seen_phases(call: KernelCall) -> tuple[OutputPhase, ...]:
    """Returns the phases with taps of their own; none if there are too few outputs to see each."""
    shape = call.output.shape
    phases = tuple(phase for phase in call.phases if phase.axis is not None)
    return phases if all(shape[phase.place] >= phase.stride for phase in phases) else ()


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
            warn(
                f"the model does not add the bias {bias!r} to the product of the kernel {kernel!r} "
                "directly, or uses it elsewhere too, so it cannot take a mean out: it does not "
                "change, and these units only get their variance. Add it to the product itself, or "
                "give it another name if it is no bias."
            )


def _bias_path(kernel: Path, biases: dict[Path, Any]) -> Path:
    """Path of a kernel's bias, which need not exist; Haiku names the two w and b."""
    short = kernel.beside("b")
    return short if kernel.name == "w" and short in biases else kernel.beside("bias")


def _unordered_units(kernel: Path) -> ValueError:
    return ValueError(
        f"the model reshapes or transposes the kernel {kernel!r} before it uses it, or also uses "
        "it along other axes, so its units cannot be told apart. Leave it out of the layout."
    )
