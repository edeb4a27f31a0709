"""Methods on unchanged models of other libraries."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
import pytest

from jaxnorm import (
    Layout,
    Scaled,
    collect_preactivations,
    constrain,
    data_dependent_init,
    effective,
    exclude,
    layout_from_rules,
    read,
    traced_layout,
    variance_preserving_init,
)
from jaxnorm.vcl import initial_betas, positive_betas, total_variance_constancy
from tests import oracles
from tests.losses.oracles import variance_constancy
from tests.models import of_equinox, of_haiku, of_linen, of_nnx
from tests.models.model import LABELS, Model
from tests.trees import quick_jit

#: Some models have batch normalization on purpose: methods run beside it, too.
pytestmark = pytest.mark.filterwarnings("ignore:the model still has batch normalization")

STEPS, SQUARED_RADIUS = 30, 2.0
#: Largest drift of sums and squared norms in thirty steps.
DRIFT = 1e-6

MODELS: dict[str, Callable[[], Model]] = {
    "linen resnet": of_linen.resnet,
    "haiku resnet": of_haiku.resnet,
    "equinox convolutional": of_equinox.convolutional,
    "equinox gru": of_equinox.gru,
    "nnx vit": of_nnx.vit,
}
#: Models with long compilations.
SLOW = ("haiku resnet",)


class Traced(NamedTuple):
    """Model with its layout, the layout of its hidden layers, and the paths of hidden kernels."""

    model: Model
    layout: Layout
    hidden: Layout
    kernels: set[str]


def by_path(tree: Any, kind: Any) -> dict[str, Any]:
    """Leaves of one type by path."""
    flat = jax.tree_util.tree_leaves_with_path(tree, is_leaf=lambda x: isinstance(x, kind))
    return {name_of(path): leaf for path, leaf in flat if isinstance(leaf, kind)}


def name_of(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in MODELS],
)
def traced(request: pytest.FixtureRequest) -> Traced:
    model = MODELS[request.param]()
    layout = traced_layout(read(model.apply, model.params, *model.inputs))
    hidden = exclude(model.head, layout=layout)
    return Traced(model, layout, hidden, set(by_path(hidden(model.params), tuple)))


@pytest.mark.kept("equinox gru")
def test_the_traced_layout_equals_the_rules(traced: Traced) -> None:
    params = traced.model.params
    actual, expected = traced.layout(params), layout_from_rules(traced.model.rules)(params)
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    assert by_path(actual, tuple) == by_path(expected, tuple)
    assert len(traced.kernels) >= 2


@pytest.mark.kept("equinox gru")
def test_constrained_weights_train_without_drift(traced: Traced) -> None:
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

    losses, first, last = quick_jit(run)(model.params)
    assert losses[-1] < 0.8 * losses[0]
    before, after = by_path(first, Scaled), by_path(last, Scaled)
    assert after.keys() == traced.kernels
    for path, node in after.items():
        sums, norms = oracles.sums_and_squared_norms(node.kernel, node.fan_in_axes)
        assert np.abs(sums).max() < DRIFT, path
        assert np.abs(norms - SQUARED_RADIUS).max() < DRIFT, path
        assert np.abs(node.kernel - before[path].kernel).max() > 1e-3, path


@pytest.mark.slow
def test_the_variance_constancy_loss_reaches_every_kernel(traced: Traced) -> None:
    """After `variance_preserving_init`, which makes the variance of every pre-activation 1."""
    model, layout, hidden, kernels = traced
    apply, inputs = model.one_by_one or (model.apply, model.inputs)

    def penalty(params: Any) -> Any:
        logits, preactivations = collect_preactivations(read(apply, params, *inputs), layout=hidden)
        betas = positive_betas(initial_betas(preactivations))
        return total_variance_constancy(preactivations, betas), (logits, preactivations)

    def run(params: Any) -> Any:
        preserving = variance_preserving_init(read(apply, params, *inputs), layout=layout)
        return jax.value_and_grad(penalty, has_aux=True)(preserving)

    (loss, (logits, preactivations)), gradients = quick_jit(run)(model.params)
    assert preactivations.keys() == kernels
    expected = sum(variance_constancy(x, 1.0, 2) for x in preactivations.values())
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    # All biases are zero; the tolerance is for float32 moments after a dozen layers.
    for path, values in {**preactivations, "logits": logits}.items():
        np.testing.assert_allclose(np.var(np.float64(values)), 1, atol=2e-4, err_msg=path)
    for path, gradient in by_path(gradients, jax.Array).items():
        if path in kernels:
            assert np.isfinite(gradient).all(), path
            assert np.abs(gradient).max() > 1e-4, path


@pytest.mark.kept("gru")
def test_data_dependent_init_standardizes_each_unit(traced: Traced) -> None:
    """The variance is 1, and the mean is 0 if the layer adds a bias."""
    model, layout = traced.model, traced.layout
    apply, inputs = model.one_by_one or (model.apply, model.inputs)

    def run(params: Any) -> Any:
        fitted = data_dependent_init(read(apply, params, *inputs), layout=layout)
        return collect_preactivations(read(apply, fitted, *inputs), layout=layout)[1]

    preactivations, leaves = quick_jit(run)(model.params), by_path(model.params, jax.Array)
    for path, axes in by_path(layout(model.params), tuple).items():
        units = leaves[path].size // np.prod([leaves[path].shape[axis] for axis in axes])
        each = np.float64(preactivations[path]).reshape(-1, units)
        np.testing.assert_allclose(each.var(0), 1, atol=1e-3, err_msg=path)
        # A recurrent cell adds its bias to the product of its input.
        if f"{path.rpartition('/')[0]}/bias" in leaves and not path.endswith("_hh"):
            np.testing.assert_allclose(each.mean(0), 0, atol=1e-3, err_msg=path)
