"""nGPT, EDM2 and the Stiefel method against their papers' formulas, in float64 NumPy."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from experiments.errors import UserError
from experiments.methods.optimizer import base_optimizer
from experiments.methods.rivals.edm2 import ForcedNorm
from experiments.methods.rivals.ngpt import Hypersphere
from experiments.methods.rivals.orthogonal import Stiefel
from experiments.methods.table import METHODS
from experiments.models.magnitude import preserving_sum
from experiments.models.normalized_transformer import HEADS, NormalizedTransformer
from experiments.models.sizes import NetworkSizes
from experiments.training.fit import fit
from experiments.training.trainer import make_trainer
from jaxnorm import effective
from tests.draws import float32
from tests.experiments.test_transformer import CONFIG, counting
from tests.experiments.toy import SETTINGS, after_an_epoch, start, toy_trainer

pytestmark = pytest.mark.usefixtures("standard_promotion")

WIDTH, LENGTH, TOKENS, DEPTH = 8, 5, 7, 2
RATE = 0.3
#: A layer of the toy network.
LAYER = ("blocks", 0, "linear", "kernel")


def unit(x: np.ndarray, axis: int = -1) -> np.ndarray:
    return x / np.linalg.norm(x, axis=axis, keepdims=True)


def wide(tree: Any) -> Any:
    return jax.tree.map(lambda x: np.asarray(x, np.float64), tree)


def at(tree: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        tree = tree[key]
    return tree


def logits_of(params: Any, tokens: np.ndarray) -> np.ndarray:
    """Computes the paper's network on one text, position by position."""
    head = WIDTH // HEADS
    kept = WIDTH**0.5
    h = unit(params["embedding"]["embedding"][tokens] + params["positions"]["embedding"])
    for block in params["blocks"].values():
        scale = block["scale_qk"]["kept"] * kept
        kernels = (block[name]["kernel"] for name in ("query", "key", "value"))
        q, k, v = (np.einsum("ti,ihd->thd", h, kernel) for kernel in kernels)
        q, k = scale * unit(q), scale * unit(k)
        mixed = np.zeros_like(v)
        for t in range(LENGTH):
            scores = np.exp(head**0.5 * np.einsum("hd,shd->hs", q[t], k[: t + 1]))
            scores = scores / scores.sum(-1, keepdims=True)
            mixed[t] = np.einsum("hs,shd->hd", scores, v[: t + 1])
        attention = np.einsum("thd,hdi->ti", mixed, block["out"]["kernel"])
        rate = block["attention_rates"]["kept"] * kept / DEPTH
        h = unit(h + abs(rate) * (unit(attention) - h))
        u = block["scale_u"]["kept"] * (h @ block["first_u"]["kernel"])
        v = block["scale_v"]["kept"] * (h @ block["first_v"]["kernel"]) * WIDTH**0.5
        mlp = (u * v / (1 + np.exp(-v))) @ block["second"]["kernel"]
        rate = block["mlp_rates"]["kept"] * kept / DEPTH
        h = unit(h + abs(rate) * (unit(mlp) - h))
    return params["scale_z"]["kept"] * kept * (h @ params["head"]["kernel"])


@pytest.mark.slow
def test_ngpt_is_the_network_of_the_paper() -> None:
    sizes = NetworkSizes((LENGTH,), TOKENS, DEPTH, WIDTH, 1)
    structure, params = nnx.split(NormalizedTransformer(sizes, nnx.Rngs(0)))
    # Learned scales are moved, also to negative rates, so that their places show.
    draw = np.random.default_rng(0)
    params = jax.tree.map(lambda x: x + 0.3 * jnp.float32(draw.normal(size=x.shape)), params)
    tokens = draw.integers(0, TOKENS, (3, LENGTH)).astype(np.int32)
    network = jax.jit(lambda params, tokens: nnx.merge(structure, params)(tokens))
    got = network(params, tokens)
    plain = wide(nnx.to_pure_dict(params))
    for row, text in zip(got, tokens, strict=True):
        np.testing.assert_allclose(row, logits_of(plain, text), rtol=2e-4, atol=2e-5)


