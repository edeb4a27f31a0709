"""The random keys of a run, all from its seed."""

import jax
from jaxtyping import Array, Key, UInt


def run_keys(seed: UInt[Array, ""]) -> Key[Array, "4"]:
    """The independent keys of a run: initialization, batches, noise, probes."""
    return jax.random.split(jax.random.key(seed), 4)


def is_key(leaf: Array) -> bool:
    """Whether a leaf holds random keys."""
    return jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
