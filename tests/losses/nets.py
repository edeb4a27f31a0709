"""A network with one normalized layer, and the exact strength of its gamma decay."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

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
        # The model's own predictions, which give the loss a curvature.
        self.labels = jnp.argmax(features @ self.head, 1)

    def losses(self, h: jax.Array) -> jax.Array:
        """Loss of each sample, as a function of pre-activations after scale and bias."""
        features = jnp.tanh(h).reshape(h.shape[0], -1)
        logits = jax.nn.log_softmax(features @ self.head)
        return -jnp.take_along_axis(logits, self.labels[:, None], 1)[:, 0]

    def affine(self, u: jax.Array) -> jax.Array:
        shape = (1,) * (u.ndim - 1) + (-1,)
        return self.scale.reshape(shape) * u + self.bias.reshape(shape)

    def loss_of_perturbation(self, perturbation: jax.Array) -> jax.Array:
        return self.losses(self.affine(self.normalized) + perturbation).mean()

    def sample_loss(self, scale: jax.Array, bias: jax.Array, sample: Any) -> jax.Array:
        """Loss of one sample, as a function of scale and bias."""
        u, label = sample
        shape = (1,) * (u.ndim - 1) + (-1,)
        features = jnp.tanh(scale.reshape(shape) * u + bias.reshape(shape)).reshape(-1)
        return -jax.nn.log_softmax(features @ self.head)[label]

    def exact(self, rho: Any = 0.0) -> np.ndarray[Any, Any]:
        """Definition of the strength, with each sample's full Hessian, in float64."""
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


def assert_unbiased(draws: Any, exact: np.ndarray[Any, Any]) -> None:
    """The mean of the draws is within its own standard error, which is small beside the value."""
    wide = np.asarray(draws, np.float64)
    error = wide.std(0) / np.sqrt(len(wide))
    assert np.all(np.abs(wide.mean(0) - exact) < SIGMAS * error + 1e-6)
    assert np.all(error < 0.2 * np.abs(exact).max())
