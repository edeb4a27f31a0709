"""Sub-policies of two operations, as Fast AutoAugment has them."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from experiments.augmentation.operations import OPERATIONS

Images = Float[Array, "rows height width channels"]
Image = Float[Array, "height width channels"]


class Policies(NamedTuple):
    """Sub-policies, one a row: two operations in turn.

    Attributes:
        operations: the places of the operations in `OPERATIONS`.
        probabilities: with which each is applied.
        levels: from 0 to 1, for each operation's range of magnitudes.
    """

    operations: Int[Array, "rows 2"]
    probabilities: Float[Array, "rows 2"]
    levels: Float[Array, "rows 2"]


def fast_autoaugment(
    key: Key[Array, ""], images: Images, policies: Policies | None = None
) -> Images:
    """Each image changed by a sub-policy, one of ``policies`` chosen uniformly.

    Without policies, each image's is drawn from the space that Fast AutoAugment searches:
    operations, probabilities and levels are uniform. The policies that the paper's search found are
    published as code, which `read_policies` reads; they are not part of this package.

    Black and white are each channel's least and largest value in the batch: standardization has
    forgotten the images' own. Images stay standardized, rounded to the 256 levels between.

    Args:
        key: of the choices.
        images: standardized.
        policies: to choose from.

    Source: Lim et al. 2019, section 3.
    """
    choice_key, apply_key = jax.random.split(key)
    if policies is None:
        chosen = draw_policies(choice_key, len(images))
    else:
        index = jax.random.randint(choice_key, (len(images),), 0, len(policies.operations))
        chosen = Policies(*(each[index] for each in policies))
    black, white = (end((0, 1, 2), keepdims=True) for end in (images.min, images.max))
    scale = jnp.where(white > black, white - black, 1) / 255
    pixels = jnp.round((images - black) / scale)
    keys = jax.random.split(apply_key, len(images))
    return jax.vmap(apply_policy)(keys, pixels, chosen) * scale + black


def draw_policies(key: Key[Array, ""], rows: int) -> Policies:
    """Uniform sub-policies."""
    operation_key, probability_key, level_key = jax.random.split(key, 3)
    return Policies(
        jax.random.randint(operation_key, (rows, 2), 0, len(OPERATIONS)),
        jax.random.uniform(probability_key, (rows, 2)),
        jax.random.uniform(level_key, (rows, 2)),
    )


def apply_policy(key: Key[Array, ""], image: Image, policy: Policies) -> Image:
    """One image of levels 0 to 255 changed by one sub-policy (a row of them)."""
    for place, step_key in enumerate(jax.random.split(key)):
        operation, probability, level = (each[place] for each in policy)
        whether, how = jax.random.split(step_key)
        changed = apply_operation(how, image, operation, level)
        image = jnp.where(jax.random.bernoulli(whether, probability), changed, image)
    return image


def apply_operation(
    key: Key[Array, ""], image: Image, operation: Int[Array, ""], level: Float[Array, ""]
) -> Image:
    """One operation of `OPERATIONS`, by its place, at a level; rounded to whole levels."""
    sign_key, draw_key = jax.random.split(key)
    table = OPERATIONS.values()
    low, high = (
        jnp.array([getattr(each, end) for each in table])[operation] for end in ("low", "high")
    )
    mirrored = jnp.array([each.mirrored for each in table])[operation]
    sign = jnp.where(mirrored & jax.random.bernoulli(sign_key), -1.0, 1.0)
    magnitude = sign * (low + level * (high - low))
    branches = [each.apply for each in table]
    return jnp.round(jax.lax.switch(operation, branches, draw_key, image, magnitude))
