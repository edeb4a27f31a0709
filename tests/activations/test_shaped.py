"""Shaped activations against the numbers of the authors' program, and against what they promise.

The published scalars are those of the tests of github.com/google-deepmind/dks.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxnorm as jn
from jaxnorm.theory import c_curvature, c_map, c_slope, q_map, q_slope


def modified_resnet(x, layer):
    """The authors' network of 101 layers with shortcuts of the weight 0.6."""
    branch = layer(layer(layer(x)))
    for blocks in (3, 4, 23, 3):
        for block in range(blocks):
            residual, shortcut = layer(layer(layer(x))), x if block else layer(x)
            x = 0.36 * shortcut + 0.64 * residual
    return max(layer(x), branch)


@pytest.mark.parametrize(
    ("activation", "method", "target", "published"),
    [
        (jax.nn.softplus, "dks", 1.2, (0.18761008168, 0.40688063442, -0.92134661514, 8.87867254)),
        (jnp.tanh, "dks", 1.2, (0.07461073057, 0.55669152, -0.50343787687, 18.00263596444)),
        (jax.nn.softplus, "tat", 0.2, (0.15011489795, 0.53745999, -0.99648101447, 10.54880187881)),
        (jnp.tanh, "tat", 0.2, (0.05802052186, 0.52186398041, -0.47964307044, 22.3606626176)),
        (jax.nn.gelu, "dks", 1.2, (0.07036271496, 0.25868372486, -0.15758328114, 20.249573305)),
    ],
)
def test_scalars_of_the_published_program(activation, method, target, published):
    found = jn.shaped(activation, modified_resnet, method, target).keywords
    names = ("input_scale", "input_shift", "output_shift", "output_scale")
    scalars = [found[name] for name in names]
    np.testing.assert_allclose(scalars, published, rtol=2e-7)


def test_leaky_relu_of_the_published_program():
    for depth, target, slope, scale in (
        (30, None, 0.302694, 1.353563),
        (modified_resnet, 0.75, 0.6291800290346146, 1.196996549778802),
    ):
        f = jn.shaped(jax.nn.leaky_relu, depth, target=target)
        found = np.asarray(f(jnp.array([-1.0, 1.0])))
        assert found[1] == pytest.approx(scale, abs=1e-6)
        assert -found[0] / found[1] == pytest.approx(slope, abs=1e-6)
    found = jn.shaped(jax.nn.relu, modified_resnet, "dks", 1.2).keywords
    assert found["activation"].keywords["negative_slope"] == pytest.approx(0.87612570735, abs=1e-8)
    assert found["output_shift"] == pytest.approx(-0.0494186929973, abs=1e-8)
    assert found["output_scale"] == pytest.approx(1.06518327056, abs=1e-8)


def test_conditions_hold():
    tat, dks = jn.shaped(jax.nn.sigmoid, 20), jn.shaped(jax.nn.gelu, 1, "dks")
    leaky = [jn.shaped(jax.nn.relu, 20, method) for method in ("tat", "dks")]
    for f in (tat, dks, *leaky):
        assert q_map(f) == pytest.approx(1, abs=1e-8)
        assert q_slope(f) == pytest.approx(1, abs=1e-6)
    assert c_slope(tat) == pytest.approx(1, abs=1e-8)
    assert 20 * c_curvature(tat) == pytest.approx(0.3, abs=1e-6)
    for f, depth in ((dks, 1), (leaky[1], 20)):
        assert c_map(f, 0.0) == pytest.approx(0, abs=1e-8)
        assert c_slope(f) ** depth == pytest.approx(1.5, abs=1e-5)
    assert c_slope(leaky[0]) == pytest.approx(1, abs=1e-8)


