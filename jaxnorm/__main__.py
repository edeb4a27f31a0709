"""``python -m jaxnorm``: trains a deep sigmoid network with and without zero-sum weights."""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from jaxnorm import __version__, layout_from_rules, linearly_constrain

LAYERS, UNITS, STEPS = 30, 32, 300

#: Hidden kernels are stacked along axis 0 for the scan; axis -2 is the fan-in. The head is free.
HIDDEN = layout_from_rules([("^(first|layers)/kernel$", -2)])


def _apply(params: PyTree, x: Float[Array, "rows features"]) -> Float[Array, " rows"]:
    def hidden(x: Any, layer: Any) -> Any:
        return jax.nn.sigmoid(x @ layer["kernel"] + layer["bias"]), None

    x, _ = hidden(x, params["first"])
    x, _ = jax.lax.scan(hidden, x, params["layers"])
    logits: Float[Array, " rows"] = (x @ params["head"]["kernel"])[:, 0] + params["head"]["bias"]
    return logits


def _init(key: Array) -> PyTree:
    """Normal weights of norm 4.8, at which a sigmoid layer preserves the variance."""
    keys = jax.random.split(key, 3)

    def layer(key: Array, *shape: int) -> PyTree:
        kernel = jax.random.normal(key, shape) * 4.8 / shape[-2] ** 0.5
        return {"kernel": kernel, "bias": jnp.zeros(shape[:-2] + shape[-1:])}

    layers = layer(keys[1], LAYERS - 1, UNITS, UNITS)
    return {"first": layer(keys[0], 2, UNITS), "layers": layers, "head": layer(keys[2], UNITS, 1)}


def _train(params: PyTree, tx: Any) -> tuple[float, float]:
    """Loss and accuracy after training; the label is the sign of the product of two inputs."""
    x = jax.random.normal(jax.random.key(1), (256, 2))
    y = (x[:, 0] * x[:, 1] > 0).astype(jnp.float32)

    def loss(params: PyTree) -> Any:
        logits = _apply(params, x)
        accuracy = ((logits > 0) == (y > 0)).mean()
        return optax.sigmoid_binary_cross_entropy(logits, y).mean(), accuracy

    def step(carry: Any, _: None) -> Any:
        params, state = carry
        metrics, gradient = jax.value_and_grad(loss, has_aux=True)(params)
        updates, state = tx.update(gradient, state, params)
        return (optax.apply_updates(params, updates), state), metrics

    run = jax.jit(lambda params: jax.lax.scan(step, (params, tx.init(params)), None, STEPS)[1])
    losses, accuracies = run(params)
    return float(losses[-1]), float(accuracies[-1])


def main() -> None:
    """Trains the network with plain and with zero-sum weights, and prints both results."""
    print(f"jaxnorm {__version__}: {LAYERS} layers of {UNITS} sigmoid units, {STEPS} steps of SGD")
    params, tx = _init(jax.random.key(0)), optax.sgd(0.1, momentum=0.9)
    print(f"  {'weights':34}   loss  accuracy")
    runs = {
        "plain": (params, tx),
        "zero-sum: linearly_constrain(...)": linearly_constrain(params, tx, layout=HIDDEN),
    }
    for name, (start, optimizer) in runs.items():
        loss, accuracy = _train(start, optimizer)
        print(f"  {name:34} {loss:6.3f} {accuracy:8.0%}")
    print("Chance has the loss 0.693. Next: help(jaxnorm.constrain), for your own optimizer.")


if __name__ == "__main__":
    main()
