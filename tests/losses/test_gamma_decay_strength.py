"""Strengths against explicit Hessians and against the loss under resampled batch statistics."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from jaxnorm import gamma_decay, gamma_decay_strength, perceptron_gamma_decay_strength
from tests.draws import draw

M = 50.0
# Standard errors that an estimate may be off: one test in ten thousand fails at 4 by chance, and
# the seeds are fixed.
SIGMAS = 4.0


def normalize(h: Any) -> Any:
    axes = tuple(range(h.ndim - 1))
    return (h - h.mean(axes, keepdims=True)) / h.std(axes, keepdims=True)


def conv(x: jax.Array, kernel: jax.Array) -> jax.Array:
    numbers = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=numbers)


class Net:
    """One normalized layer with scale and bias, tanh, and a softmax classifier on top."""

    def __init__(self, kind: str, samples: int, seed: int = 0) -> None:
        if kind == "dense":
            x, w, units = draw(seed, samples, 4), draw(seed + 1, 4, 3), 3
            self.normalized, self.head = normalize(x @ w), draw(seed + 2, 3, 3)
        else:
            x, w, units = draw(seed, samples, 4, 4, 1), draw(seed + 1, 3, 3, 1, 2), 2
            self.normalized, self.head = normalize(conv(x, w)), draw(seed + 2, 32, 3)
        self.scale = 1 + draw(seed + 3, units) / 3
        self.bias = draw(seed + 4, units) / 3
        features = jnp.tanh(self.affine(self.normalized)).reshape(samples, -1)
        # What the model itself says, so that the loss has a curvature to speak of.
        self.labels = jnp.argmax(features @ self.head, 1)

    def losses(self, h: jax.Array) -> jax.Array:
        """One loss a sample, of pre-activations after scale and bias."""
        features = jnp.tanh(h).reshape(h.shape[0], -1)
        logits = jax.nn.log_softmax(features @ self.head)
        return -jnp.take_along_axis(logits, self.labels[:, None], 1)[:, 0]

    def affine(self, u: jax.Array) -> jax.Array:
        shape = (1,) * (u.ndim - 1) + (-1,)
        return self.scale.reshape(shape) * u + self.bias.reshape(shape)

    def of_perturbations(self, perturbation: jax.Array) -> jax.Array:
        return self.losses(self.affine(self.normalized) + perturbation).mean()

    def exact(self, rho: Any = 0.0) -> np.ndarray[Any, Any]:
        """The definition, with the full Hessian of each sample's loss, in float64."""
        h = np.asarray(self.affine(self.normalized), np.float64)
        u = np.asarray(self.normalized, np.float64)
        with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
            hessians = [
                np.asarray(jax.hessian(lambda z, j=j: self._loss_of(j, z))(jnp.asarray(h[j])))
                for j in range(len(h))
            ]
        units = h.shape[-1]
        result = np.zeros(units)
        for i in range(units):
            for sample, hessian in zip(u, hessians, strict=True):
                positions = int(np.prod(sample.shape[:-1], dtype=int))
                full = hessian.reshape(positions, units, positions, units)[:, i, :, i]
                v = sample.reshape(positions, units)[:, i]
                one = np.ones(positions)
                result[i] += (rho + 2) / (4 * M) * v @ full @ v + one @ full @ one / M
        return result / 2 / len(h)

    def _loss_of(self, j: int, z: jax.Array) -> jax.Array:
        logits = jax.nn.log_softmax(jnp.tanh(z).reshape(-1) @ self.head)
        return -logits[self.labels[j]]


@pytest.mark.kept("dense")
@pytest.mark.parametrize("kind", ["dense", "conv"])
def test_the_strength_is_that_of_the_explicit_hessian(kind: str) -> None:
    """The mean of many draws of two probes each, within its own standard error."""
    net, rho = Net(kind, 12), 1.5

    def one(key: jax.Array) -> jax.Array:
        settings = {"probes": 2, "excess_kurtosis": rho}
        return gamma_decay_strength(net.of_perturbations, net.normalized, M, key=key, **settings)

    draws = jax.jit(lambda keys: jax.lax.map(one, keys))(jax.random.split(jax.random.key(1), 1000))
    draws = np.asarray(draws, np.float64)
    error = draws.std(0) / np.sqrt(len(draws))
    exact = net.exact(rho)
    assert np.all(np.abs(draws.mean(0) - exact) < SIGMAS * error + 1e-6)
    # An estimate that says something: the error is small beside what is estimated.
    assert np.all(error < 0.2 * np.abs(exact).max())


def test_one_unit_alone_needs_one_probe_and_no_luck() -> None:
    """Nothing to cancel: a sign squared is 1. Two layers of one unit each, seen one at a time."""
    u = {"a": normalize(draw(5, 20, 1)), "b": normalize(draw(6, 20, 3, 1))}

    def loss(p: Any) -> jax.Array:
        a = jnp.square(u["a"] + p["a"]).mean()
        return a + jnp.square((u["b"] + p["b"]).sum(1)).mean() / 2

    rho = {"a": jnp.asarray([1.0]), "b": 0.0}
    sizes = {"a": 10.0, "b": 20.0}
    strength = jax.jit(
        lambda key: gamma_decay_strength(loss, u, sizes, key=key, excess_kurtosis=rho)
    )
    for seed in range(3):
        got = strength(jax.random.key(seed))
        summed = np.asarray(u["b"], np.float64).sum((1, 2))
        by_hand = {
            "a": 0.5 * (3 / 40 * 2 + 2 / 10),
            "b": 0.5 * (2 / 80 * np.square(summed).mean() + 9 / 20),
        }
        for name, wanted in by_hand.items():
            np.testing.assert_allclose(got[name], [wanted], rtol=1e-5)


