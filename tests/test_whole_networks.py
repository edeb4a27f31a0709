"""Whole trainings of networks: their convolutions, methods, choice and summary."""

import json
import math
import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from examples.networks import fast_conv, whole
from examples.networks.built import ENTRIES
from examples.networks.kernels import is_kernel
from examples.networks.methods import METHODS, optimizer
from examples.networks.summary import chosen, differences, interval, labelled, pooled
from examples.networks.tasks import segmented
from examples.networks.training import Arrays, order, score
from tests.draws import draw
from tests.programs import ROOT


@pytest.mark.kept("padding2-1-strides1", "padding2-4-strides0")
@pytest.mark.parametrize("window", [1, 3, 4])
@pytest.mark.parametrize("strides", [(1, 1), (2, 1)])
@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("padding", ["SAME", "VALID", [(1, 2), (0, 1)]])
def test_products_are_the_convolution(window, strides, groups, padding) -> None:
    x, kernel = draw(0, 2, 7, 8, 4), draw(1, window, window, 4 // groups, 4)
    options = {"feature_group_count": groups, "dimension_numbers": ("NHWC", "HWIO", "NHWC")}
    wanted = jax.lax.conv_general_dilated(x, kernel, strides, padding, **options)
    made = fast_conv.conv(x, kernel, strides, padding, feature_group_count=groups)
    np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-5)


def test_transposed_convolutions_stay() -> None:
    layer = nnx.ConvTranspose(3, 5, (2, 2), (2, 2), rngs=nnx.Rngs(0))
    fast = fast_conv.with_products(nnx.Sequential(layer)).layers[0]
    assert type(fast) is nnx.ConvTranspose


def test_every_row_comes_once_in_each_epoch() -> None:
    rows = order(3, rows=10, steps=7, batch=3)
    assert rows.shape == (7, 3)
    for epoch in (rows[:3], rows[3:6]):
        assert len(set(np.ravel(epoch).tolist())) == 9
    assert not np.array_equal(rows, order(4, 10, 7, 3))


def test_the_score_of_label_maps_is_the_mean_intersection_over_union() -> None:
    draw = np.random.default_rng(0)
    labels, predicted = draw.integers(0, 3, (2, 10, 4, 4))
    ious = [
        np.sum((labels == k) & (predicted == k)) / np.sum((labels == k) | (predicted == k))
        for k in range(3)
    ]
    rows = Arrays(jnp.asarray(predicted)[..., None], jnp.asarray(labels))
    made = score(lambda x: jax.nn.one_hot(x[..., 0], 3), rows, 3)
    np.testing.assert_allclose(made, np.mean(ious), rtol=1e-6)


def test_objects_have_labels() -> None:
    x, y = segmented(np.random.default_rng(0), 4, 32)
    assert x.shape == (4, 32, 32, 3)
    assert set(np.unique(y)) == {0, 1, 2}


def run_of(network: str, method: str, seed: int, rate: float, **values: float) -> whole.Run:
    """Returns a finished run."""
    options = whole.arguments().parse_args(["--out", "", "--networks", "", "--methods", ""])
    common = whole.settings(options, network, method, "sgd")
    measured = {"initial_loss": 2.3, "training_loss": 1.0, "finite": True, "seconds": 1.0}
    return {**common, **measured, "seed": seed, "rate": rate, "decay": 1e-3, **values}


def test_finished_runs_are_known_by_their_settings(tmp_path: Path) -> None:
    run = run_of("VGG16", "bn", 0, 0.1, held_out=50.0, test=40.0)
    whole.append(tmp_path, [run])
    whole.append(tmp_path, [{**run, "seed": 1}])
    first, second = whole.read_runs(tmp_path)
    assert whole.key_of(first) == whole.key_of(run) != whole.key_of(second)
    assert json.loads(whole.key_of(run))[0] == "VGG16"


def test_a_run_that_is_not_finite_is_not_chosen() -> None:
    runs = [
        run_of("VGG16", "bn", 0, 0.3, held_out=90.0, test=1.0, finite=False),
        run_of("VGG16", "bn", 0, 0.1, held_out=50.0, test=1.0),
        run_of("VGG16", "bn", 0, 0.03, held_out=50.0, test=1.0),
    ]
    assert whole.best(runs)["rate"] == 0.03


def test_chunks_are_filled_by_repetition() -> None:
    runs = [run_of("VGG16", "bn", seed, 0.1, held_out=1.0, test=1.0) for seed in range(5)]
    sizes = [[run["seed"] for run in chunk] for chunk in whole.chunks(runs, 3)]
    assert sizes == [[0, 1, 2], [3, 4, 4]]


def test_differences_are_paired_by_network_and_seed() -> None:
    tests = {
        ("A", "bn"): (40, 44),
        ("A", "call"): (41, 46),
        ("B", "bn"): (50,),
        ("B", "call"): (48,),
    }
    runs = [
        run_of(network, method, seed, 0.1, held_out=1.0, test=float(test))
        for (network, method), of_seeds in tests.items()
        for seed, test in enumerate(of_seeds)
    ]
    found = differences(chosen(runs), "call", "bn", "test")
    assert found == {"A": [1.0, 2.0], "B": [-2.0]}
    pairs, networks = pooled(found)
    assert math.isclose(pairs.mean, 1 / 3)
    assert math.isclose(networks.mean, -0.25)
    # Student's t of 95 % with two degrees of freedom is 4.3027.
    half = 4.3027 * np.std([1.0, 2.0, -2.0], ddof=1) / math.sqrt(3)
    np.testing.assert_allclose(interval([1.0, 2.0, -2.0]).half, half, rtol=1e-4)


def test_a_variant_of_an_optimizer_is_a_method_beside_that_of_the_optimizer() -> None:
    run = run_of("VGG16", "call", 0, 0.1, held_out=1.0, test=1.0)
    plain, relative = ({**run, "optimizer": name} for name in ("adamw", "adamw relative"))
    assert labelled(plain) == plain
    assert labelled(relative) == {**plain, "method": "call relative"}


@pytest.mark.usefixtures("standard_promotion")
def test_the_relative_steps_of_the_guide_are_those_that_were_measured() -> None:
    page = (ROOT / "docs" / "guides" / "compose.md").read_text()
    (code,) = (
        block
        for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL)
        if "def relative_adamw" in block
    )
    defined: dict[str, Any] = {}
    exec(code, defined)
    schedule = optax.warmup_cosine_decay_schedule(0.0, 0.01, 1, 4)
    of_guide = defined["relative_adamw"](schedule, 0.1, is_kernel)
    measured = optimizer("adamw relative", 0.01, 0.1, 4, clips_layers=False)
    params = {"kernel": jax.random.normal(jax.random.key(0), (3, 2)), "bias": jnp.ones(2)}
    gradients = jax.tree.map(jnp.sin, params)
    states = [tx.init(params) for tx in (of_guide, measured)]
    for _ in range(3):
        ours, states[0] = of_guide.update(gradients, states[0], params)
        theirs, states[1] = measured.update(gradients, states[1], params)
        jax.tree.map(np.testing.assert_allclose, ours, theirs)


def test_jobs_without_branches_are_left_out() -> None:
    command = ["--out", "", "--networks", "VGG16", "ResNet-18", "--methods", *METHODS]
    jobs = [(j["network"], j["method"]) for j in whole.queue(whole.arguments().parse_args(command))]
    assert ("ResNet-18", "bn quiet") in jobs
    assert ("VGG16", "bn quiet") not in jobs
    assert len(jobs) == 2 * len(METHODS) - 2
    assert {"ResNet-18", "VGG16"} <= set(ENTRIES)
