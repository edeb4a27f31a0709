"""``python -m jaxnorm``: trains a deep sigmoid network with and without zero-sum weights."""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from jaxnorm import __version__, layout_from_rules, linearly_constrain

LAYERS, UNITS, STEPS = 30, 32, 600

#: Kernels are stacked along axis 0 for the scan; axis -2 is the fan-in. The first one is free: of
#: two inputs a unit whose weights sum to zero sees one number, their difference.
HIDDEN = layout_from_rules([("^layers/kernel$", -2)])

#: The inputs that are drawn, from -LIMIT to LIMIT, and the characters of the picture.
LIMIT, COLUMNS, LINES = 2.2, 33, 13


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


def _label(x: Float[Array, "rows 2"]) -> Any:
    """1 inside a disc that has half of the inputs, 0 outside."""
    return (jnp.square(x).sum(1) < 1.39).astype(jnp.float32)


def _train(params: PyTree, tx: Any) -> tuple[PyTree, float, float]:
    """Trained parameters, loss and accuracy."""
    x = jax.random.normal(jax.random.key(1), (256, 2))
    y = _label(x)

    def loss(params: PyTree) -> Any:
        logits = _apply(params, x)
        accuracy = ((logits > 0) == (y > 0)).mean()
        return optax.sigmoid_binary_cross_entropy(logits, y).mean(), accuracy

    def step(carry: Any, _: None) -> Any:
        params, state = carry
        metrics, gradient = jax.value_and_grad(loss, has_aux=True)(params)
        updates, state = tx.update(gradient, state, params)
        return (optax.apply_updates(params, updates), state), metrics

    run = jax.jit(lambda params: jax.lax.scan(step, (params, tx.init(params)), None, STEPS))
    (params, _), (losses, accuracies) = run(params)
    return params, float(losses[-1]), float(accuracies[-1])


def _picture(params: PyTree) -> list[str]:
    """Lines with a # where the network says "inside"."""
    heights, widths = (jnp.linspace(-LIMIT, LIMIT, count) for count in (LINES, COLUMNS))
    x = jnp.stack(jnp.meshgrid(widths, heights), -1).reshape(-1, 2)
    inside = (_apply(params, x) > 0).reshape(LINES, COLUMNS).tolist()
    return ["".join(".#"[each] for each in line) for line in inside]


def main() -> None:
    """Trains the network with plain and with zero-sum weights, and draws what both have learned."""
    print(f"jaxnorm {__version__}: is a point inside a disc? {LAYERS} layers of {UNITS} sigmoids")
    params = _init(jax.random.key(0))
    tx = optax.sgd(optax.cosine_decay_schedule(0.1, STEPS), momentum=0.9)
    runs = {
        "plain weights": (params, tx),
        "zero-sum: linearly_constrain": linearly_constrain(params, tx, layout=HIDDEN),
    }
    trained = [_train(start, optimizer) for start, optimizer in runs.values()]
    results = [f"loss {loss:.3f}, {accuracy:.0%} right" for _, loss, accuracy in trained]
    pictures = [_picture(params) for params, _, _ in trained]
    for left, right in [tuple(runs), results, *zip(*pictures, strict=True)]:
        print(f"{left:{COLUMNS}}  {right}")
    print("Chance has the loss 0.693. Next: help(jaxnorm.constrain), for your own optimizer.")


if __name__ == "__main__":
    main()
