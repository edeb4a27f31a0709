"""Noise on the scale of each layer, drawn anew for each sample."""

import zlib
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec
from jaxtyping import Array, Float, Key, PyTree

from jaxnorm._checks import NONNEGATIVE, check_number
from jaxnorm._draws import Keys, Split, normal, split_of, typed_keys, whole_shape
from jaxnorm._layout import Layout, Setting, broadcast, kernels_by_path
from jaxnorm._mesh import vary_alike, varying_axes
from jaxnorm._node import Reparametrization
from jaxnorm._numerics import promote
from jaxnorm._paths import Path, is_absent, listed, map_entries, named_entries, named_leaves
from jaxnorm._reparametrize import effective
from jaxnorm._trace.interpret import Apply, jitted
from jaxnorm._trace.layers import KernelCall, run_layers
from jaxnorm._trace.reading import Reading, of_reading
from jaxnorm._trace.samples import count_rows

#: The numbers that share a draw: ``sample``, all positions of a channel in a sample;
#: ``position``, none; ``step``, all samples and positions of a channel.
Per = Literal["sample", "position", "step"]

#: A pytree prefix of the parameters with their `jax.sharding.PartitionSpec`, or None.
Specs = Any

#: The least size of 1 + n: a draw of n = -1 leaves a millionth of the product.
LEAST_FACTOR = 1e-6


def with_scale_noise(
    apply: Apply | Reading,
    stddev: Setting,
    *,
    layout: Layout | None = None,
    per: Per = "sample",
    specs: Specs = None,
) -> Callable[..., Any]:
    """Adds noise to a model's scales: y = (1 + n) gamma w'x + beta, n ~ N(0, sigma^2).

    The model is traced, and each kernel's product is multiplied by 1 + n before the bias is added.
    The model itself is not changed. Call the result in training, and ``apply`` in evaluation.

    Args:
        apply: ``apply(params, *inputs)``, a model of any library as a function of plain parameters.
            The rows of the minibatch are the first axis of the first input that is an array.
            Whatever else ``apply`` does with its layers, `collect_preactivations` for example,
            sees the noise. Or a reading, with parameters that the model uses ``as_inputs``; not in
            a shard_map that splits kernels.
        stddev: sigma; a number, or a pytree prefix of the parameters with numbers and None (no
            noise), as `linear_stddev` returns it. For a stack of layers that the model scans over,
            an array may have one value per layer of the whole stack. Not differentiated.
        layout: the kernels that have noise; None for those of `traced_layout`, and
            ``exclude("^head/")`` leaves the classifier out.
        per: ``"sample"`` draws per sample and channel, the same number at all positions of an
            image; ``"position"`` draws for each number of the product; ``"step"`` draws per
            channel, the same number for all samples, as `noise_injection` does (deep networks do
            not train with it).
        specs: inside shard_map and pmap, the `PartitionSpec` of each parameter: the ``in_specs``,
            a pytree prefix of the parameters.

    Returns:
        ``noisy(key, params, *inputs)``. ``params`` may hold reparametrized kernels. ``key`` is one
        key of any generator, or, unless ``per="step"``, an array with one key per row;
        ``noisy(key, ...)`` equals ``noisy(jax.random.split(key, rows), ...)``. A draw depends only
        on its row's key, the kernel's path, the layer in a stack, the place in the sample, and on
        how often the model has used the kernel before: a kernel that is used twice has two
        independent draws. Noise is computed in float32 or wider; types are kept. With a ``stddev``
        of 0 or None the result equals that of ``apply`` to the bit. A `jax.checkpoint` of the model
        is kept. Derivatives exist in both modes and to any order.

    Raises:
        TypeError: for a ``stddev`` that is no number.
        ValueError: for a ``stddev`` that is negative or not finite, or an unknown ``per``. When
            called: for another number of keys; if the layout constrains nothing; for a kernel that
            the model does not multiply its input by, multiplies also in another form (its square,
            say), or uses inside a loop other than a scan over stacked kernels with one layer per
            turn (`jaxnorm.nnx.ScaleAndBias` has noise there); for a product without an
            axis of its own for the rows; for a kernel whose split over devices is unknown (below).

    Warns:
        UserWarning: when called, as `collect_preactivations` does.

    Every sample has the same draws on one device, under jit with any sharding, and, if each device
    gets the keys of its rows out of ``jax.random.split(key, rows)``, under shard_map and pmap. No
    communication is needed. Kernels that are split over devices inside shard_map or pmap (units,
    experts, stages of a pipeline) need ``specs``: each device keeps its slice of the draws for the
    whole kernel, and devices that split the fan-in share their draws. A checked shard_map refuses
    a split kernel without ``specs``, except for the two cases that its types decide: a kernel
    with one axis besides the fan-in, and inputs that are the same on all devices; and a product
    that the model sums over the devices next. An unchecked shard_map and pmap have no such types:
    without ``specs`` the devices' slices repeat the same draws.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> apply = lambda params, x: x @ params["kernel"] + params["bias"][None]
        >>> params = {"kernel": jnp.eye(2), "bias": jnp.ones(2)}
        >>> noisy = with_scale_noise(apply, 0.1)
        >>> y = noisy(jax.random.key(0), params, jnp.ones((4096, 2)))
        >>> f"{y.mean():.2f} {y.std():.2f}"
        '2.00 0.10'

    Source: Ikami et al. 2021, Eq. 7. The paper does not say which numbers share a draw.
    """
    if per not in get_args(Per):
        raise ValueError(f"per is {per!r}; wanted one of {', '.join(map(repr, get_args(Per)))}.")
    check_stddev(stddev)

    def noisy(key: Keys, params: PyTree, *inputs: Any) -> Any:
        plain = effective(params)
        net = Reading.of(apply, plain, inputs)
        of_parameters = broadcast(specs, params, "specs")
        kernels = _noisy_kernels(plain, layout or net.layout, stddev, of_parameters)
        if not kernels:
            return net.result()
        rows = count_rows(inputs)
        keys = typed_keys(key, None if per == "step" else rows)

        def visit(call: KernelCall, uses: dict[Path, Any]) -> tuple[Float[Array, "..."], Any]:
            if call.path not in kernels:
                return call.output if call.added is None else call.output + call.added, 0
            use = uses.get(call.path, 0)
            return _add_noise(call, kernels[call.path], keys, use, rows, per), use + 1

        return run_layers(net, layout, visit, bias="separate", sample_axes=per != "step")[0]

    return noisy