def test_strengths_of_either_sign_unless_clipped() -> None:
    u = normalize(draw(10, 16, 2))
    loss = lambda p: (jnp.asarray([[1.0, -1.0]]) * jnp.square(u + p)).sum(1).mean()  # noqa: E731
    key = jax.random.key(0)
    got = gamma_decay_strength(loss, u, M, key=key)
    assert got[0] > 0 > got[1]
    clipped = gamma_decay_strength(loss, u, M, key=key, nonnegative=True)
    assert clipped.tolist() == [got[0], 0.0]


@pytest.mark.parametrize("what", ["loss", "batch_size", "excess_kurtosis"])
def test_no_gradient_goes_through_a_strength(what: str) -> None:
    """Not through the Hessian either, and not through the settings: decay is no loss of them."""
    u, key = draw(10, 16, 2), jax.random.key(0)

    def total(p: jax.Array) -> jax.Array:
        curvature = p if what == "loss" else jnp.float32(1)
        settings = {"batch_size": jnp.float32(M), "excess_kurtosis": jnp.float32(0)}
        settings |= {} if what == "loss" else {what: p}
        loss = lambda shift: (curvature * jnp.cosh(u + shift)).sum(1).mean()  # noqa: E731
        return gamma_decay_strength(loss, u, key=key, **settings).sum()

    value, other, slope = jax.jit(lambda p: (total(p), total(2 * p), jax.grad(total)(p)))(3.0)
    assert abs(value / other - 1) > 0.1
    assert slope == 0


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_half_types_give_float32_strengths(dtype: str) -> None:
    u = normalize(draw(11, 64, 3)).astype(jnp.dtype(dtype))
    got = gamma_decay_strength(
        lambda p: jnp.square(u + p).sum(1).mean(), u, M, key=jax.random.key(1)
    )
    assert got.dtype == jnp.float32
    np.testing.assert_allclose(got, 0.5 * (2 / (4 * M) + 1 / M) * 2, rtol=2e-2)


def test_every_device_has_signs_of_its_own() -> None:
    """Four devices with the same rows: four times the probes, so a quarter of the variance."""
    u, head = normalize(draw(13, 6, 3)), draw(14, 3, 3)

    def strengths(keys: jax.Array, u: jax.Array, axis_name: str | None = None) -> jax.Array:
        def loss(p: jax.Array) -> jax.Array:
            return jnp.square((u + p) @ head).sum(1).mean()

        return jax.vmap(lambda key: gamma_decay_strength(loss, u, M, key=key, axis_name=axis_name))(
            keys
        )

    keys = jax.random.split(jax.random.key(2), 1000)
    mesh = jax.make_mesh((4,), ("data",), axis_types=(AxisType.Auto,))
    mapped = jax.shard_map(
        lambda keys, u: strengths(keys, u, "data"),
        mesh=mesh,
        in_specs=(P(), P("data")),
        out_specs=P(),
    )
    alone, together = jax.jit(strengths)(keys, u), jax.jit(mapped)(keys, jnp.tile(u, (4, 1)))
    # Of a thousand draws a variance is right to 5 percent, more where tails are heavy.
    np.testing.assert_allclose(together.var(0) / alone.var(0), 0.25, atol=0.06)


def test_the_perceptrons_strength_is_equation_3() -> None:
    gradients, h = draw(13, 40, 3), draw(14, 40, 3)
    rho = jnp.asarray([0.0, 1.0, -1.0])
    wide = [np.asarray(a, np.float64) for a in (gradients, h, rho)]
    activity = (1 / (1 + np.exp(-wide[1]))).mean(0)
    wanted = (wide[2] + 2) / (8 * M) * (wide[0] ** 2).mean(0) + activity / (2 * M)
    got = perceptron_gamma_decay_strength(gradients, h, M, excess_kurtosis=rho)
    np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_gamma_decay_is_the_weighted_sum_of_squares() -> None:
    scales = {"a": draw(16, 3), "b": {"c": draw(17, 2), "d": draw(18, 4)}}
    strengths = {"a": draw(19, 3), "b": {"c": 0.5, "d": None}}
    wide = [np.asarray(x, np.float64) for x in (scales["a"], strengths["a"], scales["b"]["c"])]
    wanted = (wide[1] * wide[0] ** 2).sum() + 0.5 * (wide[2] ** 2).sum()
    np.testing.assert_allclose(gamma_decay(scales, strengths), wanted, rtol=1e-6)
    gradient = jax.grad(gamma_decay)(scales, strengths)
    np.testing.assert_allclose(gradient["a"], 2 * wide[1] * wide[0], rtol=1e-6)
    assert not np.asarray(gradient["b"]["d"]).any()
    squares = sum(float(np.square(np.asarray(x)).sum()) for x in jax.tree.leaves(scales))
    np.testing.assert_allclose(gamma_decay(scales, 2.0), 2 * squares, rtol=1e-5)


def test_a_strength_of_other_units_is_refused() -> None:
    with pytest.raises(ValueError, match=r"strength has the shape \(3,\); wanted \(2,\)"):
        gamma_decay({"a": jnp.ones(2)}, {"a": jnp.ones(3)})
