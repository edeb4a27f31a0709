"""Programs exported for three platforms contain no choice of platform."""

from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest

from jaxnorm import (
    CenteredWeightNormalized,
    LinearlyConstrained,
    Scaled,
    WeightNormalized,
    WeightStandardized,
    batch_moments,
    clip_by_layer_norm,
    constrain,
    effective,
    reparametrize,
)

#: Large enough for any choice by size.
KERNEL = jnp.cos(jnp.arange(3 * 3 * 64 * 64.0)).reshape(3, 3, 64, 64)
#: Without SpectrallyNormalized, because JAX lowers matrix products per platform.
NODES = (
    CenteredWeightNormalized,
    LinearlyConstrained,
    Scaled,
    WeightNormalized,
    WeightStandardized,
)


def exported(f: Any, *arguments: Any) -> str:
    return str(
        jax.export.export(jax.jit(f), platforms=["cpu", "tpu", "cuda"])(*arguments).mlir_module()
    )


def assert_plain(text: str) -> None:
    assert "stablehlo" in text
    for choice in ("optimization_barrier", "stablehlo.case", "stablehlo.if"):
        assert choice not in text, choice


def test_the_constrained_step_with_clipping() -> None:
    raw, tx = constrain({"conv": {"kernel": KERNEL}}, optax.sgd(0.1, momentum=0.9))
    tx = optax.chain(clip_by_layer_norm(1.0), tx)
    assert_plain(exported(lambda g, s, p: tx.update(g, s, p), raw, tx.init(raw), raw))


@pytest.mark.parametrize("kind", NODES)
def test_effective_and_its_gradient(kind: Any) -> None:
    raw = reparametrize({"kernel": KERNEL}, kind)
    assert_plain(
        exported(lambda p: jax.grad(lambda q: jnp.sin(effective(q)["kernel"]).sum())(p), raw)
    )


def test_moments() -> None:
    assert_plain(exported(lambda x: batch_moments(x, (0, 1, 2)), KERNEL))
