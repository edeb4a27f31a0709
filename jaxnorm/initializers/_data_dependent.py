"""The initialization of weight normalization: unit by unit, from one minibatch."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from jaxnorm._numerics import promote
from jaxnorm._tracing import Apply, KernelCall, kernel_axes, rescaled, run_layers
from jaxnorm._trees._axes import per_unit
from jaxnorm._trees._layout import Layout, flax_layout
from jaxnorm._trees._paths import Path, entries, rebuild_entries
from jaxnorm.initializers._one_over_deviation import one_over_deviation
from jaxnorm.reparam._effective import effective

#: The mean of each unit's pre-activations, and one over their standard deviation.
Moments = tuple[Float[Array, "..."], Float[Array, "..."]]


def data_dependent_init(
    apply: Apply, params: PyTree, *inputs: Any, layout: Layout = flax_layout
) -> PyTree:
    """Gives every unit pre-activations of zero mean and unit variance on one minibatch.

    w_i <- w_i / s_i and b_i <- -m_i / s_i, m_i and s_i the mean and standard deviation of w_i'x
    over samples and positions, layer by layer in execution order: each layer sees what the layers
    before it make after their own initialization. The bias is the leaf named ``bias``, or Haiku's
    ``b`` of a ``w``, beside the kernel, of one value a unit in any shape; a layer without one only
    gets its variance. A bias beside several kernels, as in a recurrent cell, counts as that of the
    first one that is used.

    Args:
        apply: ``apply(params, *inputs)``, any library's model as a function of plain parameters;
            for NNX ``lambda params, x: functional.apply(params, state, x, train=True)[0]``.
        params: random parameters; reparametrized kernels are rescaled as such (`WeightNormalized`
            then starts at g_i = ||w_i|| / s_i).
        *inputs: a minibatch, and whatever else ``apply`` takes.
        layout: which leaves are kernels.

    Returns:
        A tree of the same structure. A unit whose pre-activations are all equal keeps its weights;
        a kernel that is used twice is initialized by its first use.

    Raises:
        ValueError: as `variance_preserving_init` does, for a kernel that the model reshapes or
            transposes before it uses it, whose units cannot be told apart, and for a bias that does
            not have one value a unit.

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
    plain = effective(params)
    old_biases = _biases(plain)
    moments: dict[Path, Moments] = {}
    # The kernel that each bias belongs to.
    owners: dict[Path, Path] = {}

    def visit(call: KernelCall) -> Float[Array, "..."]:
        sample_axes = _sample_axes(call)
        bias = _bias_beside(call.path, old_biases)
        if call.path not in moments:
            moments[call.path] = _moments(call, sample_axes)
            owners.setdefault(bias, call.path)
        mean, factor = moments[call.path]
        output = promote(call.output) * jnp.expand_dims(factor, sample_axes)
        if bias in old_biases and owners[bias] == call.path:
            # The model adds the old bias next: what it must come to is -mean * factor.
            shift = mean * factor + _per_unit(old_biases[bias], mean, bias)
            output = output - jnp.expand_dims(shift, sample_axes)
        return output.astype(call.output.dtype)

    run_layers(apply, params, inputs, layout, visit)
    axes = kernel_axes(plain, layout)
    factors = {path: per_unit(factor, axes[path]) for path, (_, factor) in moments.items()}
    means = {bias: moments[kernel] for bias, kernel in owners.items()}
    biases = {bias: -mean * factor for bias, (mean, factor) in means.items()}
    return _with_biases(rescaled(params, factors), biases)


def _biases(plain: PyTree) -> dict[Path, Any]:
    return {path: leaf for path, leaf in entries(plain) if path.name in ("bias", "b")}


def _bias_beside(kernel: Path, biases: dict[Path, Any]) -> Path:
    """The path of the bias of a kernel, or where it would be; Haiku names the two w and b."""
    short = kernel.beside("b")
    return short if kernel.name == "w" and short in biases else kernel.beside("bias")


def _per_unit(bias: Any, mean: Float[Array, "..."], path: Path) -> Float[Array, "..."]:
    """A bias in the shape of the units, whatever axes of size 1 its library gives it."""
    if bias.size != mean.size:
        raise ValueError(
            f"the bias {path!r} of shape {tuple(bias.shape)} does not have one "
            f"value for each of the {mean.size} units of the kernel beside it. Correct the "
            "kernel's axes in the layout, or leave it out."
        )
    return promote(bias, mean).reshape(mean.shape)


def _with_biases(params: PyTree, biases: dict[Path, Float[Array, "..."]]) -> PyTree:
    def replaced(path: Path, entry: Any) -> Any:
        if path not in biases:
            return entry
        return jax.tree.map(lambda leaf: biases[path].reshape(leaf.shape).astype(leaf.dtype), entry)

    return rebuild_entries(params, [replaced(path, entry) for path, entry in entries(params)])


def _sample_axes(call: KernelCall) -> tuple[int, ...]:
    """The axes of the pre-activations that do not count units."""
    if call.unit_axes is None:
        raise ValueError(
            f"the model reshapes or transposes the kernel {call.path!r} before it uses it, so its "
            "units cannot be told apart. Leave it out of the layout."
        )
    return tuple(axis for axis in range(call.output.ndim) if axis not in call.unit_axes)


def _moments(call: KernelCall, sample_axes: tuple[int, ...]) -> Moments:
    """The mean of each unit, and one over its standard deviation (1 where that is zero)."""
    wide = promote(call.output)
    mean, variance = wide.mean(sample_axes), wide.var(sample_axes)
    return mean, one_over_deviation(mean, variance, call.path)
