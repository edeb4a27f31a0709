"""Shaped activations against the numbers of the authors' program, and against what they promise.

The published scalars are those of the tests of github.com/google-deepmind/dks.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxnorm as jn
from jaxnorm.theory import c_map, c_slope, q_map


def modified_resnet(x, layer):
    """The authors' network of 101 layers with shortcuts of the weight 0.6."""
    branch = layer(layer(layer(x)))
    for blocks in (3, 4, 23, 3):
        for block in range(blocks):
            residual, shortcut = layer(layer(layer(x))), x if block else layer(x)
            x = 0.36 * shortcut + 0.64 * residual
    return max(layer(x), branch)


@pytest.mark.kept("tanh-dks", "gelu-dks", "tanh-tat")
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
    found = jn.shaping.shaped(activation, modified_resnet, method, target).keywords
    names = ("input_scale", "input_shift", "output_shift", "output_scale")
    scalars = [found[name] for name in names]
    np.testing.assert_allclose(scalars, published, rtol=2e-7)


def test_leaky_relu_of_the_published_program():
    for depth, target, slope, scale in (
        (30, None, 0.302694, 1.353563),
        (modified_resnet, 0.75, 0.6291800290346146, 1.196996549778802),
    ):
        f = jn.shaping.shaped(jax.nn.leaky_relu, depth, target=target)
        found = np.asarray(f(jnp.array([-1.0, 1.0])))
        assert found[1] == pytest.approx(scale, abs=1e-6)
        assert -found[0] / found[1] == pytest.approx(slope, abs=1e-6)
    found = jn.shaping.shaped(jax.nn.relu, modified_resnet, "dks", 1.2).keywords
    assert found["activation"].keywords["negative_slope"] == pytest.approx(0.87612570735, abs=1e-8)
    assert found["output_shift"] == pytest.approx(-0.0494186929973, abs=1e-8)
    assert found["output_scale"] == pytest.approx(1.06518327056, abs=1e-8)


def curvature(f):
    """C''(1) = E f''(Z)^2 / E f(Z)^2 by Gauss-Hermite nodes in float64."""
    x, weights = np.polynomial.hermite_e.hermegauss(150)
    with jax.enable_x64(True):
        second = jax.vmap(jax.grad(jax.grad(f)))(jnp.asarray(x))
        values = f(jnp.asarray(x))
    return (weights @ np.square(second)) / (weights @ np.square(values))


def test_conditions_hold():
    tat, dks = jn.shaping.shaped(jax.nn.sigmoid, 20), jn.shaping.shaped(jax.nn.gelu, 1, "dks")
    leaky = [jn.shaping.shaped(jax.nn.relu, 20, method) for method in ("tat", "dks")]
    for f in (tat, dks, *leaky):
        assert q_map(f) == pytest.approx(1, abs=1e-8)
        step = 1e-4
        slope = np.diff(q_map(f, np.array([1 - step, 1 + step])))[0] / (2 * step)
        assert slope == pytest.approx(1, abs=1e-6)
    assert c_slope(tat) == pytest.approx(1, abs=1e-8)
    assert 20 * curvature(tat) == pytest.approx(0.3, abs=1e-6)
    for f, depth in ((dks, 1), (leaky[1], 20)):
        assert c_map(f, 0.0) == pytest.approx(0, abs=1e-8)
        assert c_slope(f) ** depth == pytest.approx(1.5, abs=1e-5)
    assert c_slope(leaky[0]) == pytest.approx(1, abs=1e-8)


