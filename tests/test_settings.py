"""Settings per layer that would do nothing, or not what was meant, are errors."""

import jax.numpy as jnp
import optax
import pytest

from jaxnorm import Scaled, noise_injection, project, reparametrize

PARAMS = {"a": {"kernel": jnp.ones((4, 3))}, "b": {"kernel": jnp.eye(4, 3)}}


def test_under_a_mask_settings_may_be_for_what_is_hidden() -> None:
    masked = {"a": PARAMS["a"], "b": optax.MaskedNode()}
    projected = project(masked, squared_radius={"a": 1.0, "b": 2.0})
    assert isinstance(projected["b"], optax.MaskedNode)


def test_noise_of_none_everywhere_raises() -> None:
    raw = reparametrize(PARAMS, Scaled)
    tx = noise_injection(optax.sgd(0.1), {"a": None, "b": None}, seed=0)
    with pytest.raises(ValueError, match=r"stddev is None for every scale"):
        tx.init(raw)


def test_into_must_be_callable() -> None:
    with pytest.raises(TypeError, match="Scaled"):
        reparametrize(PARAMS, "Scaled")  # type: ignore[arg-type]
