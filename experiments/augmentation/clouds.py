"""Augmentation of point clouds, on the device."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

Clouds = Float[Array, "rows points 3"]


def rotate_and_jitter(key: Key[Array, ""], clouds: Clouds) -> Clouds:
    """Turns each cloud about the up axis by a uniform angle, and adds noise to its points.

    Source: Ikami et al. 2021, section 4.2.1.
    """
    turn_key, noise_key = jax.random.split(key)
    angles = jax.random.uniform(turn_key, clouds.shape[:1], maxval=2 * jnp.pi)
    return jitter(noise_key, rotate(clouds, angles))


def scale_shift_and_jitter(key: Key[Array, ""], clouds: Clouds) -> Clouds:
    """Scales and shifts each coordinate of a cloud, and adds noise to its points.

    Factors are uniform in [2/3, 3/2], shifts in [-0.2, 0.2].

    Source: Wang et al. 2019, section 5.1, which gives no numbers; these are of their code.
    """
    scale_key, shift_key, noise_key = jax.random.split(key, 3)
    shape = (len(clouds), 1, 3)
    factors = jax.random.uniform(scale_key, shape, minval=2 / 3, maxval=3 / 2)
    shifts = jax.random.uniform(shift_key, shape, minval=-0.2, maxval=0.2)
    return jitter(noise_key, clouds * factors + shifts)


def rotate(clouds: Clouds, angles: Float[Array, " rows"]) -> Clouds:
    """Turns each cloud about the up axis; a right angle takes z to x and x to -z."""
    cos, sin = jnp.cos(angles)[:, None], jnp.sin(angles)[:, None]
    x, y, z = jnp.moveaxis(clouds, -1, 0)
    return jnp.stack([cos * x + sin * z, y, cos * z - sin * x], -1)


def jitter(
    key: Key[Array, ""], clouds: Clouds, stddev: float = 0.01, largest: float = 0.05
) -> Clouds:
    """Adds Gaussian noise, clipped at ``largest``, to every coordinate."""
    noise = stddev * jax.random.normal(key, clouds.shape)
    return clouds + jnp.clip(noise, -largest, largest)
