"""Noise that grows with depth: sigma l / L in layer l of L."""

from collections.abc import Callable
from typing import Any

import jax
from jaxtyping import PyTree

from jaxnorm._trees._layout import Layout, flax_layout
from jaxnorm._trees._paths import entries, rebuild_entries
from jaxnorm.losses import collect_preactivations


def linear_stddev(
    stddev: float,
    apply: Callable[..., Any],
    params: PyTree,
    *inputs: Any,
    layout: Layout = flax_layout,
) -> PyTree:
    """The noise of residual networks: (l / L) sigma for the l-th of L layers in execution order.

    Args:
        stddev: sigma, that of the last layer.
        apply: ``apply(params, *inputs)``, the model as a function of plain parameters; it is traced
            and not run, so parameters and inputs may be shapes.
        params: the parameters, or their shapes; kernels may be reparametrized.
        *inputs: a minibatch, or its shape, and whatever else ``apply`` takes.
        layout: which kernels count as layers.

    Returns:
        A tree as `with_scale_noise` and `noise_injection` take it: a number at each kernel, None
        elsewhere. The order is that in which layers run, not the alphabet of their names.

    Raises:
        ValueError: as `collect_preactivations` does.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> params = {"last": {"kernel": jnp.eye(2)}, "zeroth": {"kernel": jnp.eye(2)}}
        >>> apply = lambda params, x: x @ params["zeroth"]["kernel"] @ params["last"]["kernel"]
        >>> linear_stddev(1.0, apply, params, jnp.ones((4, 2)))
        {'last': {'kernel': 1.0}, 'zeroth': {'kernel': 0.5}}

    Source: Ikami et al. 2021, section 4.3 (linear noise).
    """
    order: list[str] = []

    def run(params: PyTree, *inputs: Any) -> None:
        order.extend(collect_preactivations(apply, params, *inputs, layout=layout)[1])

    jax.eval_shape(run, params, *inputs)
    levels = {path: stddev * (number + 1) / len(order) for number, path in enumerate(order)}
    return rebuild_entries(params, [levels.get(str(path)) for path, _ in entries(params)])
