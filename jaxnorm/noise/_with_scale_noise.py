"""Noise on the scale of each layer of any library's model, drawn for each sample."""

import zlib
from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree, UInt

from jaxnorm._numerics import promote
from jaxnorm._reparametrize import effective
from jaxnorm._trace import KernelCall, run_layers
from jaxnorm._trees._constrained import (
    Setting,
    check_setting,
    is_zero,
    kernel_axes,
    setting_per_leaf,
)
from jaxnorm._trees._layout import Layout, flax_layout
from jaxnorm._trees._paths import Path, entries
from jaxnorm.noise._noisy_affine import noisy_affine

#: ``noisy(key, params, *inputs)``: what ``apply(params, *inputs)`` returns, with noise.
Noisy = Callable[..., Any]

#: A typed key, or a raw one; or one for each row.
AnyKey = Key[Array, "..."] | UInt[Array, "..."]

#: What shares a draw: ``sample``, all positions of a unit in a sample; ``position``, nothing;
#: ``step``, all samples and positions of a unit.
Per = Literal["sample", "position", "step"]


def with_scale_noise(
    apply: Callable[..., Any],
    stddev: Setting,
    *,
    layout: Layout = flax_layout,
    per: Per = "sample",
    free: Sequence[str] = (),
) -> Noisy:
    """The model whose layers have noisy scales: y = (1 + n) gamma w'x + beta, n ~ N(0, sigma^2).

    The model is traced and each kernel's product is multiplied before the bias is added, so no
    model is changed, and nothing is kept. For training; evaluation calls ``apply`` itself.

    Args:
        apply: ``apply(params, *inputs)``, any library's model as a function of plain parameters.
            The rows of the minibatch are the first axis of the first input that is an array. What
            else it does with its layers, as `collect_preactivations` in it, sees the noise.
        stddev: sigma; a number, or a pytree prefix of the parameters with numbers and None (no
            noise), as `linear_stddev` makes the paper's (l / L) sigma of residual networks. For a
            stack of layers, which the model scans over, it may be an array of one value a layer.
            Not differentiated.
        layout: which kernels have noise; ``exclude("^head/")`` leaves the classifier out.
        per: what a draw is for. ``"sample"``: each sample and unit, the same at all positions of an
            image; ``"position"``: each number of the product; ``"step"``: each unit, the same for
            all samples, as `noise_injection` draws it (with it deep networks do not train).
        free: regular expressions, searched for in the ``/``-joined paths, of parameters that the
            model uses as if they were inputs (learned queries), as `traced_layout` takes them.

    Returns:
        ``noisy(key, params, *inputs)``. ``params`` may hold reparametrized kernels. ``key`` is one
        key, of any generator, or an array of one key a row: under jit
        ``noisy(key, ...)`` is ``noisy(jax.random.split(key, rows), ...)``, and under shard_map or
        pmap give each device its rows' keys of that split, and every sample has the draws that it
        has on one device. A draw depends on its row's key, on the kernel's path, on the layer in a
        stack and on its place in the sample alone; it costs no communication. Noise is computed in
        float32 or wider; types are kept. With a ``stddev`` of 0 or None the result is that of
        ``apply``, bit by bit. What the model puts into `jax.checkpoint` stays in it. Gradients, and
        derivatives of gradients, are there; ``jax.jvp`` of the model itself is not.

    Raises:
        TypeError: for a ``stddev`` that is no number.
        ValueError: for a ``stddev`` that is negative or not finite, an unknown ``per``; when
            called, if the layout constrains nothing, knows a kernel that the model does not
            multiply its input by, multiplies also in another form (its square, say), or uses inside
            a loop other than a scan over stacked kernels of one layer a turn
            (`jaxnorm.nnx.ScaleAndBias` has noise there), or a product whose first axis is not the
            rows'.

    Warns:
        UserWarning: when called, as `collect_preactivations` does.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> apply = lambda params, x: x @ params["kernel"] + params["bias"][None]
        >>> params = {"kernel": jnp.eye(2), "bias": jnp.ones(2)}
        >>> noisy = with_scale_noise(apply, 0.1)
        >>> y = noisy(jax.random.key(0), params, jnp.ones((4096, 2)))
        >>> f"{y.mean():.2f} {y.std():.2f}"
        '2.00 0.10'

    Source: Ikami et al. 2021, Eq. 7. The paper does not say what shares a draw. One draw per step
    leaves convolutional networks at chance on photographs; one a sample does what it reports.
    """
    if per not in get_args(Per):
        raise ValueError(f"per is {per!r}; wanted one of {', '.join(map(repr, get_args(Per)))}.")
    check_setting(stddev, "stddev")

    def noisy(key: AnyKey, params: PyTree, *inputs: Any) -> Any:
        plain = effective(params)
        deviations = _deviations(stddev, plain, layout)
        if not deviations:
            return apply(plain, *inputs)
        rows = _rows(inputs)
        keys = _keys(key, None if per == "step" else rows)

        def visit(call: KernelCall, uses: dict[Path, Any]) -> tuple[Float[Array, "..."], Any]:
            if call.path not in deviations:
                return call.output if call.added is None else call.output + call.added, 0
            use = uses.get(call.path, 0)
            own = layer_keys(keys, call.path, use, *call.turns)
            return _times_noise(call, own, deviations[call.path], rows, per), use + 1

        options: dict[str, Any] = {"apart": True, "sample_axes": per != "step", "free": free}
        return run_layers(apply, plain, inputs, layout, visit, **options)[0]

    return noisy


