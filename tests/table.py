"""The one table of all transforms. A new transform is a new row; every property test runs on it."""

import re
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxnorm import (
    Scaled,
    centered_gradient,
    clip_by_layer_norm,
    noise_injection,
    sphere_projection,
    stiefel_projection,
)

#: Kernels alone, the one of a `Scaled` node included.
KERNELS = r"kernel(/kernel)?$"
#: The scale of a `Scaled` node.
SCALES = r"kernel/scale$"
EVERYTHING = ""


class Row(NamedTuple):
    """One transform.

    Attributes:
        name: the name of its tests.
        tx: the transform.
        base: what it edits: the wrapped optimizer, or the identity.
        may_change: the paths at which its step may differ from the base's, as a regular expression.
        promotion: what optax's own part of it needs of ``jax.numpy_dtype_promotion``.
        by_unit: whether it is a function of one unit's weights and gradient at a time.
    """

    name: str
    tx: optax.GradientTransformation
    base: optax.GradientTransformation
    may_change: str
    promotion: Literal["strict", "standard"] = "strict"
    by_unit: bool = False

    def lands(self, path: str) -> bool:
        """Whether its step at a path is one to a point: of the parameters' type, if it is wider."""
        return self.name.startswith(("sphere", "stiefel")) and self.changes(path)

    def changes(self, path: str) -> bool:
        return re.search(self.may_change, path) is not None


#: The paper's c per layer, as a pytree prefix.
RADII = {"conv": 2.0, "dense": 0.5, "scaled": 3.0}

NOTHING = optax.identity()
SGD = optax.sgd(0.1)
# float16 rounds Adam's usual eps = 1e-8 to zero, and its steps are then 0/0.
ADAM_ON_SPHERE = optax.chain(optax.adam(1e-2, eps=1e-3), sphere_projection())

TABLE = (
    Row("centered_gradient", centered_gradient(), NOTHING, KERNELS, by_unit=True),
    Row("sphere", sphere_projection(), NOTHING, KERNELS, by_unit=True),
    Row("sphere_uncentered", sphere_projection(centered=False), NOTHING, KERNELS, by_unit=True),
    Row(
        "sphere_radius_tree",
        sphere_projection(squared_radius=RADII),
        NOTHING,
        KERNELS,
        by_unit=True,
    ),
    Row("sphere_tangent", sphere_projection(tangent=True), NOTHING, KERNELS, by_unit=True),
    Row("stiefel", stiefel_projection(), NOTHING, KERNELS),
    Row("noise_sgd", noise_injection(SGD, 0.5, seed=3), SGD, SCALES),
    Row(
        "noise_adam_sphere",
        noise_injection(ADAM_ON_SPHERE, 0.5, seed=4),
        ADAM_ON_SPHERE,
        SCALES,
        promotion="standard",
    ),
    Row("clip_by_layer_norm", clip_by_layer_norm(0.5), NOTHING, EVERYTHING),
)


def example(seed: int, dtype: Any = jnp.float32) -> dict[str, Any]:
    """Random parameters, or gradients: dense and HWIO kernels, biases, and a `Scaled` node."""
    draw = np.random.default_rng(seed)

    def normal(*shape: int) -> jax.Array:
        return jnp.asarray(draw.normal(size=shape), dtype)

    return {
        "conv": {"bias": normal(8), "kernel": normal(3, 3, 2, 8)},
        "dense": {"bias": normal(8), "kernel": normal(4, 8)},
        "scaled": {"bias": normal(8), "kernel": Scaled(normal(8, 8), 1 + normal(8), (-2,))},
    }


def example_params(dtype: Any = jnp.float32) -> dict[str, Any]:
    return example(0, dtype)


def example_gradients(dtype: Any = jnp.float32) -> dict[str, Any]:
    return example(1, dtype)
