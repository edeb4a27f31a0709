"""Matrix products of parameters have the highest precision, on TPUs and GPUs too."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest

import jaxnorm as jn

PARAMS = {"kernel": jax.random.normal(jax.random.key(0), (6, 4))}


def spectral_gradient(params: Any) -> Any:
    raw = jn.reparametrize(params, jn.SpectrallyNormalized)
    raw = jn.spectral.attach_singular_vectors(raw, jn.spectral.power_iteration(raw))
    return jax.grad(lambda raw: jnp.square(jn.effective(raw)["kernel"][0]).sum())(raw)


def power_iteration(params: Any) -> Any:
    raw = jn.reparametrize(params, jn.SpectrallyNormalized)
    return jn.spectral.power_iteration(raw, jn.spectral.power_iteration(raw))


def stiefel_step(params: Any) -> Any:
    tx = optax.chain(optax.sgd(0.1), jn.stiefel_projection())
    return tx.update(params, tx.init(params), params)


def error_and_bound(params: Any) -> Any:
    weights = params["kernel"].T
    normprop = jn.theory.normprop
    return normprop.canonical_error(weights), normprop.canonical_error_bound(weights)


FUNCTIONS = [spectral_gradient, power_iteration, stiefel_step, error_and_bound]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_products_have_the_highest_precision(function: Callable[[Any], Any]) -> None:
    program = jax.jit(function).lower(PARAMS).as_text().splitlines()
    products = [line for line in program if "dot_general" in line]
    assert products
    assert not [line for line in products if "precision = [HIGHEST, HIGHEST]" not in line]
