"""Kernels sharded along their fan-in: the sums travel, the kernels do not."""

from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest
from jax.sharding import PartitionSpec as P

from jaxnorm import sphere_projection
from tests.devices import collectives, mesh

SHAPES = {"dense": ((784, 256), P("data")), "conv": ((3, 3, 64, 128), P(None, None, "data"))}


@pytest.mark.parametrize("tangent", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_nothing_is_gathered(shape: str, tangent: bool) -> None:
    sizes, spec = SHAPES[shape]
    tx = sphere_projection(tangent=tangent)

    def step(updates: Any, params: Any) -> Any:
        return optax.apply_updates(params, tx.update(updates, optax.EmptyState(), params)[0])

    with jax.set_mesh(mesh(8)):
        kernel = jax.device_put(jnp.ones(sizes), spec)
        sent = collectives(step, {"kernel": kernel}, {"kernel": kernel})
    assert set(sent) == {"all-reduce"}
    if not tangent:
        assert len(sent) == 1
