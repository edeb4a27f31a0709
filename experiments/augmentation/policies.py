"""Sub-policies of two operations, as Fast AutoAugment has them."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from experiments.augmentation.operations import OPERATIONS

Images = Float[Array, "rows height width channels"]
Image = Float[Array, "height width channels"]


class Policies(NamedTuple):
    """Sub-policies of two operations that follow each other, one sub-policy per row.

    Attributes:
        operations: their indices in `OPERATIONS`.
        probabilities: the probability of applying each.
        levels: the place of each magnitude in its operation's range, from 0 to 1.
    """

    operations: Int[Array, "rows 2"]
    probabilities: Float[Array, "rows 2"]
    levels: Float[Array, "rows 2"]


def fast_autoaugment(
    key: Key[Array, ""], images: Images, policies: Policies | None = None
) -> Images:
    """Changes each image by one of the ``policies``, chosen uniformly.

    Without policies, each image's is drawn from the space that Fast AutoAugment searches:
    operations, probabilities and levels are uniform. The policies that the paper's search found are
    published as code, which `read_policies` reads; they are not part of this package.

    Black and white are each channel's least and largest value in the batch: standardization has
    forgotten the images' own. Images stay standardized, rounded to the 256 levels between.

    Args:
        key: for the choices.
        images: standardized images.
        policies: sub-policies; None draws them.

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
    """Draws uniform sub-policies."""
    operation_key, probability_key, level_key = jax.random.split(key, 3)
    return Policies(
        jax.random.randint(operation_key, (rows, 2), 0, len(OPERATIONS)),
        jax.random.uniform(probability_key, (rows, 2)),
        jax.random.uniform(level_key, (rows, 2)),
    )


def apply_policy(key: Key[Array, ""], image: Image, policy: Policies) -> Image:
    """Changes one image of levels 0 to 255 by one sub-policy (a row of `Policies`)."""
    for i, step_key in enumerate(jax.random.split(key)):
        operation, probability, level = (each[i] for each in policy)
        apply_key, operation_key = jax.random.split(step_key)
        changed = apply_operation(operation_key, image, operation, level)
        image = jnp.where(jax.random.bernoulli(apply_key, probability), changed, image)
    return image


def apply_operation(
    key: Key[Array, ""], image: Image, operation: Int[Array, ""], level: Float[Array, ""]
) -> Image:
    """Applies the operation of an index at a level, and rounds to whole levels."""
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