class NoisyKernel(NamedTuple):
    """A kernel whose products have noise.

    Attributes:
        stddev: sigma; a number, or one per layer of a stack.
        kernel: the effective kernel, or this device's slice of it.
        spec: its PartitionSpec; None if it is unknown.
    """

    stddev: Setting
    kernel: Float[Array, "..."]
    spec: PartitionSpec | None


def _noisy_kernels(
    plain: PyTree, layout: Layout, stddev: Setting, specs: PyTree
) -> dict[Path, NoisyKernel]:
    """Returns the kernels with noise by path; ``specs`` has the structure of the raw parameters."""
    kernels, spec_at = dict(named_leaves(plain)), dict(named_entries(specs))
    sigma = dict(named_leaves(broadcast(stddev, plain, "stddev")))
    return {
        path: NoisyKernel(sigma[path], kernels[path], _kernel_spec(spec_at[path]))
        for path in kernels_by_path(layout, plain)
        if not is_zero(sigma[path])
    }


def _kernel_spec(entry: Any) -> Any:
    """Returns the spec at a kernel, which in a node is that of the field of the kernel's shape."""
    while isinstance(entry, Reparametrization):
        entry = getattr(entry, entry.kernel_fields[0])
    return entry


def _add_noise(
    call: KernelCall, noisy: NoisyKernel, keys: Key[Array, "*rows"], use: Any, rows: int, per: Per
) -> Float[Array, "..."]:
    """Multiplies a layer's product by its noise and adds the bias that comes next."""
    wide, split = promote(call.output), _kernel_split(call, noisy, keys)
    turns = tuple(
        turn + jax.lax.axis_index(split.get(axis, ())).astype(turn.dtype) * noisy.kernel.shape[axis]
        for axis, turn in enumerate(call.turns)
    )
    sigma = jax.lax.stop_gradient(jnp.asarray(noisy.stddev).astype(wide.dtype))
    layers = whole_shape(noisy.kernel.shape, split)[: len(turns)]
    if sigma.shape != layers[: sigma.ndim]:
        raise ValueError(
            f"the stddev of the kernel {call.path!r} has the shape {sigma.shape}; wanted a number, "
            f"or one value per layer of a stack that the model scans over: {layers}."
        )
    numbers = (np.uint32(zlib.crc32(str(call.path).encode())), use, *turns)
    shape, units = _draw_shape(call, rows, per), _unit_split(call, noisy.kernel, split)
    draws = normal(keys, numbers, shape, wide.dtype, call.sample_axis, units)
    factor = 1 + sigma[turns[: sigma.ndim]] * draws
    return noisy_affine(wide, factor, call.added).astype(call.output.dtype)


