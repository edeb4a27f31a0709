"""The picture of a comparison: the whole training and every band, on any screen."""

import io

import numpy as np
import pytest
from PIL import Image

from experiments.analysis.curves import draw_curves, draw_measure
from experiments.analysis.picture import new_figure
from experiments.training.run import Epoch, Run

#: The accuracies of two methods, two seeds each, by epoch.
ACCURACIES = {
    "from chance to nearly all": (0.1, 0.5, 0.9, 0.95, 0.99),
    "early steps": (0.1, 0.9, 0.991, 0.992, 0.993),
    "all rows": (0.2, 0.9, 0.99, 1.0, 1.0),
    "nothing learned": (0.0, 0.12, 0.09, 0.11, 0.1),
    "one value": (0.5,) * 5,
    "a run that diverged": (0.3, 0.6, 0.7, 0.8, np.nan),
}


def runs_of(accuracies: tuple[float, ...]) -> list[Run]:
    curves = {("bn", 0): 1.0, ("bn", 1): 0.9, ("cwo", 0): 0.99, ("cwo", 1): 0.5}
    return [
        Run(
            *(method, seed),
            [Epoch(n, 2.0 / n, a, 2.0 / n, factor * a) for n, a in enumerate(accuracies, 1)],
            *(1.0, 10, None),
        )
        for (method, seed), factor in curves.items()
    ]


@pytest.mark.parametrize("kind", ACCURACIES)
def test_the_axis_shows_every_seed_and_every_epoch(kind):
    runs = runs_of(ACCURACIES[kind])
    axes = new_figure().axes[0]
    draw_measure(axes, {"bn": runs[:2], "cwo": runs[2:]}, "test_accuracy")
    low, high = axes.get_ylim()
    shown = 100 * np.array([entry.test_accuracy for run in runs for entry in run.curve])
    shown = shown[np.isfinite(shown)]
    assert low <= shown.min()
    assert shown.max() <= high
    heights = axes.transData.transform([(1.0, value) for value in np.sort(shown)])[:, 1]
    assert np.isfinite(heights).all()
    assert (np.diff(heights) >= 0).all()


def test_differences_at_the_end_are_seen_beside_the_beginning():
    axes = new_figure().axes[0]
    draw_measure(axes, {"bn": runs_of(ACCURACIES["early steps"])[:1]}, "test_accuracy")
    low, high, one, other = axes.transAxes.inverted().transform(
        axes.transData.transform([(1.0, each) for each in (10.0, 99.3, 99.1, 90.0)])
    )[:, 1]
    assert 0 <= low < other < one < high <= 1
    assert high - one > 0.03  # Two tenths of a point; by the plain scale it is 0.002.


def test_the_picture_fits_a_narrow_screen(tmp_path):
    draw_curves(tmp_path / "curves.png", runs_of(ACCURACIES["all rows"]), "rows")
    picture = Image.open(io.BytesIO((tmp_path / "curves.png").read_bytes()))
    assert picture.width <= 700  # Letters of 11 points are 9 pixels high on a screen of 420.
    corner = picture.convert("RGBA").getpixel((0, 0))
    assert corner == (255, 255, 255, 255)  # It brings its own ground to a dark page.