@pytest.mark.slow
def test_ngpt_s_matrices_have_unit_norm_along_the_embedding_and_it_learns() -> None:
    config = CONFIG.changed(depth=DEPTH, epochs=12, optimizer="adam", learning_rate=0.03)
    trainer = make_trainer(METHODS["ngpt"], config, counting())
    run = fit(trainer, counting(), 0)
    assert run.curve[-1].test_accuracy > 0.9
    params = wide(run.state.params)
    embeddings = [params[name]["embedding"] for name in ("embedding", "positions")]
    outwards = [block[name]["kernel"] for block in params["blocks"].values()
                for name in ("out", "second")]  # fmt: skip
    inwards = [block[name]["kernel"].reshape(WIDTH, -1) for block in params["blocks"].values()
               for name in ("query", "key", "value", "first_u", "first_v")]  # fmt: skip
    for matrix in embeddings + outwards:
        np.testing.assert_allclose(np.linalg.norm(matrix, axis=-1), 1, rtol=1e-5)
    for matrix in [*inwards, params["head"]["kernel"]]:
        np.testing.assert_allclose(np.linalg.norm(matrix, axis=0), 1, rtol=1e-5)
    assert run.curve[-1].drift < 1e-5


@pytest.mark.slow
def test_a_step_of_ngpt_is_the_optimizer_s_and_then_the_norm() -> None:
    sizes = NetworkSizes((LENGTH,), TOKENS, 1, WIDTH, 1)
    params = nnx.to_pure_dict(nnx.state(NormalizedTransformer(sizes, nnx.Rngs(0)), nnx.Param))
    context = toy_trainer("none").context
    params, tx = Hypersphere().call(params, optax.sgd(RATE), context)
    gradient = jax.tree.map(lambda x: jnp.cos(jnp.arange(x.size)).reshape(x.shape), params)
    step = jax.jit(lambda g, p: optax.apply_updates(p, tx.update(g, tx.init(p), p)[0]))
    new = wide(step(gradient, params))
    for path, axis in (
        (("embedding", "embedding"), -1),
        (("blocks", 0, "query", "kernel"), 0),
        (("blocks", 0, "second", "kernel"), -1),
        (("head", "kernel"), 0),
    ):
        moved = wide(at(params, path)) - RATE * wide(at(gradient, path))
        np.testing.assert_allclose(at(new, path), unit(moved, axis), rtol=1e-5, atol=1e-6)
    scales = ("blocks", 0, "scale_u", "kept")
    moved = wide(at(params, scales)) - RATE * wide(at(gradient, scales))
    np.testing.assert_allclose(at(new, scales), moved, rtol=1e-6)


def test_ngpt_has_a_network_of_its_own() -> None:
    with pytest.raises(UserError, match="ngpt is a transformer"):
        toy_trainer("ngpt")


def test_a_sum_that_preserves_magnitude_has_the_variance_of_its_terms() -> None:
    """The terms have mean square 1 and correlation r."""
    for balance in (0.3, 0.5, 1.0):
        for correlation in (0.0, 0.5):
            a = np.array([1.0, 1.0, -1.0, -1.0])
            b = correlation * a + (1 - correlation**2) ** 0.5 * np.array([1.0, -1.0, 1.0, -1.0])
            got = np.asarray(preserving_sum(jnp.asarray(a), jnp.asarray(b), balance), np.float64)
            squares = (1 - balance) ** 2 + balance**2
            expected = 1 + 2 * balance * (1 - balance) * correlation / squares
            assert (got**2).mean() == pytest.approx(expected, rel=1e-6)


