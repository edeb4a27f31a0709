"""Noise that grows with depth counts layers as they run."""

import jax
import jax.numpy as jnp
import pytest

from jaxnorm import (
    Scaled,
    exclude,
    layout_from_rules,
    linear_stddev,
    reparametrize,
    with_scale_noise,
)


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


def test_only_the_layouts_layers_count_and_shapes_suffice():
    shapes = jax.eval_shape(lambda: params(3))
    x = jax.ShapeDtypeStruct((3, 2), jnp.float32)
    found = linear_stddev(1.0, apply, shapes, x, layout=exclude("^layer_2/"))
    assert [found[f"layer_{i}"]["kernel"] for i in range(3)] == [0.5, 1.0, None]


def test_a_stack_of_layers_is_named():
    """Its layers would need one number each, which `with_scale_noise` takes as an array."""

    def scanned(params, x):
        step = lambda x, kernel: (x @ kernel, None)  # noqa: E731
        return jax.lax.scan(step, x, params["stack"]["kernel"])[0]

    stacked, x = {"stack": {"kernel": jnp.ones((3, 2, 2))}}, jnp.ones((4, 2))
    layout = layout_from_rules([("kernel", (-2,))])
    with pytest.raises(ValueError, match=r"kernels stack/kernel are stacks.*one a layer.*an array"):
        linear_stddev(1.0, scanned, stacked, x, layout=layout)
    noisy = with_scale_noise(
        scanned, {"stack": {"kernel": jnp.array([0.0, 0, 0.5])}}, layout=layout
    )
    out = noisy(jax.random.key(0), stacked, jnp.ones((1000, 2)))
    # The first two layers have no noise: all rows are 8 (1 + n), n of the last alone.
    n = out / 8 - 1
    assert abs(float(n.std()) - 0.5) < 0.5 * 4 / 4000**0.5
    three = with_scale_noise(scanned, {"stack": {"kernel": jnp.zeros(3)}}, layout=layout)
    assert (three(jax.random.key(0), stacked, x) == 8).all()


def test_it_is_a_stddev_for_plain_and_reparametrized_kernels(key):
    raw = reparametrize(params(2), Scaled)
    x = jnp.ones((1000, 2))
    stddev = linear_stddev(0.5, apply, raw, x)
    noisy = with_scale_noise(lambda p, x: (x @ p["layer_0"]["kernel"], apply(p, x)), stddev)
    first, last = noisy(key(), raw, x)
    # y = (1 + n2)(1 + n1) with deviations 0.25 and 0.5; four standard errors of 2,000 draws.
    assert abs(first.std() - 0.25) < 0.25 * 4 / 4000**0.5
    assert abs(last.var() - (1.0625 * 1.25 - 1)) < 0.06
