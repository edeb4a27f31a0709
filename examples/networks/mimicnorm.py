"""MimicNorm (arXiv 2010.09278) for a network from which batch normalization was taken out.

Kernels of a fan-in above 50 are centered at the start and after each step. Units start with He's
variance, 2 / n, and with 2.8 / n in networks without residual branches; depthwise kernels 1.7 times
smaller. The l-th residual branch has one learned factor, which starts at 1.2^d / l, d = 2, or 3 in
bottleneck blocks, as in the authors' code (the paper has 1 / sqrt(l)). The logits go through a
batch normalization without a scale.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

import jaxnorm as jn
from examples.networks.built import Built, Form
from examples.networks.statistics import estimate_by

Path = tuple[Any, ...]


class Fitted(NamedTuple):
    """The network as MimicNorm trains it.

    Attributes:
        built: its functions; the parameters are ``{"net": ..., "factors": ...}``, the state
            ``{"net": ..., "mean": ..., "var": ...}``.
        constrained: the optimizer of a base optimizer.
    """

    built: Built
    constrained: Callable[[optax.GradientTransformation], optax.GradientTransformation]


def mimicnorm(built: Built, x: jax.Array, free: str, depth: int) -> Fitted:
    """Returns the network with MimicNorm.

    Args:
        built: the network without batch normalization.
        x: inputs.
        free: regular expression of the paths of the classifier and of depthwise kernels.
        depth: d, the convolutions of a residual branch.
    """
    net: jn.Reading = jn.read(built.logits, built.params, x[:1])
    layout = jn.traced_layout(net)
    axes = _by_path(layout(built.params), is_leaf=lambda leaf: isinstance(leaf, tuple))
    hidden = _by_path(
        jn.exclude(free, layout=layout)(built.params), is_leaf=lambda leaf: isinstance(leaf, tuple)
    )
    factors = _by_path(jn.residual_factors(net))
    ends = _in_order([path for path, factor in factors.items() if factor < 1], built, x[:1], layout)

    def drawn(seed: Any) -> Any:
        params = built.draw(seed)
        key = jax.random.key(seed)
        he = lambda path, leaf: _he(key, path, leaf, axes, hidden, not ends)  # noqa: E731
        params = jax.tree_util.tree_map_with_path(he, params)
        return {
            "net": _centered(params, hidden),
            "factors": {str(i): jnp.float32(1.2**depth / (i + 1)) for i in range(len(ends))},
        }

    def wrapped(form: Form) -> Form:
        apply, forgetful = (partial(_logits, form.apply, ends, m) for m in (0.9, 0.0))
        return Form(apply, estimate_by(forgetful))

    classes = built.logits(built.params, x[:1]).shape[-1]
    state = {"net": built.state, "mean": jnp.zeros(classes), "var": jnp.ones(classes)}
    forms = map(wrapped, (built.usual, built.fast, built.narrow))
    fitted = Built(*forms, drawn(0), state, drawn)

    def project(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        moved = optax.apply_updates(params, updates)
        moved["net"] = _centered(moved["net"], hidden)
        return jax.tree.map(jnp.subtract, moved, params), state

    projection = optax.GradientTransformation(lambda params: optax.EmptyState(), project)
    return Fitted(fitted, lambda optimizer: optax.chain(optimizer, projection))


def _in_order(ends: list[Path], built: Built, x: jax.Array, layout: jn.Layout) -> list[Path]:
    """Returns the paths in the order of execution."""
    order: list[str] = []

    def run(params: Any) -> None:
        order.extend(jn.collect_preactivations(jn.read(built.logits, params, x), layout=layout)[1])

    jax.eval_shape(run, built.params)
    name = lambda path: jax.tree_util.keystr(path, simple=True, separator="/")  # noqa: E731
    return sorted(ends, key=lambda path: order.index(name(path)))


def _by_path(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> dict[Path, Any]:
    return dict(jax.tree_util.tree_leaves_with_path(tree, is_leaf=is_leaf))


def _fan_in(leaf: Any, axes: tuple[int, ...]) -> int:
    return math.prod(leaf.shape[axis] for axis in axes)


def _he(key: Any, path: Path, leaf: Any, axes: Any, hidden: Any, is_plain: bool) -> Any:
    """Returns a kernel of He's variance, and any other parameter as it is."""
    if path not in axes:
        return leaf
    deviation = math.sqrt((2.8 if is_plain else 2.0) / _fan_in(leaf, axes[path]))
    if path not in hidden and leaf.ndim == 4 and leaf.shape[-2] == 1:
        deviation /= 1.7
    return leaf * deviation / jnp.sqrt(jnp.mean(leaf**2))


def _centered(params: Any, hidden: Any) -> Any:
    def centered(path: Path, leaf: Any) -> Any:
        if path not in hidden or _fan_in(leaf, hidden[path]) <= 50:
            return leaf
        return jn.center(leaf, hidden[path])

    return jax.tree_util.tree_map_with_path(centered, params)


def _scaled(params: Any, factors: Any, ends: list[Path]) -> Any:
    """Returns the kernels and biases that end a branch times its factor."""
    by_end = {path[:-1]: factors[str(index)] for index, path in enumerate(ends)}
    scaled = lambda path, leaf: leaf * by_end[path[:-1]] if path[:-1] in by_end else leaf  # noqa: E731
    return jax.tree_util.tree_map_with_path(scaled, params)


def _logits(
    apply: Callable[..., Any],
    ends: list[Path],
    momentum: float,
    params: Any,
    state: Any,
    x: Any,
    train: bool,
) -> tuple[jax.Array, Any]:
    """Returns the normalized logits, by the statistics of the state in evaluation."""
    plain = _scaled(params["net"], params["factors"], ends)
    logits, inner = apply(plain, state["net"], x, train=train)
    mean, var = state["mean"], state["var"]
    if train:
        axes = tuple(range(logits.ndim - 1))
        mean, var = logits.mean(axes), logits.var(axes)
        of_batch = jax.lax.stop_gradient({"mean": mean, "var": var})
        moved = lambda old, new: momentum * old + (1 - momentum) * new  # noqa: E731
        state = {name: moved(state[name], new) for name, new in of_batch.items()}
    state = {"net": inner, "mean": state["mean"], "var": state["var"]}
    return (logits - mean) * jax.lax.rsqrt(var + 1e-5), state