@pytest.mark.slow
def test_a_step_of_edm2_is_weight_normalization_s_and_then_the_norm() -> None:
    random = np.random.default_rng(0)
    trainer, part = toy_trainer("none"), ForcedNorm()
    params = start(trainer, 0).params
    raw = part.parameters(params, trainer.context, jnp.zeros(()))
    kernel = wide(at(params, LAYER))
    direction = wide(at(raw, LAYER).direction)
    np.testing.assert_allclose(direction, len(kernel) ** 0.5 * unit(kernel, 0), rtol=1e-5)
    weight = float32(random.normal(size=kernel.shape))

    def loss(raw: Any) -> jax.Array:
        return (at(effective(raw), LAYER) * weight).sum()

    np.testing.assert_allclose(at(effective(raw), LAYER), unit(kernel, 0), rtol=1e-5, atol=1e-6)
    tx = part.optimizer(optax.sgd(RATE), trainer.context, 0)

    @jax.jit
    def step(raw: Any) -> Any:
        updates, _ = tx.update(jax.grad(loss)(raw), tx.init(raw), raw)
        return optax.apply_updates(raw, updates)

    new = at(step(raw), LAYER)
    length, g = np.linalg.norm(direction, axis=0), wide(weight)
    along = direction * (direction * g).sum(0) / length**2
    moved = direction - RATE * (g - along) / length
    expected = len(kernel) ** 0.5 * unit(moved, 0)
    np.testing.assert_allclose(new.direction, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(new.scale, 1)


@pytest.mark.slow
@pytest.mark.parametrize("base", ["sgd", "muon"])
def test_edm2_and_stiefel_keep_to_their_sets_in_training(base: str) -> None:
    for name in ("edm2", "stiefel"):
        trainer = toy_trainer(name, base)
        before, state = start(trainer, 0), after_an_epoch(trainer)
        assert trainer.method.drift(state.params, trainer.context) < 2e-6
        node, old = at(state.params, LAYER), at(before.params, LAYER)
        assert not np.allclose(jax.tree.leaves(node)[0], jax.tree.leaves(old)[0], atol=1e-3)
        if name == "edm2":
            np.testing.assert_array_equal(node.scale, 1)
        else:
            rows, columns = node.kernel.shape
            values = np.linalg.svd(wide(node.kernel), compute_uv=False)
            np.testing.assert_allclose(values, (2 * max(1, columns / rows)) ** 0.5, rtol=2e-6)


def test_averaged_kernels_go_back_to_the_manifold() -> None:
    trainer = toy_trainer("none")
    params = start(trainer, 0).params
    landed = wide(at(Stiefel(2.0).projected(params, trainer.context), LAYER))
    left, _, right = np.linalg.svd(wide(at(params, LAYER)), full_matrices=False)
    rows, columns = landed.shape
    size = (2 * max(1, columns / rows)) ** 0.5
    np.testing.assert_allclose(landed, size * left @ right, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_muon_turns_kernels_and_leaves_the_rest_to_adam() -> None:
    trainer = toy_trainer("none")
    params = start(trainer, 0).params
    config = SETTINGS.changed(optimizer="muon", weight_decay=0.0, learning_rate=RATE)
    tx = base_optimizer(config, lambda step: jnp.float32(1), trainer.context.kernels)
    gradient = jax.tree.map(lambda x: jnp.cos(jnp.arange(x.size)).reshape(x.shape), params)
    updates, _ = tx.update(gradient, tx.init(params), params)
    adam = optax.adam(RATE, nesterov=True)
    usual, _ = adam.update(gradient, adam.init(params), params)
    bias = (*LAYER[:-1], "bias")
    np.testing.assert_allclose(at(updates, bias), at(usual, bias), rtol=1e-5)
    kernel, g = wide(at(updates, LAYER)), wide(at(gradient, LAYER))
    left, values, right = np.linalg.svd(g, full_matrices=False)
    # Only the directions that the gradient has; in them Muon's singular values are 0.7 to 1.2.
    kept = values > 1e-3 * values[0]
    found = -np.diag(left.T @ kernel @ right.T)[kept] / (RATE * 0.2 * max(g.shape) ** 0.5)
    assert kept.any()
    assert (found > 0.65).all()
    assert (found < 1.25).all()
