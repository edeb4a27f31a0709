"""Noise that grows with depth: sigma l / L in layer l of L."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jaxtyping import PyTree

from jaxnorm._trace import run_layers
from jaxnorm._trees._layout import Layout, flax_layout
from jaxnorm._trees._paths import Path, entries, listed, rebuild_entries


def linear_stddev(
    stddev: float,
    apply: Callable[..., Any],
    params: PyTree,
    *inputs: Any,
    layout: Layout = flax_layout,
    free: Sequence[str] = (),
) -> PyTree:
    """The noise of residual networks: (l / L) sigma for the l-th of L layers in execution order.

    Args:
        stddev: sigma, that of the last layer.
        apply: ``apply(params, *inputs)``, the model as a function of plain parameters; it is traced
            and not run, so parameters and inputs may be shapes.
        params: the parameters, or their shapes; kernels may be reparametrized.
        *inputs: a minibatch, or its shape, and whatever else ``apply`` takes.
        layout: which kernels count as layers.
        free: regular expressions, searched for in the ``/``-joined paths, of parameters that the
            model uses as if they were inputs (learned queries), as `traced_layout` takes them.

    Returns:
        A tree as `with_scale_noise` and `noise_injection` take it: a number at each kernel, None
        elsewhere. The order is that in which layers run, not the alphabet of their names.

    Raises:
        ValueError: as `collect_preactivations` does, and for a stack of layers that the model scans
            over, which one number would not fit.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> params = {"last": {"kernel": jnp.eye(2)}, "zeroth": {"kernel": jnp.eye(2)}}
        >>> apply = lambda params, x: x @ params["zeroth"]["kernel"] @ params["last"]["kernel"]
        >>> linear_stddev(1.0, apply, params, jnp.ones((4, 2)))
        {'last': {'kernel': 1.0}, 'zeroth': {'kernel': 0.5}}

    Source: Ikami et al. 2021, section 4.3 (linear noise).
    """
    layers: dict[Path, tuple[int, ...]] = {}

    def run(params: PyTree, *inputs: Any) -> None:
        visit = lambda call, _: (call.output, None)  # noqa: E731
        _, seen = run_layers(apply, params, inputs, layout, visit, free=free)
        layers.update({path: axes for path, (_, axes) in seen.items()})

    jax.eval_shape(run, params, *inputs)
    if stacked := [path for path, axes in layers.items() if axes]:
        raise ValueError(
            f"the kernels {listed(stacked)} are stacks of layers that the model scans over, and "
            "linear_stddev gives each kernel one number; wanted one a layer. Leave them out of "
            "the layout, and give with_scale_noise an array with one value a layer for them."
        )
    levels = {path: stddev * (number + 1) / len(layers) for number, path in enumerate(layers)}
    return rebuild_entries(params, [levels.get(path) for path, _ in entries(params)])
