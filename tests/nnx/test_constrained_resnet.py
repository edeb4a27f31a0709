"""An existing ResNet, trained without normalization in three lines."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxnorm import (
    Scaled,
    clean_parameters,
    constraint_drift,
    effective,
    layout_from_rules,
    noise_injection,
    project,
    reparametrize,
    sphere_projection,
)
from jaxnorm.nnx import functionalize, layout, replace_batch_norm
from tests.nnx import models
from tests.nnx.cases import RESNET, at

STEPS, LEARNING_RATE, STDDEV = 30, 0.2, 0.1
#: What is promised after thousands of steps.
DRIFT = 1e-5
#: The classifier is left out by its name.
BY_NAME = layout_from_rules([(r"^head/", None), (r"kernel$", (-4, -3, -2))])


def test_thirty_steps_on_the_sphere_with_noise_on_every_scale() -> None:
    draw = np.random.default_rng(11)
    x = jnp.asarray(draw.normal(size=(16, *models.IMAGES[1:])), jnp.float32)
    labels = jnp.asarray(draw.integers(0, 4, size=16))
    apply, params, state = functionalize(replace_batch_norm(RESNET.model(), x))
    start = jax.jit(lambda p: project(reparametrize(p, Scaled, BY_NAME), layout=BY_NAME))(params)
    inner = optax.chain(optax.sgd(LEARNING_RATE), sphere_projection(layout=BY_NAME))
    tx = noise_injection(inner, STDDEV, seed=0)

    def loss(params: Any) -> Any:
        logits, _ = apply(effective(params), state, x, train=True)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    def step(carry: Any, _: None) -> Any:
        params, opt_state = carry
        value, gradient = jax.value_and_grad(loss)(params)
        updates, opt_state = tx.update(gradient, opt_state, params)
        return (optax.apply_updates(params, updates), opt_state), value

    run = jax.jit(lambda start: jax.lax.scan(step, (start, tx.init(start)), length=STEPS))
    (end, opt_state), losses = run(start)
    assert losses[-5:].mean() < 0.8 * losses[0]
    assert max(map(float, constraint_drift(end, layout=BY_NAME).values())) < DRIFT
    np.testing.assert_array_equal(start["head"]["kernel"], RESNET.model().head.kernel[...])
    assert np.abs(end["head"]["kernel"] - start["head"]["kernel"]).max() > 1e-3
    clean, noise = clean_parameters(opt_state, end), []
    for norm, path in RESNET.followed.items():
        before, after, hidden = (at(tree, path)["kernel"] for tree in (start, end, clean))
        assert np.abs(after.kernel - before.kernel).max() > 1e-4, path
        np.testing.assert_allclose((np.float64(after.kernel) ** 2).sum((0, 1, 2)), 2, atol=DRIFT)
        np.testing.assert_array_equal(after.kernel, hidden.kernel)
        noise.append(np.asarray(after.scale / hidden.scale) - 1)
        if norm in RESNET.zeros:  # which no kernel can carry
            own, kept = at(end, norm), at(clean, norm)
            noise.append(np.asarray(own["channel_scale"] / kept["channel_scale"]) - 1)
            np.testing.assert_array_equal(own["bias"], kept["bias"])
    assert min(np.abs(one).max() for one in noise) > 0.02
    # 96 draws: their deviation is within 3 / sqrt(2 x 96) = 22% of sigma.
    assert abs(np.concatenate(noise).std() / STDDEV - 1) < 0.25


def test_layout_of_the_modules_types_is_the_same() -> None:
    """Raw or plain, the same axes at the same places; a callable leaves the classifier out too."""
    model = replace_batch_norm(RESNET.model(), RESNET.input())
    types, params = layout(model), functionalize(model).params
    for tree in (params, reparametrize(params, Scaled)):
        by_type, by_name = types(tree), BY_NAME(tree)
        assert by_type.pop("head") != by_name.pop("head")
        assert by_type == by_name

    def into(path: str, kernel: Any, axes: Any) -> Any:
        return kernel if path.startswith("head/") else Scaled.from_kernel(kernel, axes)

    got = reparametrize(params, into, types)
    wanted = reparametrize(params, Scaled, BY_NAME)
    assert jax.tree.structure(got) == jax.tree.structure(wanted)
