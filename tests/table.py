"""Table of all transforms: each property test runs on every row."""

import re
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from jaxnorm import (
    Scaled,
    centered_gradient,
    centered_inputs,
    clip_by_layer_norm,
    constrain_updates,
    effective,
    fixed_step,
    noise_injection,
    read,
    sphere_projection,
    stiefel_projection,
    zero_sum_projection,
)
from tests.draws import float32

#: Paths of kernels, including the kernel of a `Scaled` node.
KERNELS = r"kernel(/kernel)?$"
#: Path of the scale of a `Scaled` node.
SCALES = r"kernel/scale$"
ALL = ""


class Row(NamedTuple):
    """One transform of the table.

    Attributes:
        name: the name in the ids of tests.
        tx: the transform.
        base: the transform that ``tx`` edits: the wrapped optimizer, or the identity.
        may_change: regular expression of the paths where the updates of ``tx`` and ``base`` differ.
        promotion: the ``jax.numpy_dtype_promotion`` that optax's part of ``tx`` needs.
        by_unit: whether each unit's update depends on that unit's weights and gradient only.
    """

    name: str
    tx: optax.GradientTransformation
    base: optax.GradientTransformation
    may_change: str
    promotion: Literal["strict", "standard"] = "strict"
    by_unit: bool = False

    def lands(self, path: str) -> bool:
        """True if updates at a path land on a constraint, and so have the wider of both types."""
        return self.name.startswith(
            ("sphere", "stiefel", "zero_sums", "constrain")
        ) and self.changes(path)

    def changes(self, path: str) -> bool:
        return re.search(self.may_change, path) is not None


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


def network(params: dict[str, Any], x: jax.Array) -> jax.Array:
    """Network of the example's layers; the kernel of the third is reparametrized."""
    conv, dense, scaled = (params[name] for name in ("conv", "dense", "scaled"))
    x = jax.lax.conv_general_dilated(
        x, conv["kernel"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    x = jax.nn.relu(x + conv["bias"][None, None, None]).mean((1, 2))[:, :4]
    x = jax.nn.relu(x @ dense["kernel"] + dense["bias"][None])
    return x @ effective(scaled["kernel"]) + scaled["bias"][None]


#: The paper's c per layer, as a pytree prefix.
RADII = {"conv": 2.0, "dense": 0.5, "scaled": 3.0}

IDENTITY = optax.identity()
SGD = optax.sgd(0.1)
IMAGES = float32(np.random.default_rng(2).normal(1, 1, (4, 5, 5, 2)))
CENTERED = centered_inputs(read(network, example_params(), IMAGES), SGD)
# float16 rounds Adam's usual eps = 1e-8 to zero, and its steps are then 0/0.
ADAM_ON_SPHERE = optax.chain(optax.adam(1e-2, eps=1e-3), sphere_projection())


def norm_at_most(kernel: Array, fan_in_axes: tuple[int, ...]) -> Array:
    """A constraint of a user: units of a norm of 0.5 at most."""
    norm = jnp.sqrt(jnp.square(kernel).sum(fan_in_axes, keepdims=True))
    return kernel / jnp.maximum(norm / 0.5, 1)


TABLE = (
    Row("centered_gradient", centered_gradient(), IDENTITY, KERNELS, by_unit=True),
    Row("sphere", sphere_projection(), IDENTITY, KERNELS, by_unit=True),
    Row("sphere_uncentered", sphere_projection(centered=False), IDENTITY, KERNELS, by_unit=True),
    Row(
        "sphere_radius_tree",
        sphere_projection(squared_radius=RADII),
        IDENTITY,
        KERNELS,
        by_unit=True,
    ),
    Row("sphere_tangent", sphere_projection(tangent=True), IDENTITY, KERNELS, by_unit=True),
    Row("stiefel", stiefel_projection(), IDENTITY, KERNELS),
    Row("noise_sgd", noise_injection(SGD, 0.5, seed=3), SGD, SCALES),
    Row(
        "noise_adam_sphere",
        noise_injection(ADAM_ON_SPHERE, 0.5, seed=4),
        ADAM_ON_SPHERE,
        SCALES,
        promotion="standard",
    ),
    Row("zero_sums", zero_sum_projection(), IDENTITY, KERNELS, by_unit=True),
    Row("constrain_updates", constrain_updates(norm_at_most), IDENTITY, KERNELS, by_unit=True),
    Row("centered_inputs", CENTERED, SGD, r"(conv|dense)/(kernel|bias)$"),
    Row("fixed_step", fixed_step(0.1), IDENTITY, KERNELS, by_unit=True),
    Row("clip_by_layer_norm", clip_by_layer_norm(0.5), IDENTITY, ALL),
)