def _draw_shape(call: KernelCall, rows: int, per: Per) -> tuple[int, ...]:
    """Returns the shape of a product with size 1 along axes that share a draw."""
    if per != "step" and call.sample_axis is None:
        raise ValueError(
            f"the product of the kernel {call.path!r} has the shape {call.output.shape}, none of "
            f"whose axes grows with the {rows} rows of the first input, so it is unknown which "
            "sample a number belongs to. Keep the rows as the first axis of the first input and "
            "apart from positions (with vmap, inside apply), write apply for any number of rows, "
            "or take per='step', or None for this kernel in stddev."
        )
    kept = (*call.unit_axes, call.sample_axis)
    shape = enumerate(call.output.shape)
    return tuple(size if axis in kept or per == "position" else 1 for axis, size in shape)


def _kernel_split(call: KernelCall, noisy: NoisyKernel, keys: Key[Array, "*rows"]) -> Split:
    """Returns the axes of a kernel that are split over devices with the same keys."""
    _, kernel, spec = noisy
    mesh_axes = varying_axes(kernel) - varying_axes(keys) - call.mesh.summed
    axes = [] if mesh_axes & call.mesh.shared else _free_axes(call, kernel)
    return split_of(f"the kernel {call.path!r}", kernel, spec, mesh_axes, axes)


def _free_axes(call: KernelCall, kernel: Any) -> list[int]:
    """Returns the axes of a kernel that are no fan-in: of layers, groups and units."""
    return [axis for axis in range(kernel.ndim) if axis - kernel.ndim not in (call.fan_in or ())]


def _unit_split(call: KernelCall, kernel: Any, split: Split) -> Split:
    """Returns the axes of a product that are split because its kernel's units are."""
    if not split:
        return {}
    units = _free_axes(call, kernel)[len(call.turns) :]
    # A single axis of units has one order, however the model reshapes the kernel.
    in_order = call.keeps_units or (len(units) == 1 and not call.turns)
    if call.fan_in is None or not in_order or len(call.unit_axes) != len(units):
        raise ValueError(
            f"the kernel {call.path!r} of shape {kernel.shape} is split over devices, and the "
            "model reshapes or transposes it before it multiplies, so the slices of the draws are "
            "unknown; wanted the kernel in products as it is. Or give each device keys of its own."
        )
    axes = zip(units, call.unit_axes, strict=True)
    return {place: split[axis] for axis, place in axes if axis in split}


