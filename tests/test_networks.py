"""The ten networks of `examples/networks/`, each through the one call."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import optax
import pytest

import jaxnorm as jn
from examples.networks.report import best_rate, cells
from examples.networks.run import Runs
from examples.networks.ten import NETWORKS

CLASSES = 10

#: Kernels with zero sums (a unit of the first one reads one value of a grey image and has none),
#: and ends of residual branches that start quietly.
FOUND = {
    "ResNet-18": (19, 8),
    "VGG": (8, 0),
    "DenseNet": (20, 0),
    "ResNet-18 v2": (19, 8),
    "bottleneck ResNet": (21, 6),
    "WRN with dropout": (14, 6),
    "MobileNetV2": (13, 2),
    "U-Net": (11, 0),
    "Inception": (28, 0),
    "1-D ResNet": (14, 6),
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
        of_run = {"network": "VGG", "method": "call", "rate": rate, "seed": seed}
        of_run |= {"initial_loss": 2.3, **accuracies, "seconds": 1.0, "statistics": "none"}
        runs.add(of_run)
    again = Runs(tmp_path / "runs.csv").rows
    assert again == runs.rows
    assert best_rate(again) == 0.1
    assert cells(again)["VGG"]["call"].test == [1.0, 3.0]


@pytest.mark.slow  # compiles a network
@pytest.mark.usefixtures("standard_promotion", "unchecked")
@pytest.mark.parametrize("name", FOUND)
def test_the_call_starts_near_chance_and_takes_a_step(name: str) -> None:
    x, y = jax.random.normal(jax.random.key(0), (64, 8, 8, 1)), jnp.arange(64) % CLASSES
    network = NETWORKS[name].build(0, x, CLASSES, False)
    lines = jn.describe_roles(network.logits, network.params, x).splitlines()[1:]
    rows = [line.split() for line in lines]
    free = [kernel for kernel, _, zero_sums, *_ in rows if zero_sums == "no"]
    quiet = [kernel for kernel, *_, start, _ in rows if start not in ("1", "random")]
    assert (len(rows) - len(free), len(quiet)) == FOUND[name]

    raw, tx = jn.normalizer_free(network.logits, network.params, optax.sgd(0.1), x)
    others = "|".join(f"^{re.escape(kernel)}$" for kernel in free)
    layout = jn.exclude(others, layout=jn.traced_layout(jn.read(network.logits, network.params, x)))

    def step(raw: object) -> tuple[jax.Array, jax.Array]:
        def loss(raw: object) -> jax.Array:
            logits = network.logits(raw, x)
            return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

        value, gradient = jax.value_and_grad(loss)(raw)
        updates, _ = tx.update(gradient, tx.init(raw), raw)
        drift = jn.constraint_drift(optax.apply_updates(raw, updates), layout=layout)
        return value, drift["sum"]

    compiled = jax.jit(step).lower(raw).compile(compiler_options=FAST)
    value, drift = compiled(raw)
    assert abs(value - jnp.log(CLASSES)) < 1
    assert drift < 1e-5
