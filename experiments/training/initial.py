"""Checksums of initial parameters, which tell draws apart and not the rounding of processors."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from experiments.methods.paths import by_path

#: The norm of each leaf, and its product with fixed numbers, by the leaf's path.
Checksums = Mapping[str, tuple[float, float]]

#: The share of a norm within which two checksums are of one draw.
ROUNDING = 1e-3


def initial_checksums(params: PyTree) -> dict[str, tuple[float, float]]:
    """Returns two numbers per floating-point leaf; a leaf of other values has others."""
    leaves = {
        path: leaf
        for path, leaf in by_path(params).items()
        if jnp.issubdtype(leaf.dtype, jnp.floating)
    }
    values = jax.device_get(jax.jit(lambda each: jax.tree.map(_checksum, each))(leaves))
    return {path: (float(norm), float(product)) for path, (norm, product) in values.items()}


def _checksum(leaf: Float[Array, "*shape"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
    values = leaf.astype(jnp.float32).ravel()
    weights = jnp.sin(jnp.arange(1, values.size + 1, dtype=jnp.float32))
    return jnp.sqrt(jnp.square(values).sum()), (values * weights).sum()


def other_draws(stored: Checksums, drawn: Checksums) -> list[str]:
    """Returns the paths of the leaves whose checksums differ beyond rounding."""

    def differ(path: str) -> bool:
        if path not in stored or path not in drawn:
            return True
        scale = max(stored[path][0], drawn[path][0])
        return any(
            abs(one - other) > ROUNDING * scale
            for one, other in zip(stored[path], drawn[path], strict=True)
        )

    return [path for path in dict.fromkeys([*stored, *drawn]) if differ(path)]