def noisy_affine(
    x: Float[Array, "..."], factor: Float[Array, "..."], bias: Float[Array, "..."] | None
) -> Float[Array, "..."]:
    """Computes (1 + n) x + beta, with a gradient of beta that costs no memory traffic.

    For a cotangent g, the gradient of x is g (1 + n) and that of beta is the sum of g. JAX makes
    both from g, and compilers then write g to memory beside g (1 + n): on a TPU a step of float32
    convolutions moves 15% to 50% more bytes. Here the tangent is (dx + dbeta / (1 + n)) (1 + n),
    whose transpose makes the gradient of beta the sum of g (1 + n) / (1 + n). It is summed in
    beta's type, so that devices reduce it together with the gradients of the kernels, which have
    that type too.

    Args:
        x: the product of a kernel, in float32 or wider.
        factor: 1 + n, of the rank of ``x``; it has no gradient.
        bias: beta, of that rank and of any floating-point type; None for no bias.
    """
    if bias is None:
        return x * factor
    factor = jnp.where(jnp.abs(factor) < LEAST_FACTOR, LEAST_FACTOR, factor)
    x, factor, bias = vary_alike(x, factor, bias)
    shape = jnp.broadcast_shapes(x.shape, bias.shape)
    if shape != x.shape:
        return x * factor + promote(bias, x)
    return _affine(x, factor, promote(jnp.broadcast_to(bias, shape), x))


@jax.custom_jvp
def _affine(x: Array, factor: Array, bias: Array) -> Array:
    return x * factor + bias


@_affine.defjvp
def _affine_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    (x, factor, bias), (dx, _, dbias) = primals, tangents
    return _affine(x, factor, bias), (dx + dbias / factor) * factor


@of_reading
def linear_stddev(
    net: Reading,
    stddev: float,
    *,
    layout: Layout | None = None,
) -> PyTree:
    """Noise of residual networks: (l / L) sigma for the l-th of L layers in execution order.

    Args:
        net: the model, as `read` returns it; parameters and inputs may be shapes.
        stddev: sigma of the last layer.
        layout: the kernels that count as layers; None for the reading's.

    Returns:
        A tree for `with_scale_noise` and `noise_injection`: a number at each kernel, None
        elsewhere. Layers are counted in the order in which they run, not by their names.

    Raises:
        ValueError: as `collect_preactivations` does, and for a stack of layers that the model scans
            over, which one number cannot describe; for a negative stddev.

    Nothing is computed, so jit, pmap, shard_map and sharding change nothing.

    Example:
        >>> from jaxnorm import read
        >>> import jax, jax.numpy as jnp
        >>> params = {"last": {"kernel": jnp.eye(2)}, "zeroth": {"kernel": jnp.eye(2)}}
        >>> apply = lambda params, x: x @ params["zeroth"]["kernel"] @ params["last"]["kernel"]
        >>> linear_stddev(read(apply, params, jnp.ones((4, 2))), 1.0)
        {'last': {'kernel': 1.0}, 'zeroth': {'kernel': 0.5}}

    Source: Ikami et al. 2021, section 4.3 (linear noise).
    """
    check_number(stddev, NONNEGATIVE, "stddev", "sigma of the last layer")
    layers: dict[Path, tuple[int, ...]] = {}

    def run(params: PyTree, *inputs: Any) -> None:
        visit = lambda call, _: (call.output, None)  # noqa: E731
        _, results = run_layers(net.at(params, inputs), layout, visit)
        layers.update({path: axes for path, (_, axes) in results.items()})

    jitted(run, net.inputs).eval_shape(net.params, *net.inputs)
    if stacked := [path for path, axes in layers.items() if axes]:
        raise ValueError(
            f"the kernels {listed(stacked)} are stacks of layers that the model scans over, and "
            "linear_stddev gives each kernel one number; wanted one per layer. Leave them out of "
            "the layout, and give with_scale_noise an array with one value per layer for them."
        )
    levels = {path: stddev * (number + 1) / len(layers) for number, path in enumerate(layers)}
    return map_entries(lambda path, _: levels.get(path), net.params)


def check_stddev(stddev: Setting) -> None:
    """Raises for entries of a setting that are not None, nor finite numbers of at least 0."""
    for path, value in named_leaves(stddev):
        if not is_absent(value):
            place = f"the parameter {path!r}" if path else ""
            check_number(value, NONNEGATIVE, "stddev", "or a tree of numbers and None", place)


def is_zero(stddev: Setting) -> bool:
    """Returns True for None and for a Python number 0, which are known before tracing."""
    return stddev is None or (isinstance(stddev, (int, float)) and stddev == 0)
