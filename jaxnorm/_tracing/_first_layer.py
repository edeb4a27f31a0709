"""The kernels that are multiplied with the inputs themselves, read off the model."""

from collections.abc import Callable
from typing import Any

import jax
from jaxtyping import PyTree

from jaxnorm._tracing._loops import scan_counts
from jaxnorm._tracing._program import trace
from jaxnorm._tracing._values import Body, Step
from jaxnorm._trees._paths import Path, entries, is_node, rebuild_entries
from jaxnorm.reparam._effective import effective

#: The parameters that each variable of a program depends on; none where there is no entry.
Sources = dict[object, frozenset[Path]]


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
        if step.body:
            consts, carry = scan_counts(step.equation)
            # What a turn hands on to the next may depend on all that the scan is given.
            own[consts : consts + carry] = [everything] * carry
            _visit(step.body, dict(zip(step.body.inputs, own, strict=True)), first, later)
        elif step.makes and step.equation.primitive.name not in ("add", "add_any"):
            (first if _meets_inputs(step, own) else later).add(step.makes.use.kernel.path)
        sources.update(dict.fromkeys(step.outputs, everything))


def _meets_inputs(step: Step, own: list[frozenset[Path]]) -> bool:
    """Whether what a product takes besides its kernel and its bias depends on no parameter."""
    product, rest = step.makes, [paths for paths in own if paths]
    for path in (product.use.kernel.path, product.bias) if product else ():
        if path is not None and frozenset([path]) in rest:
            rest.remove(frozenset([path]))
    return not rest
