"""The verdicts on the papers' claims: the rules by hand, and the committed page."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments.analysis.verdicts.claim import Claim, Source, sides
from experiments.analysis.verdicts.judge import NOT_REPRODUCED, OPEN, REPRODUCED, judge
from experiments.analysis.verdicts.page import level_of, page_of, verdicts_in
from experiments.analysis.verdicts.results import (
    SideResults,
    outcome_of,
    results_by_seed,
    rows_of,
    side_results,
)
from experiments.bench.papers import cost_of, forward_operations, hours_of
from experiments.errors import UserError
from experiments.papers.items import ITEMS
from experiments.papers.sizes import full_cells

RESULTS = Path(__file__).parents[2] / "experiments" / "results"
CLAIM = Claim("cwo-x", "is better", sides("x", "cwo", "bn"), Source("Table 0"))
#: Student's t for two degrees of freedom at 97.79%: for two degrees the quantile of p is
#: (2 p - 1) sqrt(2 / (4 p (1 - p))).
P = (1 + 0.9779) / 2
T = (2 * P - 1) * np.sqrt(2 / (4 * P * (1 - P)))


def side(*values, lost=None, fitted=0.9, name="cwo"):
    """Makes the results of the seeds 0, 1, ..."""
    named = {str(seed): value for seed, value in enumerate(values)}
    return SideResults(name, named, lost or {}, frozenset(named), fitted)


BN = side(0.5, 0.5, 0.5, name="bn")


@pytest.fixture(scope="module")
def judged():
    return verdicts_in(RESULTS)


@pytest.mark.parametrize(
    ("gains", "margin", "word"),
    [
        ((0.025, 0.03, 0.035), 0.0, REPRODUCED),
        ((-0.025, -0.03, -0.035), 0.0, NOT_REPRODUCED),
        ((-0.02, -0.03, -0.04), 7.0, REPRODUCED),
        ((-0.02, -0.03, -0.04), 3.0, OPEN),
        ((0.01, 0.02, 0.03), 0.0, OPEN),
        ((-0.01, 0.0, 0.05), 0.0, OPEN),
    ],
)
def test_the_word_follows_the_interval(gains, margin, word):
    points = 100 * np.array(gains)
    half = T * points.std(ddof=1) / np.sqrt(3)
    low, high = points.mean() - half, points.mean() + half
    by_hand = REPRODUCED if low > -margin else NOT_REPRODUCED if high < -margin else OPEN
    assert by_hand == word
    verdict = judge(replace(CLAIM, margin=margin), side(*(0.5 + np.array(gains))), BN)
    assert verdict.word == word
    assert f"{points.mean():+.2f} points [{low:+.2f}, {high:+.2f}]" in verdict.figures


def test_losses_should_be_lower_and_are_in_nats():
    losses = replace(CLAIM, measure="train_loss")
    verdict = judge(losses, side(1.0, 1.1, 1.2), side(2.0, 2.1, 2.3))
    assert verdict.word == REPRODUCED
    assert "+1.03 nats [+0.81, +1.25]" in verdict.figures


def test_a_look_that_decides_is_the_last_one():
    """Three seeds decide; the other seven would contradict them."""
    values = 0.5 + np.array([0.030, 0.031, 0.032, *[-0.3] * 7])
    ten = side(*[0.5] * 10)
    verdict = judge(CLAIM, side(*values), ten)
    assert verdict.word == REPRODUCED
    six = 0.5 + np.array([0.0, 0.01, 0.05, 0.03, 0.03, 0.03, *[0.03] * 4])
    assert judge(CLAIM, side(*six[:5]), ten).word == OPEN
    assert judge(CLAIM, side(*six), ten).word == REPRODUCED


@pytest.mark.parametrize(("margin", "word"), [(2.0, REPRODUCED), (0.6, REPRODUCED), (0.5, OPEN)])
def test_what_is_said_to_be_the_same(margin, word):
    """Gains of 0.1, 0.2 and 0.3 points have an interval from -0.18 to 0.58."""
    claim = replace(CLAIM, kind="same", margin=margin)
    near = judge(claim, side(0.501, 0.502, 0.503), BN)
    assert near.word == word
    apart = judge(claim, side(0.60, 0.61, 0.62), BN)
    assert apart.word == NOT_REPRODUCED


@pytest.mark.parametrize("sign", [1, -1])
def test_neither_order_is_evidence_where_training_stopped_early(sign):
    far = side(*(0.5 + sign * np.array([0.1, 0.11, 0.12])), fitted=0.4)
    early = judge(CLAIM, far, BN._replace(fitted=0.3))
    assert early.word == OPEN
    assert "stopped at an accuracy of 40%" in early.reason
    assert ("it holds here" if sign > 0 else "the reverse holds here") in early.reason
    # One side that is fitted is enough, and a claim about training itself needs none.
    word = REPRODUCED if sign > 0 else NOT_REPRODUCED
    assert judge(CLAIM, far, BN).word == word
    assert judge(replace(CLAIM, about="training"), far, BN._replace(fitted=0.3)).word == word


@pytest.mark.parametrize(("measure", "guess"), [("test_accuracy", 0.1), ("train_loss", np.log(10))])
def test_runs_that_were_lost_count_as_a_constant_guess(measure, guess):
    rows = [
        {"seed": "1", measure: "nan", "train_accuracy": "nan", "outcome": "diverged, at step 3"},
        {"seed": "0", measure: "0.5", "train_accuracy": "0.9", "outcome": ""},
    ]
    found = results_by_seed("cwo", rows, measure)
    assert list(found.values) == ["0", "1"]
    assert found.values == pytest.approx({"0": 0.5, "1": guess})
    assert found.fitted == pytest.approx((0.9 + 0.1) / 2)
    lost = side(0.5, 0.1, 0.1, lost={"1": "diverged", "2": "at chance"}, name="bn")
    verdict = judge(CLAIM, side(0.6, 0.61, 0.62), lost)
    assert "diverged (1 of 3 seeds), bn at chance (1 of 3 seeds), counted as" in verdict.reason


@pytest.mark.parametrize(
    ("lost", "trains", "fails"),
    [
        (0, REPRODUCED, NOT_REPRODUCED),
        (2, NOT_REPRODUCED, NOT_REPRODUCED),
        (3, NOT_REPRODUCED, REPRODUCED),
    ],
)
def test_claims_that_something_trains_or_does_not_speak_of_every_seed(lost, trains, fails):
    runs = side(0.1, 0.1, 0.1, lost={str(seed): "diverged" for seed in range(lost)})
    assert judge(replace(CLAIM, kind="trains"), runs).word == trains
    assert judge(replace(CLAIM, kind="fails"), runs, BN).word == fails


def test_a_failure_is_none_where_the_other_side_fails_too():
    lost = side(0.1, 0.1, 0.1, lost={"0": "at chance", "1": "at chance", "2": "at chance"})
    assert judge(replace(CLAIM, kind="fails"), lost, lost).word == NOT_REPRODUCED


def test_two_seeds_are_refused():
    with pytest.raises(UserError, match="cwo-x has 2 seeds"):
        judge(CLAIM, side(0.6, 0.7), BN)
    moved = SideResults("bn", dict.fromkeys("789", 0.5), {}, frozenset("789"))
    with pytest.raises(UserError, match="has 0 seeds"):
        judge(CLAIM, BN, moved)


def test_runs_of_older_files_are_at_chance_by_their_loss():
    guess = -sum(0.1 * np.log(0.1) for _ in range(10))
    assert outcome_of({"train_loss": f"{0.97 * guess}"}) == ""
    assert outcome_of({"train_loss": f"{0.99 * guess}"}) == "at chance"
    assert outcome_of({"train_loss": "nan"}) == "diverged"
    assert outcome_of({"train_loss": "0.1", "outcome": "diverged, not finite"}) == "diverged"
    assert outcome_of({"kurtosis": "3"}) == ""


def test_a_seed_with_several_rows_counts_once():
    rows = [
        {"seed": str(seed), "kurtosis": str(value + seed)}
        for seed in range(3)
        for value in (1, 2, 9)
    ]
    found = results_by_seed("cwo", rows, "kurtosis")
    assert found.values == {"0": 2.0, "1": 3.0, "2": 4.0}
    assert np.isnan(found.fitted)


def test_hours_are_those_of_the_operations_or_of_the_steps():
    # 3 x 1e9 operations a row, 500 rows a step: 0.1 s at 15e12 a second.
    assert hours_of(1e9, 500, 36_000) == pytest.approx(1.0)
    assert hours_of(1e6, 10, 360_000) == pytest.approx(1.0)


def test_operations_are_those_of_the_convolutions():
    """cnn9 at 64 channels: two operations per tap of a kernel inside the picture."""

    def taps(size):
        return (3 * size - 2) ** 2

    stages = ((32, 3, 64), (16, 64, 128), (8, 128, 256))
    expected = 2 * sum(taps(n) * (c * d + 2 * d * d) for n, c, d in stages)
    assert forward_operations("cnn9", 64, (32, 32, 3), 10) == pytest.approx(expected, rel=0.01)


def test_the_committed_hours_are_what_the_presets_say():
    cost = cost_of(full_cells(ITEMS["cwo/tab1"])[0])
    # 50,000 rows in batches of 128, 200 times.
    assert (cost.network, cost.batch_size, cost.steps, cost.seeds) == ("cnn9", 128, 78_000, 3)
    committed = [tuple(row.values()) for row in rows_of(RESULTS / "bench" / "papers.csv")]
    assert tuple(map(str, cost)) in committed


def test_the_committed_page_is_what_the_files_say(judged):
    assert len(judged) == 89
    assert (RESULTS / "README.md").read_text() == page_of(RESULTS, judged), (
        "run python -m experiments report --verdicts --folder experiments/results"
    )


@pytest.mark.parametrize(("name", "word"), [("cwo-noise", REPRODUCED), ("bn-over-gn", OPEN)])
def test_sentences_and_advice_need_their_verdicts(judged, name, word):
    claim, verdict = judged[name]
    with pytest.raises(UserError, match=name):
        page_of(RESULTS, judged | {name: (claim, verdict._replace(word=word))})


def test_links_of_the_page_exist():
    page = (RESULTS / "README.md").read_text()
    links = re.findall(r"\]\(([^)]+)\)", page)
    assert len(links) > 100
    for link in links:
        if link.startswith("#"):
            assert f'<a id="{link[1:]}"></a>' in page, link
        else:
            assert (RESULTS / link).is_file(), link


HEADER = "method,seed,test_accuracy"
#: A file, and what the message names.
EDITED = {
    f"{HEADER}\ncwo,0,0.5\ncwo,1,0.5\ncwo,0,0.5\n": "cwo,0,0.5",
    f"{HEADER}\ncwo,0,0.5\ncwo,1": "could not convert string to float",
    "method,seed\ncwo,0\n": "test_accuracy",
    "": "results.csv",
    f"{HEADER}\nbn,0,0.5\n": "'method': 'cwo'",
}


@pytest.mark.parametrize("text", EDITED)
def test_a_file_that_somebody_edited_is_not_judged_by_half(text, tmp_path):
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "results.csv").write_text(text)
    with pytest.raises(UserError, match=EDITED[text]):
        side_results(CLAIM.sides[0], CLAIM.measure, tmp_path)


def test_the_accuracy_of_what_diverged_is_none():
    """NaN logits predict the first class, and so have an accuracy."""
    rows = [
        {"seed": str(seed), "test_accuracy": accuracy, "train_loss": loss}
        for seed, (accuracy, loss) in enumerate([("0.1", "nan"), ("0.8", "0.5"), ("0.6", "0.5")])
    ]
    assert level_of(rows) == "70.00 ± 14.14, diverged 1 of 3"
    found = judge(CLAIM, results_by_seed("cwo", rows, "test_accuracy"), BN)
    assert found.figures.startswith("cwo 50.00 ± 36.06, bn 50.00")
    assert "cwo diverged (1 of 3 seeds)" in found.reason
