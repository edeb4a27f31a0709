"""Models of other libraries, untouched: their layout read off them, and every method on them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
import pytest

from jaxnorm import (
    Layout,
    Scaled,
    constrain,
    effective,
    exclude,
    layout_from_rules,
    traced_layout,
)
from jaxnorm._trees._constrained import constrained_leaves
from jaxnorm._trees._paths import entries
from jaxnorm.initializers import data_dependent_init, variance_preserving_init
from jaxnorm.losses import (
    collect_preactivations,
    initial_betas,
    positive_betas,
    total_variance_constancy,
)
from tests import oracles
from tests.losses.oracles import variance_constancy
from tests.models import of_equinox, of_haiku, of_linen, of_nnx
from tests.models.model import LABELS, Model
from tests.trees import quick_jit

STEPS, SQUARED_RADIUS = 30, 2.0

#: Of weights, sums and squared norms, in float64: what thirty steps may drift.
DRIFT = 1e-6

#: Of float32 moments over up to 512 values, behind a dozen layers of float32 rounding.
MOMENTS = 2e-4

MODELS: dict[str, Callable[[], Model]] = {
    "linen resnet": of_linen.resnet,
    "linen transformer": of_linen.transformer,
    "haiku resnet": of_haiku.resnet,
    "equinox convolutional": of_equinox.convolutional,
    "equinox gru": of_equinox.gru,
    "nnx vit": of_nnx.vit,
}

#: Larger ones, or of a library that another model here is written in.
SLOW = ("linen transformer", "haiku resnet")


class Traced(NamedTuple):
    """A model with its layout, and with that of its hidden layers."""

    model: Model
    layout: Layout
    hidden: Layout

    @property
    def kernels(self) -> set[str]:
        """The paths of the hidden kernels."""
        found = constrained_leaves(self.hidden, self.model.params)
        return {str(path) for path, _, axes in found if axes is not None}


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in MODELS],
)
def traced(request: pytest.FixtureRequest) -> Traced:
    model = MODELS[request.param]()
    layout = traced_layout(model.apply, model.params, *model.inputs)
    return Traced(model, layout, exclude(model.head, layout=layout))


@pytest.fixture(scope="module")
def trained(traced: Traced) -> Any:
    """Thirty steps of constrained weight optimization: losses, first and last raw parameters."""
    model = traced.model

    def run(params: Any) -> Any:
        raw, tx = constrain(params, optax.sgd(0.05, momentum=0.9), layout=traced.hidden)

        def loss(raw: Any) -> Any:
            logits = model.apply(effective(raw), *model.inputs)
            return optax.softmax_cross_entropy_with_integer_labels(logits, LABELS).mean()

        def step(carry: Any, _: None) -> Any:
            raw, state = carry
            value, gradients = jax.value_and_grad(loss)(raw)
            updates, state = tx.update(gradients, state, raw)
            return (optax.apply_updates(raw, updates), state), value

        (last, _), losses = jax.lax.scan(step, (raw, tx.init(raw)), length=STEPS)
        return losses, raw, last

    return quick_jit(run)(model.params)


class LayerByLayer(NamedTuple):
    """What goes through a model one layer after the other.

    Attributes:
        preserved: pre-activations of the hidden layers, after `variance_preserving_init`.
        preserved_logits: the logits there.
        penalty: the variance constancy loss there.
        gradients: the loss's, by the parameters.
        fitted_logits: the logits after `data_dependent_init`.
    """

    preserved: dict[str, Any]
    preserved_logits: Any
    penalty: Any
    gradients: Any
    fitted_logits: Any


@pytest.fixture(scope="module")
def layer_by_layer(traced: Traced) -> LayerByLayer:
    model, layout, hidden = traced
    apply, inputs = model.one_by_one or (model.apply, model.inputs)

    def penalty(params: Any) -> Any:
        logits, found = collect_preactivations(apply, params, *inputs, layout=hidden)
        betas = positive_betas(initial_betas(found))
        return total_variance_constancy(found, betas), (found, logits)

    def run(params: Any) -> LayerByLayer:
        preserving = variance_preserving_init(apply, params, *inputs, layout=layout)
        fitted = data_dependent_init(apply, params, *inputs, layout=layout)
        (loss, aux), gradients = jax.value_and_grad(penalty, has_aux=True)(preserving)
        return LayerByLayer(*aux, loss, gradients, apply(fitted, *inputs))

    return quick_jit(run)(model.params)


def test_the_layout_is_the_one_that_is_written_by_hand(traced: Traced) -> None:
    params = traced.model.params
    assert entries(traced.layout(params)) == entries(layout_from_rules(traced.model.rules)(params))
    assert len(traced.kernels) >= 2


def test_constrained_weights_train_and_do_not_drift(traced: Traced, trained: Any) -> None:
    losses, first, last = trained
    assert losses[-1] < 0.8 * losses[0]
    nodes = {str(path): node for path, node in entries(last) if isinstance(node, Scaled)}
    before = {str(path): node for path, node in entries(first)}
    assert nodes.keys() == traced.kernels
    for path, node in nodes.items():
        sums, norms = oracles.sums_and_squared_norms(node.kernel, node.fan_in_axes)
        assert np.abs(sums).max() < DRIFT, path
        assert np.abs(norms - SQUARED_RADIUS).max() < DRIFT, path
        assert np.abs(node.kernel - before[path].kernel).max() > 1e-3, path


def test_the_variance_constancy_loss_reaches_every_kernel(
    traced: Traced, layer_by_layer: LayerByLayer
) -> None:
    found = layer_by_layer.preserved
    assert found.keys() == traced.kernels
    wanted = sum(variance_constancy(x, 1.0, 2) for x in found.values())
    np.testing.assert_allclose(layer_by_layer.penalty, wanted, rtol=1e-5)
    for path, gradient in entries(layer_by_layer.gradients):
        if str(path) in traced.kernels:
            assert np.isfinite(gradient).all(), path
            assert np.abs(gradient).max() > 1e-4, path


def test_variance_preserving_init_makes_unit_variance(layer_by_layer: LayerByLayer) -> None:
    """All biases are zero: the pre-activations are what the kernels make."""
    every = {**layer_by_layer.preserved, "logits": layer_by_layer.preserved_logits}
    for path, values in every.items():
        np.testing.assert_allclose(np.var(np.float64(values)), 1, atol=MOMENTS, err_msg=path)


def test_data_dependent_init_makes_units_of_mean_0_and_variance_1(
    layer_by_layer: LayerByLayer,
) -> None:
    """Seen at the logits, which are so only if all layers before them are what the pass saw."""
    logits = np.float64(layer_by_layer.fitted_logits)
    np.testing.assert_allclose(logits.mean(0), 0, atol=MOMENTS)
    np.testing.assert_allclose(logits.var(0), 1, atol=MOMENTS)
