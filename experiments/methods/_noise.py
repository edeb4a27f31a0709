"""Noise that grows with depth: sigma l / L in layer l of L."""

from collections.abc import Callable

import jax
from jaxtyping import Array, Float, PyTree

from experiments.methods._hidden import hidden_kernels
from experiments.methods._paths import map_by_path
from jaxnorm import collect_preactivations


def growing_noise(
    stddev: float, apply: Callable[..., Array], params: PyTree, x: Float[Array, "rows *shape"]
) -> PyTree:
    """The noise of each kernel's scale, as `jaxnorm.noise_injection` takes it; None elsewhere.

    Layers are counted in the order in which they run, which is not that of their names. The
    classifier has none.

    Args:
        stddev: sigma, that of the last layer.
        apply: ``(params, x) -> logits``.
        params: plain parameters, or their shapes.
        x: rows, or their shape.
    """
    order: list[str] = []

    def run(params: PyTree, x: Array) -> None:
        order.extend(collect_preactivations(apply, params, x, layout=hidden_kernels())[1])

    jax.eval_shape(run, params, x)
    levels = {path: stddev * (number + 1) / len(order) for number, path in enumerate(order)}
    return map_by_path(lambda path, _: levels.get(path), params)
