"""Segmentation: the README has the figures of the committed runs, and the example does its job."""

import csv
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from examples.segmentation import (
    NORMS,
    finished_runs,
    initial,
    mean_iou,
    network,
    segmented,
    settings_of,
)
from tests.programs import ROOT

RUNS = ROOT / "experiments" / "results" / "segmentation" / "runs.csv"


def test_the_table_of_the_readme_is_that_of_the_runs() -> None:
    """Mean and standard deviation over the seeds, at the rate of each row."""
    scores: dict[tuple[str, float], list[float]] = {}
    for row in csv.DictReader(RUNS.read_text().splitlines()):
        scores.setdefault((row["norm"], float(row["rate"])), []).append(float(row["miou"]))
    rows = re.findall(
        r"^\| ([\w -]+) \| ([\d.]+) \| ([\d.]+) ± ([\d.]+) \|$",
        (ROOT / "README.md").read_text(),
        re.MULTILINE,
    )
    assert {norm for norm, *_ in rows} == set(NORMS)
    for norm, rate, mean, deviation in rows:
        values = np.array(scores[norm, float(rate)])
        assert len(values) >= 5
        assert f"{values.mean():.1f}" == mean
        assert f"{values.std(ddof=1):.1f}" == deviation


def differences(folder: str, norm: str, seeds: int) -> np.ndarray:
    """Returns the mean IoU of the call less that of a norm, by seed."""
    scores = {
        (row["norm"], int(row["seed"])): float(row["miou"])
        for row in csv.DictReader((RUNS.parent / folder / "runs.csv").read_text().splitlines())
        if row["rate"] == "0.03"
    }
    return np.array([scores[NORMS[2], seed] - scores[norm, seed] for seed in range(seeds)])


#: Numbers of seeds by folder, with the quantiles of Student's t.
FIVE, TEN = (5, 2.776), (10, 2.262)
SEEDS = {"": (FIVE, TEN), "threads": (FIVE,), "avx2": (FIVE,), "residual": (TEN,)}


@pytest.mark.parametrize("folder", SEEDS)
def test_the_pages_have_the_intervals_of_the_runs(folder: str) -> None:
    """Student's t over seeds: 2.262 with nine degrees of freedom, 2.776 with four."""
    page = (RUNS.parent / "README.md").read_text()
    for norm in NORMS[:2]:
        for seeds, quantile in SEEDS[folder]:
            values = differences(folder, norm, seeds)
            half = quantile * values.std(ddof=1) / np.sqrt(seeds)
            low, high = values.mean() - half, values.mean() + half
            text = f"{values.mean():+.1f} [{low:+.1f}, {high:+.1f}]"
            assert text in page
            if seeds == 10 and folder == "":
                assert text in (ROOT / "README.md").read_text()
                assert text in (ROOT / "docs" / "guides" / "segmentation.md").read_text()


def test_mean_iou_is_that_of_counted_pixels() -> None:
    """Two of three pixels of each class: intersections 2, 1 and 0, unions 3, 2 and 1."""
    labels, predicted = np.array([0, 0, 1, 2]), np.array([0, 0, 1, 0])
    assert mean_iou(predicted, labels) == pytest.approx(100 * (2 / 3 + 1 + 0) / 3)


@pytest.mark.slow
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("norm", NORMS)
def test_two_images_are_fitted(norm: str, residual: bool) -> None:
    """The loss of two images falls by a third in ten updates."""
    x = jax.random.normal(jax.random.key(0), (4, 8, 8, 1))
    y = (x[..., 0] > 0).astype(jnp.int32)
    apply, params, state, tx = initial(
        norm, network(residual, 0, 1), optax.sgd(0.1, momentum=0.9), x
    )

    def loss(params: object) -> jax.Array:
        logits = apply(params, state, x[:2], train=True)[0]
        return optax.softmax_cross_entropy_with_integer_labels(logits, y[:2]).mean()

    @jax.jit
    def step(params: object, opt_state: object) -> tuple[object, object, jax.Array]:
        value, gradient = jax.value_and_grad(loss)(params)
        updates, opt_state = tx.update(gradient, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, value

    opt_state, losses = tx.init(params), []
    for _ in range(11):  # The loss of a step is that before its update.
        params, opt_state, value = step(params, opt_state)
        losses.append(float(value))
    assert losses[10] < 2 / 3 * losses[0]


def test_a_folder_has_runs_of_one_network_on_one_set_of_images(tmp_path: Path) -> None:
    path, data = tmp_path / "runs.csv", tmp_path / "own.npz"
    data.write_bytes(b"1")
    usual = settings_of(None, shapes=False, residual=False)
    assert finished_runs(path, usual) == []
    run = [NORMS[0], "0.03", "0", "800", "50.00", "2", *usual]
    path.write_text(f"{path.read_text()}{','.join(run)}\n")
    assert finished_runs(path, usual) == [run]
    own = settings_of(data, shapes=False, residual=False)
    data.write_bytes(b"2")
    assert settings_of(data, shapes=False, residual=False) != own
    for others in (own, settings_of(None, True, False), settings_of(None, False, True)):
        with pytest.raises(ValueError, match="has runs of photographs and U-Net"):
            finished_runs(path, others)


@pytest.mark.parametrize("folder", [*SEEDS, "shapes"])
def test_the_committed_runs_can_be_gone_on_with(folder: str) -> None:
    path = RUNS.parent / folder / "runs.csv"
    settings = settings_of(None, shapes=folder == "shapes", residual=folder == "residual")
    assert finished_runs(path, settings)


def test_objects_have_labels() -> None:
    x, y = segmented(np.random.default_rng(0), 4, 32)
    assert x.shape == (4, 32, 32, 3)
    assert set(np.unique(y)) == {0, 1, 2}
