"""dm-haiku's own networks learn digits by the calls as well as under batch normalization."""

from collections.abc import Callable, Iterator
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from sklearn.datasets import load_digits

import jaxnorm as jn

#: The training rows; the others test.
ROWS, BATCH, UPDATES, RATE = 1400, 64, 80, 0.1

#: The least accuracy, and the most that it may be below batch normalization's: 20 of 397 images.
FLOOR, BELOW = 0.88, 0.05


def resnet(x: jax.Array, use_bn: bool) -> jax.Array:
    """Haiku's ResNet has batch normalization always: an interceptor leaves its offset alone."""
    first = {"output_channels": 8, "kernel_shape": 3, "stride": 1}
    network = hk.nets.ResNet(
        (1, 1, 1, 1),
        10,
        bottleneck=False,
        channels_per_group=(8, 8, 16, 16),
        use_projection=(False, False, True, False),
        strides=(1, 1, 2, 1),
        initial_conv_config=first,
    )
    if use_bn:
        return network(x, True)
    with hk.intercept_methods(offset_alone):
        return network(x, True)


def offset_alone(call: Any, args: Any, kwargs: Any, context: hk.MethodContext) -> Any:
    if not isinstance(context.module, hk.BatchNorm) or context.method_name != "__call__":
        return call(*args, **kwargs)
    offset = hk.get_parameter("offset", args[0].shape[-1:], init=jnp.zeros)
    return args[0] + jnp.broadcast_to(offset, args[0].shape)


def mobilenet(x: jax.Array, use_bn: bool) -> jax.Array:
    return hk.nets.MobileNetV1((1, 2), (16, 32), 10, use_bn=use_bn)(x, True)


@pytest.fixture(scope="module")
def digits() -> tuple[jax.Array, jax.Array]:
    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.target))
    X = np.float32(data.images[order, :, :, None])
    return jnp.asarray((X - X.mean()) / X.std()), jnp.asarray(data.target[order])


def batches(X: jax.Array, y: jax.Array) -> Iterator[tuple[jax.Array, jax.Array]]:
    random = np.random.default_rng(0)
    for _ in range(UPDATES):
        rows = random.choice(ROWS, BATCH, replace=False)
        yield X[rows], y[rows]


def optimizer() -> optax.GradientTransformation:
    rate = optax.warmup_cosine_decay_schedule(0.0, RATE, 10, UPDATES)
    return optax.sgd(rate, momentum=0.9)


def trained(apply: Callable[..., jax.Array], raw: Any, tx: Any, X: Any, y: Any) -> Any:
    """Returns the parameters after the updates."""

    def loss(raw: Any, x: jax.Array, labels: jax.Array) -> jax.Array:
        losses = optax.softmax_cross_entropy_with_integer_labels(apply(raw, x), labels)
        return losses.mean()

    @jax.jit
    def step(raw: Any, state: Any, x: jax.Array, labels: jax.Array) -> tuple[Any, Any]:
        updates, state = tx.update(jax.grad(loss)(raw, x, labels), state, raw)
        return optax.apply_updates(raw, updates), state

    state = tx.init(raw)
    for x, labels in batches(X, y):
        raw, state = step(raw, state, x, labels)
    return raw


def accuracy(logits: jax.Array, y: jax.Array) -> float:
    return float((logits.argmax(-1) == y[ROWS:]).mean())


@pytest.mark.slow
@pytest.mark.usefixtures("standard_promotion")
@pytest.mark.parametrize("network", [resnet, mobilenet], ids=["resnet", "mobilenet"])
def test_the_calls_learn_what_batch_normalization_learns(network: Any, digits: Any) -> None:
    """Batch normalization is scored with the statistics of all test rows.

    Without it and without the calls, the ResNet ends at 21% and the MobileNet at 27%.
    """
    X, y = digits
    with_norm = hk.without_apply_rng(hk.transform_with_state(lambda x: network(x, True)))
    params, state = with_norm.init(jax.random.key(0), X[:8])

    def normalized(params: Any, x: jax.Array) -> jax.Array:
        return with_norm.apply(params, state, x)[0]

    params = trained(normalized, params, optimizer(), X, y)
    floor = max(FLOOR, accuracy(normalized(params, X[ROWS:]), y) - BELOW)

    plain = hk.without_apply_rng(hk.transform(lambda x: network(x, False)))
    net = jn.read(plain.apply, plain.init(jax.random.key(0), X[:8]), X[:256])
    raw, tx = jn.normalizer_free(net, optimizer())
    raw = trained(plain.apply, raw, tx, X, y)
    assert accuracy(plain.apply(raw, X[ROWS:]), y) > floor

    in_loss, raw, tx = jn.moving_average_normalization(net, optimizer())
    raw = trained(in_loss, raw, tx, X, y)
    assert accuracy(plain.apply(jn.effective(raw), X[ROWS:]), y) > floor
