"""An existing ResNet, trained without normalization in three lines."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxnorm import (
    Scaled,
    clean_parameters,
    constraint_drift,
    layout_from_rules,
    noise_injection,
    project,
    reparametrize,
    sphere_projection,
)
from jaxnorm import effective as effective_weights
from jaxnorm.nnx import functionalize, layout, replace_batch_norm
from tests.nnx import models
from tests.nnx.cases import RESNET, at

STEPS = 30
LEARNING_RATE = 0.2
STDDEV = 0.1
#: What is promised after thousands of steps.
DRIFT = 1e-5

#: The classifier is left out by its name.
BY_NAME = layout_from_rules([(r"^head/", None), (r"kernel$", (-4, -3, -2))])


class Run(NamedTuple):
    start: Any
    params: Any
    opt_state: Any
    losses: Any


def data() -> tuple[jax.Array, jax.Array]:
    draw = np.random.default_rng(11)
    x = jnp.asarray(draw.normal(size=(16, *models.IMAGES[1:])), jnp.float32)
    return x, jnp.asarray(draw.integers(0, 4, size=16))


def train(layout: Any) -> Run:
    x, labels = data()
    model = replace_batch_norm(RESNET.model(), x)
    apply, params, state = functionalize(model)
    params = jax.jit(lambda params: project(reparametrize(params, Scaled, layout), layout=layout))(
        params
    )

    tx = noise_injection(
        optax.chain(optax.sgd(LEARNING_RATE), sphere_projection(layout=layout)), STDDEV, seed=0
    )

    def loss(params: Any) -> Any:
        logits, _ = apply(effective_weights(params), state, x, train=True)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    @jax.jit
    def step(params: Any, opt_state: Any) -> Any:
        value, gradient = jax.value_and_grad(loss)(params)
        updates, opt_state = tx.update(gradient, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, value

    now, opt_state, losses = params, jax.jit(tx.init)(params), []
    for _ in range(STEPS):
        now, opt_state, value = step(now, opt_state)
        losses.append(float(value))
    return Run(params, now, opt_state, np.asarray(losses))


@pytest.fixture(scope="module")
def trained() -> Run:
    return train(BY_NAME)


def test_loss_falls(trained: Run) -> None:
    assert np.isfinite(trained.losses).all()
    assert trained.losses[-5:].mean() < 0.8 * trained.losses[0]


def test_weights_stay_on_the_sphere_and_move(trained: Run) -> None:
    assert (
        max(float(drift) for drift in constraint_drift(trained.params, layout=BY_NAME).values())
        < DRIFT
    )
    for path in RESNET.followed.values():
        before, after = (
            at(tree, path)["kernel"].kernel for tree in (trained.start, trained.params)
        )
        assert np.abs(after - before).max() > 1e-4, path
        sums, squares = np.float64(after).sum((0, 1, 2)), (np.float64(after) ** 2).sum((0, 1, 2))
        np.testing.assert_allclose(sums, 0.0, atol=DRIFT)
        np.testing.assert_allclose(squares, 2.0, atol=DRIFT)


def test_classifier_is_left_out(trained: Run) -> None:
    before, after = (tree["head"]["kernel"] for tree in (trained.start, trained.params))
    assert isinstance(after, jax.Array)
    np.testing.assert_array_equal(before, RESNET.model().head.kernel[...])
    assert np.abs((np.asarray(after) ** 2).sum(0) - 2).min() > 0.05
    assert np.abs(after - before).max() > 1e-3


def test_scales_of_both_kinds_are_noisy_and_clean_ones_are_not(trained: Any) -> None:
    """Each visible scale is the clean one times 1 + n, with n of the right size."""
    clean = clean_parameters(trained.opt_state, trained.params)
    noise = []
    for norm, path in RESNET.followed.items():
        nodes = [at(tree, path)["kernel"] for tree in (trained.params, clean)]
        visible, hidden = (node.scale for node in nodes)
        np.testing.assert_array_equal(nodes[0].kernel, nodes[1].kernel)
        noise.append(np.asarray(visible / hidden) - 1)
        if norm in RESNET.zeros:
            visible, hidden = (at(tree, norm)["channel_scale"] for tree in (trained.params, clean))
            assert np.abs(hidden).min() > 0  # they started at zero
            noise.append(np.asarray(visible / hidden) - 1)
            np.testing.assert_array_equal(
                *(at(tree, norm)["bias"] for tree in (trained.params, clean))
            )
    assert min(np.abs(one).max() for one in noise) > 0.02
    # 96 draws: their deviation is within 3 / sqrt(2 x 96) = 22% of sigma.
    assert abs(np.concatenate(noise).std() / STDDEV - 1) < 0.25


def test_layout_of_the_modules_types_is_the_same() -> None:
    """Raw or plain, the same axes at the same places, so the same training."""
    model = replace_batch_norm(RESNET.model(), RESNET.input())
    types, params = layout(model), functionalize(model).params
    for tree in (params, reparametrize(params, Scaled)):
        by_type, by_name = types(tree), BY_NAME(tree)
        assert by_type.pop("head") != by_name.pop("head")
        assert by_type == by_name


def test_kernels_can_be_chosen_one_by_one() -> None:
    """With the layout of the modules' types, and a callable that leaves the classifier out."""
    model = replace_batch_norm(RESNET.model(), RESNET.input())
    params = functionalize(model).params

    def into(path: str, kernel: Any, axes: Any) -> Any:
        return kernel if path.startswith("head/") else Scaled.from_kernel(kernel, axes)

    got = reparametrize(params, into, layout(model))
    wanted = reparametrize(params, Scaled, BY_NAME)
    assert jax.tree.structure(got) == jax.tree.structure(wanted)
