"""One recipe for any network from which batch normalization was taken out.

`jaxnorm.normalizer_free` has replaced it; it stays for the tables that were made with it.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import optax

import jaxnorm as jn

#: ``logits(params, x)``, a network without batch normalization.
Logits = Callable[[Any, jax.Array], jax.Array]


def hidden_kernels(logits: Logits, params: Any, x: jax.Array, free: str) -> jn.Layout:
    """Returns the layout of all kernels but the classifier's and depthwise ones.

    Args:
        logits: the network.
        params: its parameters.
        x: inputs.
        free: regular expression of the paths that are not constrained: of the classifier, and of
            depthwise kernels, whose units read one channel, the mean of which a zero sum removes.
    """
    return jn.exclude(free, layout=jn.traced_layout(logits, params, x[:1]))


def initial(logits: Logits, params: Any, x: jax.Array, layout: jn.Layout) -> Any:
    """Returns zero-sum kernels with pre-activations of unit variance, and quiet branches.

    Args:
        logits: the network.
        params: its random parameters.
        x: a batch of inputs, to which the sizes of the kernels are fitted.
        layout: the kernels that are constrained.
    """
    centered, _ = jn.linearly_constrain(params, optax.identity(), layout=layout)
    preserving = jax.jit(partial(jn.variance_preserving_init, logits, layout=layout))
    return jn.scale_branches(preserving(centered, x), jn.residual_factors(logits, params, x[:1]))


def constrained(
    optimizer: optax.GradientTransformation, params: Any, layout: jn.Layout
) -> optax.GradientTransformation:
    """Returns the optimizer, which sees centered gradients and keeps the kernels zero-sum.

    The part of a gradient that the constraint takes out does not count for clipping in this way.

    Args:
        optimizer: any optax transformation.
        params: the network's random parameters.
        layout: the kernels that are constrained.
    """
    centered = optax.chain(jn.centered_gradient(layout), optimizer)
    return jn.linearly_constrain(params, centered, layout=layout)[1]
