"""The random keys of a run, all from its seed."""

import jax
from jaxtyping import Array, Int, Key, UInt


def run_keys(seed: UInt[Array, ""]) -> Key[Array, "4"]:
    """The independent keys of a run: initialization, batches, noise, probes."""
    return jax.random.split(jax.random.key(seed), 4)


def row_keys(
    seed: UInt[Array, ""], epoch: Int[Array, ""], index: Int[Array, ""], rows: int
) -> Key[Array, " rows"]:
    """A key for each row of a batch, for what is drawn for each sample."""
    key = jax.random.fold_in(jax.random.fold_in(run_keys(seed)[2], epoch), index)
    return jax.random.split(key, rows)


def is_key(leaf: Array) -> bool:
    """Whether a leaf holds random keys."""
    return jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
