"""Noise that grows with depth counts layers as they run."""

import jax
import jax.numpy as jnp
import pytest

from jaxnorm import Scaled, exclude, layout_from_rules, linear_stddev, reparametrize


def params(layers: int) -> dict[str, dict[str, jax.Array]]:
    return {f"layer_{i}": {"kernel": jnp.eye(2), "bias": jnp.zeros(2)} for i in range(layers)}


def apply(params, x):
    for i in range(len(params)):
        x = x @ params[f"layer_{i}"]["kernel"] + params[f"layer_{i}"]["bias"][None]
    return x


def test_in_execution_order_and_not_in_that_of_the_names():
    """Sorted by name layer_10 comes before layer_2."""
    found = linear_stddev(0.6, apply, params(12), jnp.ones((3, 2)))
    got = [found[f"layer_{i}"]["kernel"] for i in range(12)]
    assert got == [0.6 * (i + 1) / 12 for i in range(12)]
    assert all(found[f"layer_{i}"]["bias"] is None for i in range(12))


@pytest.mark.parametrize("made", [lambda p: p, lambda p: reparametrize(p, Scaled)])
def test_only_the_layouts_layers_count_and_shapes_and_nodes_suffice(made):
    shapes = jax.eval_shape(lambda: made(params(3)))
    x = jax.ShapeDtypeStruct((3, 2), jnp.float32)
    found = linear_stddev(1.0, apply, shapes, x, layout=exclude("^layer_2/"))
    assert [found[f"layer_{i}"]["kernel"] for i in range(3)] == [0.5, 1.0, None]


def test_a_stack_of_layers_is_named():
    def scanned(params, x):
        step = lambda x, kernel: (x @ kernel, None)  # noqa: E731
        return jax.lax.scan(step, x, params["stack"]["kernel"])[0]

    stacked, x = {"stack": {"kernel": jnp.ones((3, 2, 2))}}, jnp.ones((4, 2))
    layout = layout_from_rules([("kernel", (-2,))])
    with pytest.raises(ValueError, match=r"kernels stack/kernel are stacks.*one a layer.*an array"):
        linear_stddev(1.0, scanned, stacked, x, layout=layout)
