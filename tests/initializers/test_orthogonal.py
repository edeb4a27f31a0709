"""Orthogonal kernels: of matrices, stacks and convolutions, in a model's own axes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxnorm as jn


def orthogonal(apply, params, x, **options):
    """Kernels of the model's own layout."""
    layout = jn.traced_layout(jn.read(apply, params, x))
    return jn.orthogonal_init(jn.read(apply, params, x), layout=layout, **options)


def gram(kernel):
    return np.asarray(kernel, np.float64).T @ np.asarray(kernel, np.float64)


def test_matrices_keep_the_mean_square_of_their_inputs(key):
    params = {"up": jax.random.normal(key(), (6, 10)), "down": jax.random.normal(key(), (10, 4))}

    def apply(params, x):
        return x @ params["up"] @ params["down"]

    params = orthogonal(apply, params, jnp.ones((1, 6)), gain=3.0)
    up, down = params["up"], params["down"]
    np.testing.assert_allclose(gram(up.T), 9 * 10 / 6 * np.eye(6), atol=1e-4)
    np.testing.assert_allclose(gram(down), 9 * np.eye(4), atol=1e-4)
    x = np.random.default_rng(0).normal(size=6)
    assert np.square(x @ up).mean() == pytest.approx(9 * np.square(x).mean(), rel=1e-5)


def test_draws_are_uniform():
    """Traces of uniform 2 x 2 orthogonal matrices: E tr(Q) = 0, E tr(Q)^2 = 1."""
    raw = {"w": jax.random.normal(jax.random.key(0), (4000, 2, 2))}
    found = orthogonal(scanned, raw, jnp.ones((1, 2)))["w"]
    traces = np.trace(found, axis1=1, axis2=2)
    assert abs(traces.mean()) < 4 / 4000**0.5
    assert np.square(traces).mean() == pytest.approx(1, abs=4 * 2**0.5 / 4000**0.5)
    np.testing.assert_allclose(found.mT @ found, np.tile(np.eye(2), (4000, 1, 1)), atol=1e-5)


def scanned(params, x):
    return lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, params["w"])[0]


def test_convolutions_are_orthogonal_at_their_center(key):
    kernel = jax.random.normal(key(), (3, 3, 4, 4))

    def apply(params, x):
        return lax.conv_general_dilated(
            x, params["conv"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    x = jax.random.normal(key(), (2, 5, 5, 4))
    found = orthogonal(apply, {"conv": kernel}, x)["conv"]
    np.testing.assert_allclose(gram(found[1, 1]), np.eye(4), atol=1e-5)
    assert np.count_nonzero(found) == 16
    out = apply({"conv": found}, x)
    np.testing.assert_allclose((out**2).sum(-1), (x**2).sum(-1), rtol=1e-4)

    def torch(params, x):
        return lax.conv_general_dilated(
            x, params["conv"], (1, 1), "SAME", dimension_numbers=("NCHW", "OIHW", "NCHW")
        )

    found = orthogonal(torch, {"conv": kernel.T}, x.swapaxes(1, 3))["conv"]
    np.testing.assert_allclose(gram(found[:, :, 1, 1]), np.eye(4), atol=1e-5)
    assert np.count_nonzero(found) == 16


def test_zeros_and_other_leaves_stay(key):
    params = {"w": jnp.zeros((3, 3), jnp.bfloat16), "bias": jnp.ones(3)}

    def apply(params, x):
        return x @ params["w"].astype(x.dtype) + params["bias"][None]

    found = orthogonal(apply, params, jnp.ones((1, 3)))
    jax.tree.map(np.testing.assert_array_equal, found, params)
    assert found["w"].dtype == jnp.bfloat16


def strided(stride, size, padding="VALID", **options):
    """Convolution of NHWC images, or of their columns alone."""

    def apply(params, x):
        numbers = ("NHWC", "HWIO", "NHWC")
        return lax.conv_general_dilated(
            x, params["conv"], stride, padding, dimension_numbers=numbers, **options
        )

    return apply, size


#: Convolutions whose positions see each pixel once, and the number of taps that are not zero.
PARTITIONS = {
    "patches": (*strided((4, 4), (4, 4)), 16),
    "a large kernel": (*strided((2, 2), (6, 6), [(2, 2), (2, 2)]), 4),
    "strides of the axes": (*strided((2, 3), (4, 3), [(1, 1), (0, 0)]), 6),
    "a stride along one axis": (*strided((1, 2), (3, 2), [(1, 1), (0, 0)]), 2),
}


@pytest.mark.kept("patches", "strides of the axes")
@pytest.mark.parametrize("name", PARTITIONS)
def test_convolutions_with_strides_preserve_the_distances_of_images(key, name):
    apply, size, count = PARTITIONS[name]
    params = {"conv": jax.random.normal(key(), (*size, 2, 2 * count))}
    one, other = jax.random.normal(key(), (2, 1, 12, 12, 2))
    params = orthogonal(apply, params, one)
    distance = np.square(apply(params, one) - apply(params, other)).sum()
    assert distance == pytest.approx(np.square(one - other).sum(), rel=1e-4)
    assert np.count_nonzero(np.abs(params["conv"]).sum((2, 3))) == count


def test_a_kernel_smaller_than_its_stride_preserves_what_it_sees(key):
    apply, size = strided((2, 2), (1, 1))
    params = orthogonal(
        apply, {"conv": jax.random.normal(key(), (*size, 3, 3))}, jnp.ones((1, 6, 6, 3))
    )
    x = jax.random.normal(key(), (1, 6, 6, 3))
    assert np.square(apply(params, x)).sum() == pytest.approx(
        np.square(x[:, ::2, ::2]).sum(), rel=1e-4
    )


@pytest.mark.parametrize(
    ("stride", "options"),
    [((2, 2), {"rhs_dilation": (2, 2)}), ((1, 1), {"lhs_dilation": (2, 2)})],
)
def test_strides_with_dilations_are_refused(key, stride, options):
    apply, size = strided(stride, (3, 3), [(1, 1), (1, 1)], **options)
    params = {"conv": jax.random.normal(key(), (*size, 2, 4))}
    with pytest.raises(ValueError, match=r"'conv'.*a stride and a dilation"):
        jn.orthogonal_init(
            jn.read(apply, params, jnp.ones((1, 8, 8, 2))), layout=lambda p: {"conv": (-4, -3, -2)}
        )


def test_kernels_on_explicit_meshes_are_those_of_one_device(key):
    mesh = jax.make_mesh((2,), ("x",), (jax.sharding.AxisType.Explicit,), devices=jax.devices()[:2])
    params = {"w": jax.random.normal(key(), (6, 4))}
    apply = lambda p, x: x @ p["w"]  # noqa: E731
    expected = orthogonal(apply, params, jnp.ones((1, 6)))["w"]
    with jax.set_mesh(mesh):
        for spec in (jax.P("x", None), jax.P(None, "x")):
            placed = {"w": jax.device_put(params["w"], jax.NamedSharding(mesh, spec))}
            found = jn.orthogonal_init(
                jn.read(apply, placed, jnp.ones((1, 6))), layout=lambda p: {"w": (-2,)}
            )
            assert found["w"].sharding.spec == spec
            np.testing.assert_allclose(found["w"], expected, atol=1e-6)
