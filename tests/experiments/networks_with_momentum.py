"""Networks of a user that differ in the momentum of their BatchNorm alone."""

import flax.linen as nn
import haiku as hk
import jax
from flax import nnx


class Flax(nnx.Module):
    def __init__(self, rngs, shape, classes, momentum):
        self.first = nnx.Linear(shape[-1], 8, rngs=rngs)
        self.norm = nnx.BatchNorm(8, momentum=momentum, rngs=rngs)
        self.last = nnx.Linear(8, classes, rngs=rngs)

    def __call__(self, x):
        return self.last(nnx.relu(self.norm(self.first(x))))


class Linen(nn.Module):
    classes: int
    momentum: float

    @nn.compact
    def __call__(self, x, train):
        x = nn.BatchNorm(not train, momentum=self.momentum)(nn.Dense(8)(x))
        return nn.Dense(self.classes)(nn.relu(x))


def of_haiku(classes, momentum):
    def network(x, is_training):
        x = hk.BatchNorm(True, True, momentum)(hk.Linear(8)(x), is_training)
        return hk.Linear(classes)(jax.nn.relu(x))

    return hk.transform_with_state(network)


def flax_slow(rngs, shape, classes):
    return Flax(rngs, shape, classes, 0.99)


def flax_fast(rngs, shape, classes):
    return Flax(rngs, shape, classes, 0.5)


def linen_slow(rngs, shape, classes):
    return Linen(classes, 0.99)


def linen_fast(rngs, shape, classes):
    return Linen(classes, 0.5)


def haiku_slow(rngs, shape, classes):
    return of_haiku(classes, 0.99)


def haiku_fast(rngs, shape, classes):
    return of_haiku(classes, 0.5)
