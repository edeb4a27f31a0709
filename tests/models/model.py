"""Model of any library, as the tests use it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp

from tests.draws import draw

BATCH, CLASSES = 8, 3


#: Regular expression for the paths of some kernels, and their fan-in axes by the library's
#: documentation.
Rule = tuple[str, tuple[int, ...]]


class Model(NamedTuple):
    """A classifier in training.

    Attributes:
        apply: ``apply(params, *inputs)``, the logits.
        params: initial parameters, as the library makes them.
        inputs: a minibatch.
        rules: the layout, written by hand.
        head: a regular expression for the classifier's kernel, which is free.
        one_by_one: ``apply`` and inputs for passes layer by layer, if they differ.
    """

    apply: Callable[..., Any]
    params: Any
    inputs: tuple[Any, ...]
    rules: tuple[Rule, ...]
    head: str
    one_by_one: tuple[Callable[..., Any], tuple[Any, ...]] | None = None


IMAGES = draw(0, BATCH, 8, 8, 3)
SEQUENCES = draw(1, BATCH, 5, 6)
LABELS = jnp.arange(BATCH, dtype=jnp.int32) % CLASSES
