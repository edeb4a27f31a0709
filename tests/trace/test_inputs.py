"""Operands of kernels: learned inputs, parameters that count as inputs, shards of the rows."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from jaxnorm import (
    collect_preactivations,
    data_dependent_init,
    flax_layout,
    linear_stddev,
    read,
    traced_layout,
    variance_preserving_init,
    with_scale_noise,
)
from tests.devices import mesh
from tests.tolerances import FLOAT32
from tests.trace.forms import BIAS, KERNEL, PARAMS, X, draw

WANTED = np.float64(X) @ np.float64(KERNEL) + np.float64(BIAS)


def dense(p: Any, x: Any) -> Any:
    return jnp.tanh(x @ p["kernel"] + p["bias"][None])


def in_shards(f: Any) -> Any:
    """Wraps a function in ``jax.shard_map``, with the parameters on every device."""
    rows = P("data")
    return jax.jit(jax.shard_map(f, mesh=mesh(2), in_specs=(P(), rows), out_specs=rows))


def varying(p: Any, x: Any) -> Any:
    """A dense layer of parameters that are cast so that each device has its own gradient."""
    return dense(jax.tree.map(lambda leaf: jax.lax.pcast(leaf, "data", to="varying"), p), x)


@pytest.mark.parametrize("apply", [dense, varying])
def test_preactivations_in_shard_map(apply: Any) -> None:
    actual = in_shards(lambda p, x: collect_preactivations(read(apply, p, x))[1]["kernel"])(
        PARAMS, X
    )
    np.testing.assert_allclose(actual, WANTED, **FLOAT32)


@pytest.mark.kept("data_dependent_init")
@pytest.mark.parametrize("init", [variance_preserving_init, data_dependent_init])
def test_initializers_in_shard_map(init: Any) -> None:
    """Each device gets the parameters that its rows give on one device."""
    run = in_shards(lambda p, x: jax.tree.map(lambda leaf: leaf[None], init(read(dense, p, x))))
    stacked = run(PARAMS, X)
    for device, x in enumerate(jnp.split(X, 2)):
        alone = init(read(dense, PARAMS, x))
        for name in PARAMS:
            np.testing.assert_allclose(stacked[name][device], alone[name], rtol=1e-5, atol=1e-5)


def test_a_learned_input_is_no_kernel() -> None:
    """A generator's constant, a parameter, is the input of the kernel that multiplies it."""
    apply = lambda p, z: dense(p, p["start"]) + z  # noqa: E731
    net = read(apply, PARAMS | {"start": X}, jnp.float32(0))
    _, layers = collect_preactivations(net, layout=flax_layout)
    np.testing.assert_allclose(layers["kernel"], WANTED, **FLOAT32)


#: A decoder's learned queries look at the rows: softmax((q w) (x k)') x v.
DECODER = {
    "q": draw(3, 4),
    "query": {"kernel": draw(4, 5)},
    "key": {"kernel": draw(4, 5)},
    "value": {"kernel": draw(4, 6)},
}


def decode(p: Any, x: Any) -> Any:
    queries = p["q"] @ p["query"]["kernel"]
    scores = jnp.einsum("qd,btd->bqt", queries, x @ p["key"]["kernel"])
    return jax.nn.softmax(scores) @ (x @ p["value"]["kernel"])


@pytest.mark.slow
def test_learned_inputs_can_be_named_wherever_a_layout_is_traced() -> None:
    rows = draw(16, 4, 4)
    net = read(decode, DECODER, rows, as_inputs=["^q$"])
    layout = traced_layout(net)
    axes = {name: {"kernel": (-2,)} for name in ("query", "key", "value")}
    assert layout(DECODER) == axes | {"q": None}
    output, layers = collect_preactivations(net, layout=layout)
    np.testing.assert_allclose(output, decode(DECODER, rows), **FLOAT32)
    expected = np.float64(DECODER["q"]) @ np.float64(DECODER["query"]["kernel"])
    np.testing.assert_allclose(layers["query/kernel"], expected, **FLOAT32)
    for init, over in ((variance_preserving_init, (0, 1)), (data_dependent_init, 0)):
        fitted = init(net, layout=layout)
        _, layers = collect_preactivations(net, fitted, layout=layout)
        assert layers.keys() == {f"{name}/kernel" for name in axes}
        for units in (x.reshape(-1, x.shape[-1]) for x in layers.values()):
            np.testing.assert_allclose(np.float64(units).var(over), 1, rtol=1e-5)
    stddev = linear_stddev(net, 0.3, layout=layout)
    assert sorted(stddev[name]["kernel"] for name in axes) == pytest.approx([0.1, 0.2, 0.3])
    noisy = with_scale_noise(net, 0.3, per="step", layout=layout)(jax.random.key(0), DECODER, rows)
    assert jnp.abs(noisy - output).max() > 1e-2
    with pytest.raises(ValueError, match="query/kernel"):
        collect_preactivations(read(decode, DECODER, rows), layout=layout)


def test_a_derivative_of_more_than_the_product_is_lost_with_a_warning() -> None:
    layer = jax.custom_vjp(lambda p, x: x @ p["kernel"] + p["bias"][None])
    layer.defvjp(lambda p, x: (x @ p["kernel"] + p["bias"][None], (p, x)), lambda res, g: res)
    with pytest.warns(UserWarning, match=r"\bkernel\b.*derivative"):
        collect_preactivations(read(layer, PARAMS, X))
    variance_preserving_init(read(layer, PARAMS, X))  # takes no gradient
