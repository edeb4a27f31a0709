"""Other authors' methods of `examples/networks`, as their authors use them."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import jaxnorm as jn
from examples.networks.built import Built, Entry, of_nnx
from examples.networks.methods import AGC, _clipped
from examples.networks.mimicnorm import mimicnorm


class Residual(nnx.Module):
    """Two branches, which are executed in another order than that of their names."""

    def __init__(self, rngs: nnx.Rngs, shape: tuple[int, ...], classes: int):
        self.stem = nnx.Linear(shape[-1], 8, rngs=rngs)
        self.norm = nnx.BatchNorm(8, rngs=rngs)
        self.last = nnx.Linear(8, 8, rngs=rngs)
        self.first = nnx.Linear(8, 8, rngs=rngs)
        self.zeroth = nnx.Linear(8, 8, rngs=rngs)
        self.head = nnx.Linear(8, classes, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = self.norm(self.stem(x))
        for branch in (self.zeroth, self.first, self.last):
            x = x + branch(nnx.relu(x))
        return self.head(nnx.relu(x))


@pytest.fixture(scope="module")
def x() -> jax.Array:
    return jax.random.normal(jax.random.key(0), (32, 6))


@pytest.fixture(scope="module")
def built(x: jax.Array) -> Built:
    return of_nnx(Residual)(x, 3, "none")


def test_the_branch_l_of_mimicnorm_starts_at_one_over_l(built: Built, x: jax.Array) -> None:
    fitted = mimicnorm(built, x, "^head/", depth=2).built
    factors = [float(fitted.params["factors"][str(index)]) for index in range(3)]
    np.testing.assert_allclose(factors, [1.44, 0.72, 0.48], rtol=1e-6)
    # The first factor is that of the first branch to be executed.
    state = jax.tree.map(jnp.asarray, fitted.state)
    zero = {**fitted.params, "factors": {**fitted.params["factors"], "0": jnp.float32(0)}}
    net = {**fitted.params["net"], "zeroth": jax.tree.map(jnp.zeros_like, built.params["zeroth"])}
    with jax.numpy_rank_promotion("allow"):
        by_factor = fitted.usual.apply(zero, state, x, train=True)[0]
        by_kernel = fitted.usual.apply({**fitted.params, "net": net}, state, x, train=True)[0]
    np.testing.assert_allclose(by_factor, by_kernel, rtol=1e-5, atol=1e-5)


def test_adaptive_clipping_leaves_the_classifier_and_starts_quietly(
    built: Built, x: jax.Array
) -> None:
    prepared = _clipped(built, Entry(of_nnx(Residual), "^head/", True), x)
    params, tx = prepared.start(0, optax.sgd(1.0))
    gradients = jax.tree.map(lambda leaf: jnp.full_like(leaf, 1e3), params)
    updates, _ = tx.update(gradients, tx.init(params), params)
    for name in ("stem", "zeroth", "first", "last"):
        norms = np.linalg.norm(updates[name]["kernel"], axis=0)
        most = AGC * np.linalg.norm(params[name]["kernel"], axis=0)
        np.testing.assert_allclose(norms, most, rtol=1e-5)
    np.testing.assert_array_equal(updates["head"]["kernel"], -gradients["head"]["kernel"])
    np.testing.assert_array_equal(updates["stem"]["bias"], -gradients["stem"]["bias"])
    layout = jn.exclude("^head/", layout=jn.traced_layout(jn.read(built.logits, built.params, x)))
    fitted = jn.variance_preserving_init(jn.read(built.logits, built.draw(0), x), layout=layout)
    for name, factor in (("stem", 1.0), ("zeroth", 3**-0.5), ("last", 3**-0.5)):
        expected = factor * fitted[name]["kernel"]
        np.testing.assert_allclose(params[name]["kernel"], expected, rtol=1e-5)