def _times_noise(
    call: KernelCall, keys: Key[Array, "*rows"], stddev: Any, rows: int, per: Per
) -> Float[Array, "..."]:
    """One layer's product with its noise, and its bias if that comes next, in its type."""
    wide = promote(call.output)
    of_layers = jax.lax.stop_gradient(jnp.asarray(stddev).astype(wide.dtype))
    sigma = of_layers[call.turns[: of_layers.ndim]]
    if call.sample_axis is None and per != "step":
        raise _no_rows(call, rows)
    samples = None if per == "step" else call.sample_axis
    shape = tuple(
        size if axis in (*call.units, samples) or per == "position" else 1
        for axis, size in enumerate(wide.shape)
    )
    factor = noise_factor(keys, sigma, shape, samples)
    bias = None if call.added is None else promote(call.added, wide)
    return noisy_affine(wide, factor, bias).astype(call.output.dtype)


def _no_rows(call: KernelCall, rows: int) -> ValueError:
    return ValueError(
        f"the product of the kernel {call.path!r} has the shape {call.output.shape}, none of whose "
        f"axes grows with the {rows} rows of the first input, so it is not known which sample a "
        "number belongs to. Keep the rows as the first axis of the first input and apart from "
        "positions (with vmap, inside apply), write apply for any number of rows, or take "
        "per='step', or None for this kernel in stddev."
    )


def _rows(inputs: tuple[Any, ...]) -> int:
    """The rows of the minibatch: the length of the first array."""
    lengths = [x.shape[0] for x in jax.tree.leaves(inputs) if getattr(x, "ndim", 0)]
    return lengths[0] if lengths else 1


def _deviations(stddev: Setting, plain: PyTree, layout: Layout) -> dict[Path, Any]:
    """Sigma of each kernel that has noise, by path."""
    paths = kernel_axes(plain, layout)
    settings = setting_per_leaf(stddev, plain, "stddev")
    found = dict(zip((path for path, _ in entries(plain)), settings, strict=True))
    return {path: found[path] for path in paths if not is_zero(found[path])}


def _keys(key: AnyKey, rows: int | None) -> Key[Array, "..."]:
    """A typed key for each row; with None for rows the one that all share."""
    is_typed = jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    keys = key if is_typed else jax.random.wrap_key_data(key)
    if rows is not None and keys.ndim == 0:
        keys = jax.random.split(keys, rows)
    if rows is not None and keys.shape != (rows,):
        raise ValueError(f"got keys of shape {keys.shape} for {rows} rows; wanted one key a row.")
    return threefry(keys)


def layer_keys(keys: Key[Array, "*rows"], path: Path, *numbers: Any) -> Key[Array, "*rows"]:
    """A layer's own keys, by its path and its numbers.

    These are how often its kernel was used before, and its place in a stack of layers.
    """
    for number in (zlib.crc32(str(path).encode()), *numbers):
        keys = _fold_in(keys, number)
    return keys


def threefry(keys: Key[Array, "*rows"]) -> Key[Array, "*rows"]:
    """Keys of the one generator whose draws do not depend on sharding or vmap."""
    if str(jax.random.key_impl(keys)) == "threefry2x32":
        return keys
    words = jax.random.key_data(keys)
    made: Key[Array, "*rows"] = jax.random.wrap_key_data(words[..., :2], impl="threefry2x32")
    for number in range(2, words.shape[-1]):
        made = _fold_in(made, words[..., number])
    return made


def noise_factor(
    keys: Key[Array, "*rows"],
    stddev: Float[Array, ""],
    shape: tuple[int, ...],
    sample_axis: int | None,
) -> Float[Array, "..."]:
    """1 + n, of the rank of ``shape``.

    Args:
        keys: one for each index of the sample axis; one alone without such an axis.
        stddev: sigma, in the type of the result.
        shape: the sizes of the draws; 1 along axes that share one.
        sample_axis: where the samples are; None if all share their draws.
    """
    if sample_axis is None:
        return 1 + stddev * jax.random.normal(keys, shape, stddev.dtype)
    own = shape[:sample_axis] + shape[sample_axis + 1 :]
    draws = jax.vmap(lambda key: jax.random.normal(key, own, stddev.dtype))(keys)
    return 1 + stddev * jnp.moveaxis(draws, 0, sample_axis)


def _fold_in(keys: Key[Array, "*rows"], number: Any) -> Key[Array, "*rows"]:
    numbers = jnp.broadcast_to(jnp.asarray(number, jnp.uint32), keys.shape)
    fold_in = jax.random.fold_in if keys.ndim == 0 else jax.vmap(jax.random.fold_in)
    folded: Key[Array, "*rows"] = fold_in(keys, numbers)
    return folded
