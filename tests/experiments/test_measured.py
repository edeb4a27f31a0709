"""Verdicts and rows of measured numbers, and the quickest items at small sizes."""

import pytest

from experiments.papers.item import Finding
from experiments.papers.items import ITEMS
from experiments.papers.measured import at_least, at_most, compared, measured_report, near
from experiments.papers.run import run_item
from tests.experiments.toy import rows_of


def test_verdicts_and_rows():
    findings = [near("a", 1.02, 1.0, 0.01), at_most("b", 2.0, 3.0), at_least("c", 2.0, 3.0)]
    assert [finding.holds for finding in findings] == [False, True, False]
    report = measured_report(findings, {})
    assert report.rows[0] == ("a", "1.02", "1", "0.02", False)
    assert report.findings[1] == Finding("b", "2", "3 (at most)", True, "", (2.0, 3.0))
    assert len(report.columns) == len(report.rows[0])


@pytest.mark.kept("bound")
@pytest.mark.parametrize("name", ["lcw/fig1", "lcw/fig3", "normprop/bound", "cwo/signal"])
def test_small_presets_confirm_the_paper(name, tmp_path):
    report = run_item(ITEMS[name], "smoke", None, tmp_path, "a test")
    assert all(finding.holds is not False for finding in report.findings)
    assert len(report.findings) == len(report.rows)
    for row in rows_of(tmp_path / "results.csv"):
        difference = float(row["ours"]) - float(row["reference"])
        assert float(row["difference"]) == pytest.approx(difference, rel=1e-3, abs=1e-5)
    assert list(tmp_path.glob("*.png"))


def test_what_diverged_confirms_nothing():
    for bad in (float("nan"), float("inf")):
        for finding in (at_least("loss", bad, 1.0), compared("loss", bad, 1.0, True)):
            assert (finding.holds, finding.reason) == (None, "not trained")
            assert measured_report([finding], {}).rows[0][-1] == ""
    assert at_least("loss", 2.0, 1.0).holds
