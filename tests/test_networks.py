"""The ten networks of `examples/networks/`, each through the one recipe."""

from pathlib import Path

import jax
import jax.numpy as jnp
import optax
import pytest

import jaxnorm as jn
from examples.networks import recipe
from examples.networks.report import best_rate, cells
from examples.networks.run import Runs
from examples.networks.ten import NETWORKS

CLASSES = 10

#: Kernels that are constrained, and ends of residual branches that start quietly.
FOUND = {
    "ResNet-18": (20, 8),
    "VGG": (9, 0),
    "DenseNet": (21, 0),
    "ResNet-18 v2": (20, 8),
    "bottleneck ResNet": (22, 6),
    "WRN with dropout": (15, 6),
    "MobileNetV2": (14, 2),
    "U-Net": (12, 0),
    "Inception": (29, 0),
    "1-D ResNet": (15, 6),
}

#: Compiling takes most of the time of these tests.
FAST = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


def test_the_table_has_all_networks() -> None:
    assert list(FOUND) == list(NETWORKS)


def test_the_rate_is_chosen_on_held_out_rows_of_the_first_seed(tmp_path: Path) -> None:
    runs = Runs(tmp_path / "runs.csv")
    for rate, seed, held_out, test in (
        (0.1, 0, 90.0, 1.0),
        (0.3, 0, 80.0, 99.0),
        (0.1, 1, 5.0, 3.0),
    ):
        accuracies = {"held_out": held_out, "test": test}
        of_run = {"network": "VGG", "method": "recipe", "rate": rate, "seed": seed}
        runs.add({**of_run, "initial_loss": 2.3, **accuracies, "seconds": 1.0})
    again = Runs(tmp_path / "runs.csv").rows
    assert again == runs.rows
    assert best_rate(again) == 0.1
    assert cells(again)["VGG"]["recipe"].test == [1.0, 3.0]


@pytest.mark.slow  # compiles a network
@pytest.mark.usefixtures("standard_promotion", "unchecked")
@pytest.mark.parametrize("name", FOUND)
def test_recipe_starts_near_chance_and_takes_a_step(name: str) -> None:
    row, x = NETWORKS[name], jax.random.normal(jax.random.key(0), (8, 8, 8, 1))
    network = row.build(0, x, CLASSES, False)
    layout = recipe.hidden_kernels(network.logits, network.params, x, row.free)
    axes = jax.tree.leaves(layout(network.params), is_leaf=lambda leaf: isinstance(leaf, tuple))
    factors = jax.tree.leaves(jn.residual_factors(network.logits, network.params, x))
    assert (len(axes), sum(factor < 1 for factor in factors)) == FOUND[name]

    y = jnp.arange(8)

    def step(params: object) -> tuple[jax.Array, jax.Array]:
        raw = recipe.initial(network.logits, params, x, layout)
        tx = recipe.constrained(optax.sgd(0.1), params, layout)

        def loss(raw: object) -> jax.Array:
            logits = network.logits(jn.effective(raw), x)
            return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

        value, gradient = jax.value_and_grad(loss)(raw)
        updates, _ = tx.update(gradient, tx.init(raw), raw)
        drift = jn.constraint_drift(optax.apply_updates(raw, updates), layout=layout)
        return value, drift["sum"]

    compiled = jax.jit(step).lower(network.params).compile(compiler_options=FAST)
    value, drift = compiled(network.params)
    assert abs(value - jnp.log(CLASSES)) < 1
    assert drift < 1e-5