@pytest.mark.slow
def test_an_orthogonal_network_follows_the_maps(key):
    """64 pairs of rows of the cosine 1/2, through six layers of 128 units."""
    f, width = jn.shaped(jnp.tanh, 6), 128
    kernels = list(jax.random.normal(key(), (6, width, width)))

    def apply(kernels, x):
        for kernel in kernels:
            x = f(x @ kernel)
        return x

    rows, _ = jnp.linalg.qr(jax.random.normal(key(), (64, width, 2)))
    rows = width**0.5 * jnp.stack([rows[..., 0], rows @ jnp.array([0.5, 0.75**0.5])])
    layout = jn.layout_from_rules([("", -2)])
    kernels = jn.orthogonal_init(apply, kernels, rows, layout=layout)
    x, y = np.asarray(apply(kernels, rows), np.float64)
    cosine = functools.reduce(lambda c, _: c_map(f, c), range(6), 0.5)
    assert np.square(x).mean() == pytest.approx(1, abs=0.1)
    assert (x * y).mean() / np.square(x).mean() == pytest.approx(cosine, abs=0.05)
    assert cosine > 0.52


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_type_and_shape_stay(dtype):
    f = jn.shaped(jax.nn.leaky_relu, 30)
    x = jnp.array([[-2.0, 0.5]], dtype)
    assert (f(x).dtype, f(x).shape) == (x.dtype, x.shape)
    np.testing.assert_array_equal(jax.jit(f)(x), f(x))


KERNELS = [jnp.ones((4, 4))] * 9
X = jnp.ones((2, 4))


def halfway(value):
    return (1 + value) / 2


def folded(x):
    """A reduction with a body of its own, which is no call."""
    return jax.lax.reduce(x[None, ::-1], jnp.float32(0), lambda a, b: a * b + a, (0,))


@pytest.mark.parametrize(
    "activation",
    [jax.nn.relu, jax.nn.leaky_relu, jnp.tanh, jax.nn.gelu, jax.nn.silu, jax.nn.elu, folded],
)
def test_depth_of_a_chain(activation):
    def apply(kernels, x):
        for kernel in kernels[:-1]:
            x = activation(x @ kernel)
        return x @ kernels[-1]

    assert jn.traced_depth(apply, KERNELS, X)(0.0, lambda value: value + 1) == 8


def test_depth_of_residual_networks():
    def before(kernels, x):
        """Activations before kernels, and a shortcut with a kernel."""
        x = x @ kernels[0]
        h = jax.nn.silu(x)
        x = h @ kernels[1] + jax.nn.silu(h @ kernels[2]) @ kernels[3]
        for a, b in (kernels[4:6], kernels[6:8]):
            x = x + jax.nn.silu(jax.nn.silu(x) @ a) @ b
        return jax.nn.silu(x) @ kernels[8]

    def by_hand(value, share):
        branch = halfway(halfway(value))
        value = (halfway(value) + share * halfway(halfway(value))) / (1 + share)
        for _ in range(2):
            value = (value + share * halfway(halfway(value))) / (1 + share)
        return max(halfway(value), branch)

    assert jn.traced_depth(before, KERNELS, X)(0.0, halfway) == by_hand(0.0, 1.0)
    factors = jn.residual_factors(before, KERNELS, X)
    quiet = jn.traced_depth(before, KERNELS, X, factors=factors)
    assert quiet(0.0, halfway) == pytest.approx(by_hand(0.0, 1 / 3), abs=1e-12)

    def after(kernels, x):
        x = jax.nn.relu(x @ kernels[0])
        for a, b in (kernels[1:3], kernels[3:5]):
            x = jax.nn.relu(x + jax.nn.relu(x @ a) @ b)
        return x @ kernels[5]

    value = halfway(0.0)
    for _ in range(2):
        value = halfway((value + halfway(value)) / 2)
    assert jn.traced_depth(after, KERNELS, X)(0.0, halfway) == value
    f = jn.shaped(jax.nn.relu, jn.traced_depth(after, KERNELS, X), target=0.5)
    # Found by bisection of the arc-cosine kernel.
    slope = f.keywords["activation"].keywords["negative_slope"]
    assert slope == pytest.approx(0.214838705, abs=1e-8)
