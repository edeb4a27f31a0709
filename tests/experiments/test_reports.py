"""The files of a comparison."""

import csv

import numpy as np
import pytest
from PIL import Image

from experiments.analysis.colours import colour_of_method
from experiments.analysis.comparison import comparison_table, conclusion
from experiments.analysis.csv import write_curves, write_results
from experiments.analysis.curves import draw_curves, draw_trade, spread_out
from experiments.analysis.picture import new_figure
from experiments.analysis.statistics import mean_and_deviation
from experiments.analysis.table import markdown
from experiments.analysis.tpu import Cost, tpu_costs
from experiments.config import Config
from experiments.methods.table import METHODS
from experiments.training.run import Epoch, Run


def run(method, seed, accuracy):
    curve = [Epoch(n, 1 / n, 0.5, 2 / n, accuracy * n / 3) for n in (1, 2, 3)]
    return Run(method, seed, curve, 1.5, 1234, None)


RUNS = [run("none", 0, 0.9), run("none", 1, 0.8), run("bn", 0, 0.95), run("bn", 1, 0.83)]


def test_csv_files(tmp_path):
    write_results(tmp_path / "results.csv", RUNS)
    write_curves(tmp_path / "curves.csv", RUNS)
    results = list(csv.reader((tmp_path / "results.csv").read_text().splitlines()))
    assert ",".join(results[0]) == (
        "method,seed,epochs,train_loss,train_accuracy,test_loss,test_accuracy,step_ms,parameters,"
        "outcome"
    )
    expected = ["bn", "0", "3", "0.333333", "0.5", "0.666667", "0.95", "1.5", "1234", ""]
    assert results[3] == expected
    curves = list(csv.reader((tmp_path / "curves.csv").read_text().splitlines()))
    assert (
        ",".join(curves[0]) == "method,seed,epoch,train_loss,train_accuracy,test_loss,"
        "test_accuracy,gradient_norm,parameter_norm,drift"
    )
    assert len(curves) == 1 + 4 * 3


def test_the_table_has_means_spreads_and_paired_differences():
    _, rows = comparison_table(RUNS)
    assert [row[0] for row in rows] == ["none", "bn"]
    assert rows[0][1:3] == ("85.00 ± 7.07", "")
    assert rows[1][1:3] == ("89.00 ± 8.49", "+4.00 ± 1.41")
    assert mean_and_deviation([2.0], ".1f") == "2.0"
    assert mean_and_deviation([2.0, float("nan")], ".1f") == "nan ± nan"
    lines = markdown((["a", "bb"], [["x", "1"]])).splitlines()
    assert lines == ["| a | bb |", "|---|---:|", "| x |  1 |"]


LOST = Epoch(2, *[float("nan")] * 4)
DIVERGED = Run("cwo", 0, [Epoch(1, 1.0, 0.5, 1.0, 0.5), LOST], 1.0, 9, None, "diverged, not finite")


def test_runs_that_did_not_train_are_named_and_left_out_of_means(tmp_path):
    chance = run("lcw", 0, 0.1)._replace(outcome="at chance")
    _, rows = comparison_table([*RUNS, DIVERGED, run("cwo", 1, 0.9), chance])
    assert rows[2][:3] == ("cwo (1 diverged)", "90.00", "+10.00")
    assert rows[3][:2] == ("lcw (1 at chance, 1 of 2 seeds)", "10.00")
    _, rows = comparison_table([DIVERGED, run("bn", 0, 0.9)])
    assert rows[0] == ("cwo (1 diverged)", *[""] * 5)
    assert rows[1][1:3] == ("90.00", "")
    write_results(tmp_path / "results.csv", [DIVERGED])
    assert '"diverged, not finite"' in (tmp_path / "results.csv").read_text()


def test_the_table_fits_a_hundred_columns():
    costly = [each._replace(step_ms=1234.5 + each.seed) for each in RUNS]
    names = {"none": "wn+variance-only-bn", "bn": "normprop-batch"}
    costly = [each._replace(method=names[each.method]) for each in costly]
    assert max(map(len, markdown(comparison_table(costly)).splitlines())) <= 100


def test_step_times_stand_beside_the_cost_on_a_tpu_where_it_is_known():
    """Times have their spread, however uneven."""
    shaken = [each._replace(step_ms=1.0 + each.seed) for each in RUNS]
    header, rows = comparison_table(shaken, {"bn": Cost(2.887, 28)})
    assert {row[header.index("step, ms")] for row in rows} == {"1.50 ± 0.71"}
    assert header[-2:] == ("TPU bytes", "collectives")
    assert [row[-2:] for row in rows] == [("", ""), ("2.89", "28")]


