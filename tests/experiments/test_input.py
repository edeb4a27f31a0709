"""The benchmark of picture input, on a handful of pictures."""

import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from experiments.bench.input import Subset
from experiments.bench.resident import with_memory
from experiments.cli import main
from experiments.data.pictures import load_pictures
from tests.experiments.toy import rows_of

ROOT = Path(__file__).parents[2] / "experiments"


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Twelve training and two test pictures of 8 x 8 pixels."""
    root = tmp_path_factory.mktemp("small")
    random = np.random.default_rng(0)
    for part, count in (("train", 12), ("test", 2)):
        for number in range(count):
            place = root / part / "ab"[number % 2]
            place.mkdir(parents=True, exist_ok=True)
            pixels = random.integers(0, 256, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(place / f"{number}.png")
    return root


def test_some_rows_are_those_rows_cropped_or_not(small):
    source = load_pictures(small, 6).stream.train
    subset = Subset(source, np.array([7, 2, 5]))
    assert len(subset) == 3
    for mine, all_of_them in ((subset, source), (subset.cropped(1, 2), source.cropped(1, 2))):
        X, y = mine[np.array([2, 0])]
        expected = all_of_them[np.array([5, 7])]
        np.testing.assert_array_equal(X, expected[0])
        np.testing.assert_array_equal(y, expected[1])


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone tells")
def test_memory_is_what_the_call_holds_and_not_what_was_held_before():
    large = np.ones(1 << 25)  # 256 MiB, given back before the second call.
    _, held = with_memory(lambda: np.ones(1 << 24).sum())  # 128 MiB more, for a moment.
    del large
    _, later = with_memory(lambda: None)
    assert 100 < held.peak - held.before < 200
    assert held.before - later.before > 200
    assert later.peak < held.before


@pytest.mark.slow
def test_the_benchmark_writes_a_row_for_each_way(small, tmp_path):
    sizes = ["--side", "8", "--steps", "2", "--batch-size", "4", "--model", "mlp", "--width", "4"]
    command = ["bench", "input", "--data-dir", str(small), *sizes]
    command += ["--depth", "1", "--methods", "none", "--repeats", "2"]
    assert main([*command, "--out", str(tmp_path)]) == 0
    rows = rows_of(tmp_path / "input.csv")
    ways = [(small.name, way) for way in ("input", "step", "both")]
    assert [(row["source"], row["way"]) for row in rows] == ways
    for row in rows:
        assert float(row["rows_per_s_low"]) <= float(row["rows_per_s"]) <= 1e9
        assert float(row["core_ms_per_row"]) > 0
        assert float(row["held_mib"]) <= float(row["peak_mib"])


def test_too_few_pictures_are_told(small, tmp_path, capsys):
    command = ["bench", "input", "--data-dir", str(small), "--side", "8", "--methods", "none"]
    assert main([*command, "--out", str(tmp_path)]) == 2
    assert "take 2,560 rows, and" in capsys.readouterr().err


def test_the_page_has_the_figures_of_the_file():
    rows = rows_of(ROOT / "results" / "bench" / "input.csv")
    assert len(rows) == 6
    page = (ROOT / "README.md").read_text()
    for row in rows:
        rates = [float(row[f"rows_per_s{end}"]) for end in ("", "_low", "_high")]
        rate, low, high = (f"{x:.0f}" if x > 50 else f"{x:.1f}" for x in rates)
        core = float(row["core_ms_per_row"])
        more = int(row["peak_mib"]) - int(row["held_mib"])
        shown = f"| {core:.1f} " if core >= 10 else f"| {core:.2f} "
        assert f"{shown}| {rate} [{low}, {high}] | {more} |" in page, row
