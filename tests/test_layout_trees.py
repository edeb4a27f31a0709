"""One network in five kinds of parameter tree: the same constrained steps, as NumPy takes them."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from jaxnorm import flax_layout, sphere_projection, torch_layout
from jaxnorm.nnx import functionalize
from tests import oracles
from tests.tolerances import FLOAT32_STEPS

RATE, STEPS = 0.3, 3


def normal(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


#: Kernels (in, out) of a network tanh(x V) W without biases, and its data.
KERNELS = (normal(0, 6, 5), normal(1, 5, 3))
X, Y = normal(2, 16, 6), normal(3, 16, 3)
OPTIMIZER = optax.chain(optax.sgd(RATE), sphere_projection())


def numpy_run() -> list[Any]:
    """Three steps with the gradient by hand and the explicit projector, in float64."""
    first, last = (np.asarray(kernel, np.float64) for kernel in KERNELS)
    for _ in range(STEPS):
        hidden = np.tanh(X @ first)
        error = 2 * (hidden @ last - Y) / Y.size
        slope = X.T @ (error @ last.T * (1 - hidden**2))
        first, last = (
            oracles.projected(kernel - RATE * gradient, (-2,), 2.0, True)
            for kernel, gradient in ((first, slope), (last, hidden.T @ error))
        )
    return [first, last]


def trained(predict: Callable[..., Any], params: Any, tx: Any = OPTIMIZER) -> Any:
    """``params`` after three compiled steps."""

    @jax.jit
    def step(params: Any, state: Any) -> Any:
        gradients = jax.grad(lambda p: jnp.mean((predict(p) - Y) ** 2))(params)
        updates, state = tx.update(gradients, state, params)
        return optax.apply_updates(params, updates), state

    state = tx.init(params)
    for _ in range(STEPS):
        params, state = step(params, state)
    return params


def given(kernel: Any) -> Callable[..., Any]:
    return lambda *arguments: jnp.asarray(kernel)


def nnx_model() -> nnx.Sequential:
    first, last = (
        nnx.Linear(*kernel.shape, use_bias=False, kernel_init=given(kernel), rngs=nnx.Rngs(0))
        for kernel in KERNELS
    )
    return nnx.Sequential(first, jnp.tanh, last)


def nnx_state() -> Any:
    graph, state = nnx.split(nnx_model())
    state = trained(lambda s: nnx.merge(graph, s)(X), state)
    return [state["layers"][index]["kernel"][...] for index in (0, 2)]


def nnx_optimizer() -> Any:
    model = nnx_model()
    optimizer = nnx.Optimizer(model, OPTIMIZER, wrt=nnx.Param)

    @nnx.jit
    def step(model: Any, optimizer: Any) -> None:
        optimizer.update(model, nnx.grad(lambda m: jnp.mean((m(X) - Y) ** 2))(model))

    for _ in range(STEPS):
        step(model, optimizer)
    return [model.layers[index].kernel[...] for index in (0, 2)]


def pure_dict() -> Any:
    apply, params, state = functionalize(nnx_model())
    params = trained(lambda p: apply(p, state, X, train=True)[0], params)
    return [params["layers"][index]["kernel"] for index in (0, 2)]


def linen(wrap: Callable[..., Any] = lambda init: init) -> Any:
    first, last = (
        nn.Dense(kernel.shape[1], use_bias=False, kernel_init=wrap(given(kernel)))
        for kernel in KERNELS
    )
    model = nn.Sequential([first, jnp.tanh, last])
    params = trained(lambda p: model.apply(p, X), model.init(jax.random.key(0), X))
    return [params["params"][name]["kernel"] for name in ("layers_0", "layers_2")]


def linen_boxed() -> Any:
    """Linen's partitioned parameters: a box around each kernel, which stays around it."""
    boxes = linen(lambda init: nn.with_partitioning(init, (None, "model")))
    assert all(isinstance(box, nn.Partitioned) for box in boxes)
    return [box.value for box in boxes]


def equinox() -> Any:
    model = eqx.nn.MLP(
        6, 3, 5, 1, jnp.tanh, use_bias=False, use_final_bias=False, key=jax.random.key(0)
    )
    weights = [jnp.asarray(kernel.T) for kernel in KERNELS]
    model = eqx.tree_at(lambda m: [layer.weight for layer in m.layers], model, weights)
    params, static = eqx.partition(model, eqx.is_array)
    tx = optax.chain(optax.sgd(RATE), sphere_projection(layout=torch_layout))
    trained_params = trained(lambda p: jax.vmap(eqx.combine(p, static))(X), params, tx)
    return [layer.weight.T for layer in trained_params.layers]


@pytest.mark.parametrize("run", [nnx_state, nnx_optimizer, pure_dict, linen, linen_boxed, equinox])
def test_every_kind_of_tree_takes_the_same_steps(run: Callable[[], Any]) -> None:
    for got, wanted in zip(run(), numpy_run(), strict=True):
        np.testing.assert_allclose(got, wanted, **FLOAT32_STEPS)


def test_a_bias_is_no_kernel_whatever_its_rank() -> None:
    """Equinox keeps a convolution's bias as (out, 1, 1)."""
    params = eqx.filter(eqx.nn.Conv2d(2, 4, 3, key=jax.random.key(0)), eqx.is_array)
    layout = torch_layout(params)
    assert params.bias.shape == (4, 1, 1)
    assert (layout.weight, layout.bias) == ((-3, -2, -1), None)


def test_boxes_and_variables_keep_their_kind() -> None:
    boxed = {"kernel": nn.Partitioned(jnp.ones((3, 2)), names=(None, "model"))}
    assert flax_layout(boxed) == {"kernel": nn.Partitioned((-2,), names=(None, "model"))}
    state = nnx.state(nnx_model())
    assert nnx.to_pure_dict(flax_layout(state)) == flax_layout(nnx.to_pure_dict(state))
    assert flax_layout(nnx.to_pure_dict(state))["layers"][2]["kernel"] == (-2,)
