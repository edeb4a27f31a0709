"""Equinox: a convolutional network and a recurrent one, each written for one sample."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from tests.draws import draw
from tests.models.model import BATCH, CLASSES, IMAGES, SEQUENCES, Model

KEY = jax.random.key(0)


class Convolutional(eqx.Module):
    layers: list[Any]

    def __init__(self, key: Any):
        keys = jax.random.split(key, 4)
        self.layers = [
            eqx.nn.Conv2d(3, 6, 3, padding=1, key=keys[0]),
            eqx.nn.BatchNorm(6, axis_name="batch", mode="batch"),
            jax.nn.relu,
            eqx.nn.MaxPool2d(2, 2),
            eqx.nn.Conv2d(6, 8, 3, groups=2, key=keys[1]),
            eqx.nn.GroupNorm(2, 8),
            jax.nn.relu,
            jnp.ravel,
            eqx.nn.Linear(32, 10, key=keys[2]),
            jax.nn.sigmoid,
            eqx.nn.Linear(10, CLASSES, key=keys[3]),
        ]

    def __call__(self, x: Any, state: Any) -> Any:
        for layer in self.layers:
            if isinstance(layer, eqx.nn.StatefulLayer):
                x, state = layer(x, state)
            else:
                x = layer(x)
        return x, state


class Recurrent(eqx.Module):
    cell: eqx.nn.GRUCell
    head: eqx.nn.Linear

    def __init__(self, key: Any):
        keys = jax.random.split(key)
        self.cell = eqx.nn.GRUCell(SEQUENCES.shape[-1], 7, key=keys[0])
        self.head = eqx.nn.Linear(7, CLASSES, key=keys[1])

    def __call__(self, sequence: Any, state: Any) -> Any:
        step = lambda state, x: (self.cell(x, state), None)  # noqa: E731
        return self.head(jax.lax.scan(step, state, sequence)[0])

    def first_step(self, x: Any, state: Any) -> Any:
        return self.head(self.cell(x, state))


def _without_biases(params: Any) -> Any:
    """Parameters with biases of zero, so that pre-activations are products of weights alone."""

    def zero(path: Any, leaf: Any) -> Any:
        return jnp.zeros_like(leaf) if "bias" in jax.tree_util.keystr(path) else leaf

    return jax.tree_util.tree_map_with_path(zero, params)


def convolutional() -> Model:
    model, state = eqx.nn.make_with_state(Convolutional)(KEY)
    params, static = eqx.partition(model, eqx.is_inexact_array)

    def apply(params: Any, x: Any) -> Any:
        of_batch = jax.vmap(
            eqx.combine(params, static), in_axes=(0, None), out_axes=(0, None), axis_name="batch"
        )
        return of_batch(x, state)[0]

    images = jnp.moveaxis(IMAGES, -1, 1)
    rules = (
        (r"layers/[04]/weight$", (-3, -2, -1)),
        (r"layers/(8|10)/weight$", (-1,)),
    )
    return Model(apply, _without_biases(params), (images,), rules, "layers/10/")


def gru() -> Model:
    params, static = eqx.partition(Recurrent(KEY), eqx.is_inexact_array)

    def apply(params: Any, sequences: Any, states: Any) -> Any:
        return jax.vmap(eqx.combine(params, static))(sequences, states)

    def first_step(params: Any, x: Any, states: Any) -> Any:
        return jax.vmap(eqx.combine(params, static).first_step)(x, states)

    states = draw(3, BATCH, 7)
    rules = ((r"cell/weight_[ih]h$", (-1,)), (r"head/weight$", (-1,)))
    return Model(
        apply,
        _without_biases(params),
        (SEQUENCES, states),
        rules,
        "head/",
        (first_step, (SEQUENCES[:, 0], states)),
    )
