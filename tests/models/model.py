"""What the tests ask of a model, whatever library it is written in."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp

from tests.draws import draw

BATCH, CLASSES = 8, 3


#: The kernels of one kind: a regular expression for their paths, and their fan-in axes, as the
#: library's documentation has them.
Rule = tuple[str, tuple[int, ...]]


class Model(NamedTuple):
    """A classifier in training.

    Attributes:
        apply: ``apply(params, *inputs)``, the logits.
        params: initial parameters, as the library makes them.
        inputs: a minibatch.
        rules: what a hand-written layout says.
        head: a regular expression for the classifier's kernel, which is left free.
        one_by_one: ``apply`` and inputs for what goes layer by layer, if they are others.
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