@pytest.mark.slow
def test_an_orthogonal_network_follows_the_maps(key):
    """64 pairs of rows of the cosine 1/2, through six layers of 128 units."""
    f, width = jn.shaping.shaped(jnp.tanh, 6), 128
    kernels = list(jax.random.normal(key(), (6, width, width)))

    def apply(kernels, x):
        for kernel in kernels:
            x = f(x @ kernel)
        return x

    rows, _ = jnp.linalg.qr(jax.random.normal(key(), (64, width, 2)))
    rows = width**0.5 * jnp.stack([rows[..., 0], rows @ jnp.array([0.5, 0.75**0.5])])
    layout = jn.layout_from_rules([("", -2)])
    kernels = jn.orthogonal_init(jn.read(apply, kernels, rows), layout=layout)
    x, y = np.asarray(apply(kernels, rows), np.float64)
    cosine = functools.reduce(lambda c, _: c_map(f, c), range(6), 0.5)
    assert np.square(x).mean() == pytest.approx(1, abs=0.1)
    assert (x * y).mean() / np.square(x).mean() == pytest.approx(cosine, abs=0.05)
    assert cosine > 0.52


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_type_and_shape_stay(dtype):
    f = jn.shaping.shaped(jax.nn.leaky_relu, 30)
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

    assert jn.shaping.traced_depth(jn.read(apply, KERNELS, X))(0.0, lambda value: value + 1) == 8


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

    assert jn.shaping.traced_depth(jn.read(before, KERNELS, X))(0.0, halfway) == by_hand(0.0, 1.0)
    factors = jn.residual_factors(jn.read(before, KERNELS, X))
    quiet = jn.shaping.traced_depth(jn.read(before, KERNELS, X), factors=factors)
    assert quiet(0.0, halfway) == pytest.approx(by_hand(0.0, 1 / 3), abs=1e-12)

    def after(kernels, x):
        x = jax.nn.relu(x @ kernels[0])
        for a, b in (kernels[1:3], kernels[3:5]):
            x = jax.nn.relu(x + jax.nn.relu(x @ a) @ b)
        return x @ kernels[5]

    value = halfway(0.0)
    for _ in range(2):
        value = halfway((value + halfway(value)) / 2)
    assert jn.shaping.traced_depth(jn.read(after, KERNELS, X))(0.0, halfway) == value
    f = jn.shaping.shaped(
        jax.nn.relu, jn.shaping.traced_depth(jn.read(after, KERNELS, X)), target=0.5
    )
    # Found by bisection of the arc-cosine kernel.
    slope = f.keywords["activation"].keywords["negative_slope"]
    assert slope == pytest.approx(0.214838705, abs=1e-8)


@pytest.mark.parametrize(
    "activation",
    [
        jax.nn.hard_swish,
        jax.nn.relu6,
        jax.nn.selu,
        jax.nn.hard_tanh,
        lambda x: x * jnp.clip(0.2 * x + 0.5, 0, 1),
        lambda x: jnp.tanh(x) + 0.01 * jnp.abs(x - 6.543),
        jnp.abs,
    ],
)
def test_tailored_activations_have_no_kinks(activation):
    with pytest.raises(ValueError, match="slope jumps at"):
        jn.shaping.shaped(activation, 50)


@pytest.mark.kept("mish")
@pytest.mark.parametrize("activation", [jax.nn.elu, jax.nn.mish, lambda x: jnp.tanh(100 * x)])
def test_steep_and_smooth_activations_have_none(activation):
    assert np.isfinite(jn.shaping.shaped(activation, 50)(jnp.ones(())))


@pytest.mark.parametrize(
    "rectifier",
    [
        lambda x: jax.nn.relu(x),
        lambda x: jnp.maximum(x, 0.0),
        lambda x: jnp.where(x > 0, x, 0.2 * x),
        functools.partial(jax.nn.leaky_relu, negative_slope=0.3),
    ],
)
def test_a_rectifier_is_one_by_its_values(rectifier):
    x = jnp.linspace(-3.0, 3.0, 13)
    np.testing.assert_array_equal(
        jn.shaping.shaped(rectifier, 50)(x), jn.shaping.shaped(jax.nn.relu, 50)(x)
    )


N = 4
MATRICES = {name: jnp.ones((N, N)) for name in ("a", "b", "c")}
IMAGES = jnp.ones((2, 3, 3, N))


