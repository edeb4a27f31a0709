"""Pairs of methods over several comparisons: differences by hand, their intervals, the picture."""

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from experiments.analysis.differences import write_pairs
from experiments.errors import UserError

HEADER = "method,seed,test_accuracy,outcome"
#: Accuracies of seeds 0, 1, 2, by set and method.
FOUND = {
    "iris": {"a": (0.50, 0.60, 0.70), "b": (0.52, 0.63, 0.72)},
    "wine": {"a": (0.90, 0.80, 0.70), "b": (0.80, 0.80, 0.80)},
}


def written(folder: Path, outcome: str = "") -> Path:
    """Writes the results of two sets; the runs of b on the wine have that outcome."""
    for name, methods in FOUND.items():
        rows = [
            f"{method},{seed},{value},{outcome if (name, method) == ('wine', 'b') else ''}"
            for method, values in methods.items()
            for seed, value in enumerate(values)
        ]
        (folder / name).mkdir()
        (folder / name / "results.csv").write_text("\n".join([HEADER, *rows]))
    return folder


def interval(values: list[float]) -> str:
    low, high = stats.t.interval(0.95, len(values) - 1, np.mean(values), stats.sem(values))
    return f"{np.mean(values):+.2f} [{low:+.2f}, {high:+.2f}]"


def test_differences_are_paired_by_seed_and_pooled_over_the_sets(tmp_path: Path) -> None:
    assert write_pairs(written(tmp_path), "a:b") == 2
    text = (tmp_path / "differences.md").read_text()
    cells = {
        line.split("|")[1].strip(): line.split("|")[2].strip() for line in text.splitlines()[2:5]
    }
    assert cells["iris"] == f"{interval([2.0, 3.0, 2.0])} +"
    assert cells["wine"] == interval([-10.0, 0.0, 10.0])
    assert cells["all"] == interval([7 / 3, 0.0])
    assert (tmp_path / "differences.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("pairs", ["a", "a:b:c", "a:c", ""])
def test_pairs_that_are_none_are_refused(tmp_path: Path, pairs: str) -> None:
    with pytest.raises(UserError, match="wanted FIRST:SECOND"):
        write_pairs(written(tmp_path), pairs)


def test_runs_that_did_not_train_have_no_difference(tmp_path: Path) -> None:
    assert write_pairs(written(tmp_path, "diverged"), "a:b,b:a") == 2
    lines = (tmp_path / "differences.md").read_text().splitlines()
    assert [cell.strip() for cell in lines[3].split("|")[1:4]] == ["wine", "", ""]
    assert lines[4].split("|")[2].strip().startswith("+2.33 [-inf")


def test_a_folder_without_comparisons_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="0 sets"):
        write_pairs(tmp_path, "a:b")


#: What a text of results becomes, and words of the refusal.
DAMAGES = {
    "rows twice": (lambda text: text + text.removeprefix(HEADER), "one seed twice"),
    "percentages": (lambda text: text.replace("0.5", "50.5"), "fractions from 0 to 1"),
    "no number": (lambda text: text.replace("0.5", "x"), "results.csv"),
    "NaN": (lambda text: text.replace(",0.5,", ",nan,"), "fractions from 0 to 1"),
    "a cell that was emptied": (lambda text: text.replace(",0.5,", ",,"), "fractions from 0 to 1"),
    "semicolons": (lambda text: text.replace(",", ";"), "results.csv"),
    "nothing": (lambda text: "", "results.csv"),
    "a cut line": (lambda text: text + "\na", "results.csv"),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_results_that_compare_did_not_write_are_refused(kind: str, tmp_path: Path) -> None:
    damage, words = DAMAGES[kind]
    file = written(tmp_path) / "iris" / "results.csv"
    file.write_text(damage(file.read_text()))
    with pytest.raises(UserError, match=words):
        write_pairs(tmp_path, "a:b")


def test_a_method_is_not_compared_with_itself(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="got --pairs a:a"):
        write_pairs(written(tmp_path), "a:a")
