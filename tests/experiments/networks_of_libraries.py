"""Networks of a user in Linen, Haiku and Equinox, as `--model FILE.py:NAME` names them."""

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp


class Linen(nn.Module):
    classes: int
    batch_norm: bool = False

    @nn.compact
    def __call__(self, x, train):
        x = nn.Dense(8)(x)
        if self.batch_norm:
            x = nn.BatchNorm(use_running_average=not train, momentum=0.9)(x)
        return nn.Dense(self.classes)(nn.relu(x))


def linen(rngs, shape, classes, batch_norm):
    return Linen(classes, batch_norm)


def linen_with_statistics(rngs, shape, classes):
    return Linen(classes, batch_norm=True)


def linen_with_dropout(rngs, shape, classes):
    class Network(nn.Module):
        @nn.compact
        def __call__(self, x, train):
            return nn.Dense(classes)(nn.Dropout(0.5)(x, deterministic=not train))

    return Network()


def haiku(rngs, shape, classes):
    return hk.transform(lambda x: hk.nets.MLP([8, classes])(x))


def haiku_with_flag(rngs, shape, classes, batch_norm):
    def network(x, is_training):
        x = hk.Linear(8)(x)
        if batch_norm:
            x = hk.BatchNorm(True, True, 0.9)(x, is_training)
        return hk.Linear(classes)(jax.nn.relu(x))

    return hk.transform_with_state(network)


def haiku_without_rng(rngs, shape, classes):
    return hk.without_apply_rng(haiku(rngs, shape, classes))


def haiku_with_state_without_rng(rngs, shape, classes, batch_norm):
    return hk.without_apply_rng(haiku_with_flag(rngs, shape, classes, batch_norm))


def haiku_of_all_rows(rngs, shape, classes, batch_norm):
    def network(x, is_training):
        x = hk.BatchNorm(True, True, 0.9)(hk.Linear(8)(x), is_training)
        return hk.Linear(classes)(jax.nn.relu(x / (0.1 + x.std(0, keepdims=True))))

    return hk.transform_with_state(network)


def haiku_with_draws(rngs, shape, classes):
    return hk.transform(lambda x: hk.Linear(classes)(hk.dropout(hk.next_rng_key(), 0.5, x)))


class Equinox(eqx.Module):
    first: eqx.nn.Linear
    places: jax.Array
    last: eqx.nn.Linear

    def __init__(self, inputs, classes, key):
        first, last = jax.random.split(key)
        self.first = eqx.nn.Linear(inputs, 8, key=first)
        self.places = jnp.arange(8)[::-1]
        self.last = eqx.nn.Linear(8, classes, key=last)

    def __call__(self, x):
        return self.last(jax.nn.relu(self.first(x))[self.places])


def equinox(rngs, shape, classes):
    return Equinox(shape[-1], classes, rngs())


def equinox_with_statistics(rngs, shape, classes):
    layers = [
        eqx.nn.Linear(shape[-1], classes, key=rngs()),
        eqx.nn.BatchNorm(classes, "batch", mode="batch"),
    ]
    return eqx.nn.Sequential(layers)


def equinox_with_state(rngs, shape, classes):
    return eqx.nn.make_with_state(lambda: equinox_with_statistics(rngs, shape, classes))()


def equinox_with_dropout(rngs, shape, classes):
    layers = [eqx.nn.Linear(shape[-1], classes, key=rngs()), eqx.nn.Dropout(0.5)]
    return eqx.nn.Sequential(layers)


def equinox_of_all_rows(rngs, shape, classes):
    class Network(eqx.Module):
        linear: eqx.nn.Linear

        def __call__(self, x):
            return jax.vmap(self.linear)(x)

    return Network(eqx.nn.Linear(shape[-1], classes, key=rngs()))


class Pixels(eqx.Module):
    """Logits at each pixel: Equinox has channels first, and the data have them last."""

    conv: eqx.nn.Conv2d
    last: eqx.nn.Conv2d

    def __call__(self, x):
        x = jax.nn.relu(self.conv(jnp.moveaxis(x, -1, 0)))
        return jnp.moveaxis(self.last(x), 0, -1)


def pixels(rngs, shape, classes):
    conv = eqx.nn.Conv2d(shape[-1], 4, 3, padding=1, key=rngs())
    return Pixels(conv, eqx.nn.Conv2d(4, classes, 1, key=rngs()))