def test_the_committed_costs_are_read_at_their_sizes_alone():
    compiled, image = Config(model="cnn9", channels=64), (32, 32, 3)
    costs = tpu_costs(compiled, image)
    assert costs["none"].traffic == 1
    assert costs["bn"].traffic > 2
    assert costs["bn"].collectives > costs["cwo"].collectives
    assert not tpu_costs(Config(model="cnn9", channels=16), image)
    assert not tpu_costs(compiled, (8, 8, 1))
    assert not tpu_costs(Config(model="no network"), image)


def compared(**by_method):
    """Makes runs of methods from their accuracies per seed; None for one that diverged."""
    return [
        run(method, seed, each) if each is not None else DIVERGED._replace(method=method, seed=seed)
        for method, accuracies in by_method.items()
        for seed, each in enumerate(accuracies)
    ]


def test_the_conclusion_says_where_each_method_ends():
    """With t = 4.303, differences of 1, 2, 3 points are 2 +- 4.303 / sqrt(3)."""
    bn = [0.90, 0.91, 0.92]
    lines = conclusion(
        compared(
            none=[0.80, 0.81, None],
            bn=bn,
            cwo=[0.93, 0.93, 0.96],
            lcw=[0.902, 0.91, 0.918],
            gn=[0.70, 0.71, 0.719],
            ln=[0.91, 0.93, 0.95],
            wn=[0.89, 0.896, 0.9],
            ws=[0.91, 0.921, 0.93],
            sn=[0.85, 0.95, 0.92],
        )
    )
    assert "batch normalization (bn)" in lines[0]
    assert "3 seeds" in lines[0]
    items = "\n".join(lines[2:]).replace("\n  ", " ").splitlines()
    ends = dict(line.removeprefix("- ").split(": ") for line in items)
    assert "(cwo) +3.0 [+0.5, +5.5]" in ends["level or ahead"]
    assert "(ws) +1.0" in ends["level or ahead"]
    assert "(lcw) +0.0 [-0.5, +0.5]" in ends["level, within a point"]
    assert "(gn) -20.0" in ends["behind by more than a point"]
    assert "(ln) +2.0 [-0.5, +4.5]" in ends["level or ahead"]
    assert "(wn) -1.5" in ends["level or behind"]
    assert "(sn) -0.3" in ends["open"]
    assert "(none)" in ends["did not train under every seed"]


def test_the_lines_of_a_conclusion_fit():
    bn = [0.8, 0.9, 0.85]
    others = {code: [0.79, 0.95, 0.81] for code in ("none", "cwo", "ln", "gn", "lcw")}
    lines = conclusion(compared(bn=bn, **others))
    assert max(map(len, lines)) <= 100
    assert " ".join(lines).count("[") == len(others)


def test_one_seed_and_one_method_conclude_nothing():
    assert "--seeds" in conclusion(compared(none=[0.8], bn=[0.9]))[0]
    assert conclusion(compared(bn=[0.9, 0.8])) == []
    header, rows = comparison_table(RUNS[:2])
    assert "difference" not in header
    assert len(header) == len(rows[0]) == len(comparison_table(RUNS)[0]) - 1


@pytest.mark.kept("runs2")
@pytest.mark.parametrize(
    "runs", [RUNS, RUNS[:1], [run("none", 0, float("nan"))], RUNS * 5, [*RUNS, DIVERGED]]
)
def test_a_picture_is_drawn(tmp_path, runs):
    draw_curves(tmp_path / "curves.png", runs, "title")
    with Image.open(tmp_path / "curves.png") as image:
        pixels = np.asarray(image.convert("RGB"))
    assert 500 < pixels.shape[1] < 700
    assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > 20


def test_each_method_has_a_colour_of_its_own_by_its_name():
    """Listed methods are told apart; a new one changes no other's colour."""
    colours = {colour_of_method(name) for name in METHODS}
    assert len(colours) == len(METHODS)
    assert colour_of_method("mine") == colour_of_method("mine") not in colours


def test_a_method_with_a_lost_run_stands_where_its_others_are():
    axes = new_figure().axes[0]
    draw_trade(axes, [DIVERGED, run("cwo", 1, 0.9), run("cwo", 2, 0.8)], {"cwo": Cost(1.07, 2)})
    (dot,) = (line for line in axes.lines if line.get_marker() == "o")
    np.testing.assert_allclose(dot.get_xydata(), [(1.07, 85.0)])
    assert "cwo (1 diverged)" in [text.get_text() for text in axes.texts]


def test_names_are_moved_apart_no_more_than_needed():
    assert spread_out([], 0.1) == []
    assert spread_out([0.1, 0.9], 0.1) == [0.1, 0.9]
    np.testing.assert_allclose(spread_out([0.52, 0.5], 0.1), [0.56, 0.46])
    crowded = spread_out([0.5, 0.1, 0.5, 0.5], 0.2)
    np.testing.assert_allclose(sorted(crowded), [0.1, 0.3, 0.5, 0.7])