def excite(x, p):
    return x * jax.nn.sigmoid(jax.nn.relu(x.mean((1, 2)) @ p["b"]) @ p["c"])[:, None, None]


def glu(x):
    value, gate = jnp.split(x, 2, axis=-1)
    return value * jax.nn.sigmoid(gate)


#: Networks with a product of two values that depend on the inputs.
GATED = {
    "swiglu": lambda p, x: (jax.nn.silu(x @ p["a"]) * (x @ p["b"])) @ p["c"],
    "bilinear": lambda p, x: ((x @ p["a"]) * (x @ p["b"])) @ p["c"],
    "squeeze and excitation": lambda p, x: excite(x @ p["a"], p),
    "one kernel, in two parts": lambda p, x: glu(x @ p["a"]) @ p["b"][: N // 2],
    "slices": lambda p, x: ((x @ p["a"])[..., :2] * jnp.tanh(x @ p["a"])[..., 2:]) @ p["b"][:2],
    "highway": lambda p, x: x + jax.nn.sigmoid(x @ p["a"]) * (jax.nn.relu(x @ p["b"]) - x),
    "gate of the inputs": lambda p, x: (x * jax.nn.sigmoid(x @ p["a"])) @ p["b"],
    "a power": lambda p, x: (jnp.exp(x @ p["a"]) ** jnp.tanh(x @ p["b"])) @ p["c"],
    "an open or a shut gate": lambda p, x: (
        ((x @ p["a"]) * (x @ p["b"] > 0).astype(x.dtype)) @ p["c"]
    ),
    "a choice": lambda p, x: jnp.where(x @ p["b"] > 0, x @ p["a"], 0.0) @ p["c"],
    "a quotient": lambda p, x: ((x @ p["a"]) / (1 + jnp.abs(x @ p["b"]))) @ p["c"],
    "dynamic filters": lambda p, x: jnp.einsum("bhwi,bhwj->bij", x @ p["a"], x @ p["b"]) @ p["c"],
}


@pytest.mark.parametrize("name", GATED)
def test_gates_have_no_depth(name):
    with pytest.raises(ValueError, match="multiplies two values"):
        jn.shaping.traced_depth(jn.read(GATED[name], MATRICES, IMAGES))


def normalized(x):
    x = x - x.mean(-1, keepdims=True)
    return x * jax.lax.rsqrt((x**2).mean(-1, keepdims=True) + 1e-6)


def dropped(x):
    return x * jax.random.bernoulli(jax.random.key(0), 0.5, x.shape).astype(x.dtype)


@pytest.mark.parametrize(
    "activation",
    [
        jax.nn.silu,
        functools.partial(jax.nn.gelu, approximate=False),
        jax.nn.gelu,
        jax.nn.hard_swish,
        lambda x: x * (x > 0).astype(x.dtype),
        lambda x: jnp.tanh(normalized(x)),
        lambda x: jax.nn.relu(dropped(x)),
        lambda x: x**2 * x,
        lambda x: jnp.where(x > 0, x, jnp.expm1(x)),
        lambda x: jnp.where(IMAGES[:1] > 0, jnp.tanh(x), 0.0),
    ],
)
def test_functions_of_one_variable_are_one_activation(activation):
    network = jn.shaping.traced_depth(
        jn.read(lambda p, x: activation(x @ p["a"]) @ p["b"] @ p["c"], MATRICES, IMAGES)
    )
    assert network(0.0, lambda value: value + 1) == 1


def test_a_mask_among_the_inputs_is_no_gate():
    """Padding, of which neither sign nor choice depends on a layer."""
    masked = lambda p, x, mask: jnp.where(mask, jnp.tanh(x @ p["a"]), 0.0) @ p["b"]  # noqa: E731
    network = jn.shaping.traced_depth(jn.read(masked, MATRICES, IMAGES, IMAGES > 0))
    assert network(0.0, lambda value: value + 1) == 1
