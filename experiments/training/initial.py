"""Checksums of initial parameters, which tell draws apart and not the rounding of processors."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from experiments.methods.paths import by_path


def initial_checksums(params: PyTree) -> dict[str, tuple[float, float]]:
    """Returns two numbers per floating-point leaf; a leaf of other values has others."""
    leaves = {
        path: leaf
        for path, leaf in by_path(params).items()
        if jnp.issubdtype(leaf.dtype, jnp.floating)
    }
    values = jax.device_get(_checksums(leaves))
    return {path: (float(norm), float(product)) for path, (norm, product) in values.items()}


@jax.jit
def _checksums(leaves: dict[str, Array]) -> dict[str, tuple[Array, Array]]:
    """Returns the checksums of all leaves; compiled once for all seeds of a method."""
    return {path: _checksum(leaf) for path, leaf in leaves.items()}


def _checksum(leaf: Float[Array, "*shape"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
    values = leaf.astype(jnp.float32).ravel()
    weights = jnp.sin(jnp.arange(1, values.size + 1, dtype=jnp.float32))
    return jnp.sqrt(jnp.square(values).sum()), (values * weights).sum()
