"""Input means and the one call for kernels of bfloat16 and float16, which no one has to widen."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from jaxnorm import describe_propagation, describe_roles, input_means, normalizer_free, read
from jaxnorm.nnx import functionalize, replace_batch_norm
from tests.draws import draw

N = 4
NARROW = pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
#: A program that computes in bfloat16 rounds what the second layer reads by 2^-9, three times.
ROUNDED = {"rtol": 0, "atol": 2.0**-6}


@pytest.fixture(autouse=True)
def _promotion(standard_promotion: None) -> None:
    """Optax, and people's models, want the standard rules."""


def scanned(p: Any, x: Any) -> Any:
    """Layers whose carry has the type of the inputs at each turn."""

    def turn(h: Any, layer: Any) -> Any:
        return jnp.tanh(h @ layer[0] + layer[1]), None

    x, _ = jax.lax.scan(turn, x, (p["kernels"], p["biases"]))
    return x @ p["kernel"] + p["bias"]


def convolved(p: Any, x: Any) -> Any:
    """A convolution, which wants operands of one type, of a transposed kernel."""
    kernel = p["kernels"].transpose(0, 2, 1)
    dimensions = ("NWC", "WIO", "NWC")
    x = jax.lax.conv_general_dilated(x[:, None], kernel, (1,), "SAME", dimension_numbers=dimensions)
    return jnp.tanh(x[:, 0] + p["biases"][0]) @ p["kernel"] + p["bias"]


def chosen(p: Any, x: Any) -> Any:
    """A choice between two values of one type."""
    x = x @ p["kernels"][0] + p["biases"][0]
    x = jax.lax.cond((x[0, 0] < 1e4), jnp.tanh, lambda x: x, x)
    return x @ p["kernel"] + p["bias"]


def preferred(p: Any, x: Any) -> Any:
    """A product that is summed in float32 and kept in the narrow type."""
    x = jnp.einsum("ni,io->no", x, p["kernels"][0], preferred_element_type=jnp.float32)
    x = jnp.tanh(x.astype(p["kernel"].dtype) + p["biases"][0])
    return x @ p["kernel"] + p["bias"]


PROGRAMS = {f.__name__: f for f in (scanned, convolved, chosen, preferred)}
PARAMS = {
    "kernels": draw(0, 3, N, N),
    "biases": draw(1, 3, 1, N),
    "kernel": draw(2, N, 2),
    "bias": draw(3, 1, 2),
}
ROWS = draw(4, 32, N) + 1


@NARROW
@pytest.mark.kept("bfloat16-scanned", "float16-convolved")
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_of_one_narrow_type_have_the_means_of_float32(name: str, dtype: Any) -> None:
    """The oracle is the same program on the rounded numbers, in float32 throughout."""
    params, x = jax.tree.map(lambda a: a.astype(dtype), (PARAMS, ROWS))
    wide = jax.tree.map(lambda a: a.astype(jnp.float32), (params, x))
    measure = jax.jit(lambda p, x: input_means(read(PROGRAMS[name], p, x)))
    found, expected = measure(params, x)["kernel"], measure(*wide)["kernel"]
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, expected, **ROUNDED)


@NARROW
def test_means_of_narrow_inputs_are_not_rounded(dtype: Any) -> None:
    params = {"kernel": draw(2, 2, N), "bias": draw(3, 1, 2)}
    params, x = jax.tree.map(lambda a: a.astype(dtype), (params, ROWS))
    found = input_means(read(lambda p, x: x @ p["kernel"].T + p["bias"], params, x))["kernel"]
    np.testing.assert_allclose(found[0], np.float64(x).mean(0), rtol=1e-6, atol=1e-6)


@NARROW
def test_a_narrow_product_with_a_derivative_of_its_own_is_measured_as_it_is(dtype: Any) -> None:
    product = jax.custom_jvp(jnp.matmul)
    product.defjvps(lambda dx, y, x, w: dx @ w, lambda dw, y, x, w: x @ dw)
    params = {"kernel": draw(2, N, 2), "bias": draw(3, 1, 2)}
    params, x = jax.tree.map(lambda a: a.astype(dtype), (params, ROWS))
    apply = lambda p, x: product(x, p["kernel"]) + p["bias"]  # noqa: E731
    found = input_means(read(apply, params, x))["kernel"]
    expected = np.broadcast_to(np.float64(x).mean(0)[:, None], found.shape)
    np.testing.assert_allclose(found, expected, rtol=0.02, atol=0.02)


class Types(NamedTuple):
    """Types of the parameters of a first layer, its normalization, and the second layer."""

    first: Any
    norm: Any
    second: Any


class Network(nnx.Module):
    """A convolution and a dense layer with batch normalization between, and a head."""

    def __init__(self, types: Types):
        rngs = nnx.Rngs(0)
        self.conv = nnx.Conv(3, N, (3, 3), param_dtype=types.first, rngs=rngs)
        self.norm = nnx.BatchNorm(N, param_dtype=types.norm, rngs=rngs)
        self.dense = nnx.Linear(N, N, param_dtype=types.second, rngs=rngs)
        self.head = nnx.Linear(N, 2, param_dtype=types.second, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        x = nnx.relu(self.norm(self.conv(x)))
        return self.head(nnx.relu(self.dense(x.mean((1, 2)))))


BFLOAT16, FLOAT16, FLOAT32 = jnp.bfloat16, jnp.float16, jnp.float32
MODELS = {
    "bfloat16": Types(BFLOAT16, BFLOAT16, BFLOAT16),
    "float16": Types(FLOAT16, FLOAT16, FLOAT16),
    "norm in float32": Types(BFLOAT16, FLOAT32, BFLOAT16),
    "layers differ": Types(FLOAT32, FLOAT32, BFLOAT16),
}


@pytest.mark.kept("norm in float32")
@pytest.mark.parametrize("name", MODELS)
def test_a_step_of_an_nnx_model_keeps_the_types_of_its_parameters(name: str) -> None:
    """The parameters are those that `functionalize` returned, without mixed_precision."""
    types, x = MODELS[name], draw(0, 16, 5, 5, 3)
    apply, params, state = functionalize(replace_batch_norm(Network(types), x[:1]))

    def logits(params: Any, x: Any) -> Any:
        return apply(params, state, x, train=False)[0]

    @jax.jit
    def step(raw: Any, opt_state: Any) -> Any:
        gradients = jax.grad(lambda p: jnp.square(logits(p, x)).mean())(raw)
        updates, opt_state = tx.update(gradients, opt_state, raw)
        return optax.apply_updates(raw, updates)

    raw, tx = normalizer_free(logits, params, optax.sgd(0.1, momentum=0.9), x)
    after = step(raw, tx.init(raw))
    before, new = jax.tree.leaves_with_path(params), jax.tree.leaves(after)
    for (path, old), value in zip(before, new, strict=True):
        assert value.dtype == old.dtype, path
        assert np.isfinite(np.float32(value)).all(), path
    assert not np.array_equal(after["conv"]["kernel"], raw["conv"]["kernel"])


@NARROW
@pytest.mark.slow
def test_a_narrow_nnx_model_is_described(dtype: Any) -> None:
    x = draw(0, 16, 5, 5, 3)
    apply, params, state = functionalize(replace_batch_norm(Network(Types(*3 * [dtype])), x[:1]))

    def logits(params: Any, x: Any) -> Any:
        return apply(params, state, x, train=False)[0]

    assert "conv/kernel" in describe_propagation(logits, params, x)
    assert describe_roles(logits, params, x).splitlines()[1].split() == [
        *("conv/kernel", "hidden", "yes", "1", "yes")
    ]
