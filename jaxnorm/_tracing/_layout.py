"""What is read off a model: its layout, and which kernels meet the inputs themselves."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jaxtyping import PyTree

from jaxnorm._reparametrize import effective
from jaxnorm._tracing._equations import SUMS
from jaxnorm._tracing._program import trace
from jaxnorm._tracing._values import Body, Step, is_checkpoint, scan_counts
from jaxnorm._tracing._walk import Walk
from jaxnorm._trees._layout import Layout, layout_by
from jaxnorm._trees._node import Axes
from jaxnorm._trees._paths import Path, entries, is_absent, is_node, listed, rebuild_entries

#: The parameters that each variable of a program depends on; none where there is no entry.
Sources = dict[object, frozenset[Path]]


def traced_layout(
    apply: Callable[..., Any], params: PyTree, *inputs: Any, free: Sequence[str] = ()
) -> Layout:
    """The layout of any library's model: the axes of each parameter that it contracts.

    The model is traced, and each parameter followed through transposes, reshapes, casts, slices,
    broadcasts, ``stop_gradient``, ``device_put`` and constants that multiply it (one number, or one
    a unit) to the matrix product, ragged product or convolution that uses it: the axes that are
    summed over are its fan-in. So attention projections, grouped, transposed and 1-D convolutions,
    stacked layers (``nn.scan``, ``nnx.scan``, ``filter_vmap``) and recurrent cells come out right
    whatever they are called; biases, scales, and tables whose rows are looked up are free.

    Args:
        apply: ``apply(params, *inputs)``, the model as a function of plain parameters; for NNX
            ``lambda params, x: functional.apply(params, state, x, train=False)[0]``.
        params: its parameters, or their shapes.
        *inputs: what else it takes, arrays or their shapes. All that a kernel meets must come from
            them, or be a constant.
        free: regular expressions, searched for in the ``/``-joined paths, of parameters that are no
            kernels and that the model uses as if they were inputs: learned queries, say.

    Returns:
        A layout for the model's parameters in any form: plain, reparametrized, masked, updates.

    Raises:
        ValueError: naming the parameters that it cannot speak for: changed by more than a view
            before the product (by a mask, constant or one of the inputs, or by the choice of one of
            several kernels for each row), multiplied with each other, contracted along different
            axes in two places, or along a part of an axis, or in an einsum of more than two
            operands, whose sizes decide what is contracted first; and if no parameter is
            contracted.

    A parameter that is multiplied and summed by hand, without a product, counts as a scale. An
    einsum is known by its string of indices: write one of several operands so, not with lists.
    Nothing is computed, and sharding plays no part; inside ``shard_map`` kernels must be whole.

    Example:
        >>> import jax.numpy as jnp
        >>> params = {"qkv": jnp.ones((8, 2, 4)), "bias": jnp.ones((2, 4))}
        >>> apply = lambda p, x: jnp.einsum("bi,ihd->bhd", x, p["qkv"]) + p["bias"][None]
        >>> traced_layout(apply, params, jnp.ones((3, 8)))(params)
        {'bias': None, 'qkv': (-3,)}
    """
    nodes = any(is_node(entry) for _, entry in entries(params))
    plain = jax.eval_shape(effective, params) if nodes else params
    program = trace(apply, plain, inputs, free=free)
    paths = [path for path, entry in entries(plain) if not is_absent(entry)]
    known = _decided(program.walk, paths)
    return layout_by(lambda path, entry: known.get(path))


def _decided(walk: Walk, paths: list[Path]) -> dict[Path, Axes]:
    """The axes by path. Raises ValueError for what was not understood, or if there are none."""
    axes: dict[Path, set[Axes]] = {}
    for use in walk.uses:
        if use.fan_in:
            axes.setdefault(use.kernel.path, set()).add(use.fan_in)
    reasons = {
        path: f"is contracted along {' and '.join(map(str, sorted(found)))}"
        for path, found in axes.items()
        if len(found) > 1
    }
    refused = walk.refused | reasons
    if refused:
        said = "; ".join(f"{path!r} {reason}" for path, reason in refused.items())
        raise ValueError(
            f"traced_layout cannot say what the fan-in is, because {said}. Write a "
            "layout_from_rules([(regex, axes), ...]), or name what is no kernel in free=[regex]."
        )
    if not axes:
        raise ValueError(
            "the model multiplies its inputs by none of its parameters, so there is no kernel. "
            f"The paths are: {listed(paths) or '(there are none)'}. Pass apply(params, *inputs)."
        )
    return {path: next(iter(found)) for path, found in axes.items()}


def first_layer(apply: Callable[..., Any], params: PyTree, *inputs: Any) -> PyTree:
    """Which kernels are multiplied with the inputs themselves, and with nothing else.

    The inputs themselves are what depends on no parameter: inputs that were reshaped, normalized by
    statistics or rectified are inputs still, a scaled or embedded one is not. The units of such a
    kernel see the sum of the features, which the constraint of zero-mean weights would hide:

        later = jax.tree.map(operator.not_, first_layer(apply, params, x))
        raw, tx = constrain(params, optimizer, layout=layout, centered=later)

    Args:
        apply: ``apply(params, *inputs)``, as `traced_layout` takes it.
        params: its parameters, or their shapes.
        *inputs: what else it takes, arrays or their shapes.

    Returns:
        A tree of the structure of the plain parameters: True at those kernels, False elsewhere,
        also at a kernel that a loop (but for a scan), a branch or a shard_map uses.

    Nothing is computed, and sharding plays no part.

    Example:
        >>> import jax.numpy as jnp
        >>> params = {"a": jnp.ones((8, 4)), "b": jnp.ones((4, 2)), "skip": jnp.ones((8, 2))}
        >>> apply = lambda p, x: jnp.tanh(x @ p["a"]) @ p["b"] + x @ p["skip"]
        >>> first_layer(apply, params, jnp.ones((3, 8)))
        {'a': True, 'b': False, 'skip': True}
    """
    nodes = any(is_node(entry) for _, entry in entries(params))
    plain = jax.eval_shape(effective, params) if nodes else params
    program = trace(apply, plain, inputs)
    paths = sorted(path for path, entry in entries(plain) if hasattr(entry, "shape"))
    # The parameters come first among what is given, in this order.
    given = zip(program.body.inputs, paths, strict=False)
    sources = {name: frozenset([path]) for name, path in given}
    first, later = set[Path](), set[Path]()
    _visit(program.body, sources, first, later)
    later |= {use.kernel.path for use in program.walk.uses if {*use.within} - {"scan"}}
    return rebuild_entries(plain, [path in first - later for path, _ in entries(plain)])


def _visit(body: Body, sources: Sources, first: set[Path], later: set[Path]) -> None:
    """Sorts the kernels of a body's products, and notes what its variables depend on."""
    for step in body.steps:
        own = [sources.get(name, frozenset()) for name in step.inputs]
        everything = frozenset[Path]().union(*own)
        if step.body and is_checkpoint(step.equation):
            _visit(step.body, sources, first, later)
            continue
        if step.body:
            consts, carry = scan_counts(step.equation)
            # What a turn hands on to the next may depend on all that the scan is given.
            own[consts : consts + carry] = [everything] * carry
            _visit(step.body, dict(zip(step.body.inputs, own, strict=True)), first, later)
        elif step.makes and step.equation.primitive.name not in SUMS:
            (first if _meets_inputs(step, own) else later).add(step.makes.use.kernel.path)
        sources.update(dict.fromkeys(step.outputs, everything))


def _meets_inputs(step: Step, own: list[frozenset[Path]]) -> bool:
    """Whether what a product takes besides its kernel and its bias depends on no parameter."""
    product, rest = step.makes, [paths for paths in own if paths]
    for path in (product.use.kernel.path, product.bias) if product else ():
        if path is not None and frozenset([path]) in rest:
            rest.remove(frozenset([path]))
    return not rest
