"""``python -m jaxnorm``: what zero-sum weights do for a network that does not train, in seconds."""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from jaxnorm import __version__, layout_from_rules, linearly_constrain

LAYERS, UNITS, STEPS = 30, 32, 300

#: The layers are stacked for the scan: an axis in front that is no fan-in. The head is free.
HIDDEN = layout_from_rules([("^(first|layers)/kernel$", -2)])


def _forward(params: PyTree, x: Float[Array, "rows features"]) -> Float[Array, " rows"]:
    def layer(x: Any, own: Any) -> Any:
        return jax.nn.sigmoid(x @ own["kernel"] + own["bias"]), None

    first = jax.nn.sigmoid(x @ params["first"]["kernel"] + params["first"]["bias"])
    last, _ = jax.lax.scan(layer, first, params["layers"])
    logits: Float[Array, " rows"] = (last @ params["head"]["kernel"])[:, 0] + params["head"]["bias"]
    return logits


def _initial(key: Array) -> PyTree:
    """Normal weights of norm 4.8: a sigmoid then hands on as much variance as it gets."""
    keys = jax.random.split(key, 3)

    def dense(key: Array, *shape: int) -> PyTree:
        kernel = jax.random.normal(key, shape) * 4.8 / shape[-2] ** 0.5
        return {"kernel": kernel, "bias": jnp.zeros(shape[:-2] + shape[-1:])}

    layers = dense(keys[1], LAYERS - 1, UNITS, UNITS)
    return {"first": dense(keys[0], 2, UNITS), "layers": layers, "head": dense(keys[2], UNITS, 1)}


def _train(params: PyTree, tx: Any) -> tuple[float, float]:
    """The loss and the accuracy on which side of two lines a point is, after training."""
    x = jax.random.normal(jax.random.key(1), (256, 2))
    y = (x[:, 0] * x[:, 1] > 0).astype(jnp.float32)

    def loss(params: PyTree) -> Any:
        logits = _forward(params, x)
        return optax.sigmoid_binary_cross_entropy(logits, y).mean(), ((logits > 0) == (y > 0))

    def step(carry: Any, _: None) -> Any:
        params, state = carry
        (value, right), gradient = jax.value_and_grad(loss, has_aux=True)(params)
        updates, state = tx.update(gradient, state, params)
        return (optax.apply_updates(params, updates), state), (value, right.mean())

    run = jax.jit(lambda params: jax.lax.scan(step, (params, tx.init(params)), None, STEPS)[1])
    losses, accuracies = run(params)
    return float(losses[-1]), float(accuracies[-1])


def main() -> None:
    """Trains the same network twice, once with zero-sum weights, and prints both."""
    print(f"jaxnorm {__version__}: {LAYERS} layers of {UNITS} sigmoid units, {STEPS} steps of SGD")
    params, tx = _initial(jax.random.key(0)), optax.sgd(0.1, momentum=0.9)
    print(f"  {'weights':34}   loss  accuracy")
    both = {
        "as they are": (params, tx),
        "zero-sum: linearly_constrain(...)": linearly_constrain(params, tx, layout=HIDDEN),
    }
    for name, (start, optimizer) in both.items():
        loss, accuracy = _train(start, optimizer)
        print(f"  {name:34} {loss:6.3f} {accuracy:8.0%}")
    print("Chance has the loss 0.693. Next: help(jaxnorm.constrain), for your own optimizer.")


if __name__ == "__main__":
    main()
