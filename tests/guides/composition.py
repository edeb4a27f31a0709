"""What is composed with what: a step of each kind, and what is asked of it.

Each function of the table runs the composition and says what it found, in the words of the guide:
"yes", or what has to be done. What is asked of the three columns:

- `constrain`: the units are on the sphere after the last step, and have moved;
- `noise_injection`: the visible scales are noisy, and the clean parameters are those of the same
  steps without noise, under gradients that do not depend on the noise;
- `with_scale_noise`: the loss is noisy, and the step as well defined as without.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jaxnorm as jn
from tests.trees import largest_difference, quick_jit

STEPS = 4
RATE = 0.3
STDDEV = 0.5
DRIFT = 1e-5

_draw = np.random.default_rng(5)
X = jnp.asarray(_draw.normal(size=(8, 8)), jnp.float32)
PARAMS = {
    "dense": {
        "kernel": jnp.asarray(_draw.normal(size=(8, 8)), jnp.float32),
        "bias": jnp.asarray(_draw.normal(size=8), jnp.float32),
    }
}
STACKED = {"layers": {"kernel": jnp.asarray(_draw.normal(size=(2, 8, 8)), jnp.float32)}}

#: What wraps an optimizer, or is one; ``None`` where the row is no part of the optimizer.
Wrap = Callable[[optax.GradientTransformation], optax.GradientTransformation]


def apply(params: Any, x: Any) -> Any:
    return x @ params["dense"]["kernel"] + params["dense"]["bias"][None]


def rematted(params: Any, x: Any) -> Any:
    return jax.checkpoint(apply)(params, x)


def in_bfloat16(params: Any, x: Any) -> Any:
    half = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), params)
    return apply(half, x.astype(jnp.bfloat16)).astype(jnp.float32)


def scanned(params: Any, x: Any) -> Any:
    def layer(x: Any, own: Any) -> Any:
        return jnp.tanh(x @ own["kernel"]), None

    return jax.lax.scan(layer, x, params["layers"])[0]


def matrices(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf.ndim > 1, tree)


def kinds(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: "matrix" if leaf.ndim > 1 else "vector", tree)


def loss_of(model: Any) -> Any:
    return lambda params: jnp.square(model(jn.effective(params), X)).mean()


def train(tx: Any, raw: Any, gradient: Any) -> tuple[list[Any], list[Any]]:
    """The parameters before and after each step, and the optimizer's states."""

    @quick_jit
    def step(raw: Any, state: Any) -> Any:
        updates, state = tx.update(gradient(raw), state, raw)
        return optax.apply_updates(raw, updates), state

    trees, states = [raw], [tx.init(raw)]
    for _ in range(STEPS):
        raw, state = step(raw, states[-1])
        trees.append(raw)
        states.append(state)
    return trees, states


def fixed(raw: Any) -> Any:
    """A gradient that noise on the scales does not change: none of the scales, ones elsewhere."""
    paths = jax.tree_util.tree_map_with_path(
        lambda path, leaf: (
            jnp.zeros_like(leaf) if "scale" in jax.tree_util.keystr(path) else jnp.sin(leaf)
        ),
        raw,
    )
    return jax.lax.stop_gradient(paths)


def drift(raw: Any, layout: Any = jn.flax_layout) -> float:
    return max(float(value) for value in jn.constraint_drift(raw, layout=layout).values())


def on_sphere(tx: Any, raw: Any, model: Any = apply, layout: Any = jn.flax_layout) -> bool:
    last = train(tx, raw, jax.grad(loss_of(model)))[0][-1]
    return drift(last, layout) < DRIFT and largest_difference(last, raw) > 1e-3


def clean_as_without(noisy: Any, plain: Any, raw: Any) -> bool:
    (*_, last), (*_, state) = train(noisy, raw, fixed)
    wanted = train(plain, raw, fixed)[0][-1]
    clean = jn.clean_parameters(state, last)
    return largest_difference(clean, wanted) < 1e-5 and largest_difference(last, clean) > 1e-2


def constrained(base: Any = None, params: Any = PARAMS, layout: Any = jn.flax_layout) -> Any:
    return jn.constrain(params, base or optax.sgd(RATE), layout=layout)


def noisy_loss(model: Any, raw: Any, x: Any = X, wrap: Any = lambda f: f) -> tuple[Any, Any]:
    """Output and gradient of the model with noise, under one key."""
    noisy = jn.with_scale_noise(model, STDDEV)
    run = wrap(lambda raw, x: noisy(jax.random.key(3), raw, x))
    value = quick_jit(run)(raw, x)
    return value, quick_jit(jax.grad(lambda raw: jnp.square(run(raw, x)).mean()))(raw)
