"""A scale in the kernel is a scale on the activations: same outputs, same gradients."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnorm import Scaled, effective, reparametrize
from jaxnorm.nnx import functionalize, replace_batch_norm
from tests.nnx.cases import FOLDABLE, Case, at

#: The promise, float32: a few layers with sums over at most 144 weights, on values of order one.
FLOAT32 = {"rtol": 1e-5, "atol": 1e-5}
#: All but the ResNet, whose scales that start at zero no kernel can carry.
CASES = FOLDABLE[1:]


class TwoForms:
    """A model with its scales in kernels, and the same with its scales on activations.

    Both get the same random scales and biases, by the table's paths.
    """

    def __init__(self, case: Case):
        self.case = case
        self.on_weights = functionalize(replace_batch_norm(case.model(), case.input()))
        self.on_activations = functionalize(replace_batch_norm(case.model()))

    def weight_params(self, scales: Any, shifts: Any) -> Any:
        raw = reparametrize(self.on_weights.params, Scaled)
        for norm, layer in self.case.followed.items():
            parent = at(raw, layer)
            node = parent["kernel"]
            parent["kernel"] = Scaled(node.kernel, scales[norm], node.fan_in_axes)
            # The layer's own bias is before the normalization's scale, its new one after it.
            parent["bias"] = shifts[norm] + scales[norm] * self.own_bias(layer)
        return raw

    def own_bias(self, layer: str) -> Any:
        return at(self.on_activations.params, layer).get("bias", jnp.zeros(()))

    def activation_params(self, scales: Any, shifts: Any) -> Any:
        params = jax.tree.map(lambda leaf: leaf, self.on_activations.params)
        for norm in self.case.followed:
            at(params, norm)["channel_scale"] = scales[norm]
            at(params, norm)["bias"] = shifts[norm]
        return params

    def by_weights(self, scales: Any, shifts: Any) -> Any:
        params = effective(self.weight_params(scales, shifts))
        return self.on_weights.apply(params, self.on_weights.state, self.case.input(), train=False)[
            0
        ]

    def by_activations(self, scales: Any, shifts: Any) -> Any:
        params = self.activation_params(scales, shifts)
        return self.on_activations.apply(
            params, self.on_activations.state, self.case.input(), train=False
        )[0]

    def drawn(self, seed: int) -> dict[str, Any]:
        draw = np.random.default_rng(seed)
        sizes = {
            norm: at(self.on_activations.params, norm)["bias"].shape for norm in self.case.followed
        }
        return {norm: jnp.asarray(draw.normal(size=s), jnp.float32) for norm, s in sizes.items()}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_scale_in_the_kernel_is_scale_on_the_activations(case: Case) -> None:
    forms = TwoForms(case)
    drawn = forms.drawn(1), forms.drawn(2)
    wanted = forms.by_activations(*drawn)
    neutral = jax.tree.map(jnp.ones_like, drawn[0]), jax.tree.map(jnp.zeros_like, drawn[1])
    assert np.abs(wanted - forms.by_activations(*neutral)).max() > 0.1
    np.testing.assert_allclose(forms.by_weights(*drawn), wanted, **FLOAT32)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_gradients_of_scale_and_bias_are_the_same(case: Case) -> None:
    forms = TwoForms(case)
    drawn = forms.drawn(1), forms.drawn(2)

    def gradients(function: Any) -> Any:
        return jax.jit(jax.grad(lambda a, b: jnp.sin(function(a, b)).mean(), (0, 1)))(*drawn)

    got, wanted = gradients(forms.by_weights), gradients(forms.by_activations)
    assert min(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(wanted)) > 1e-4
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **FLOAT32), got, wanted)
