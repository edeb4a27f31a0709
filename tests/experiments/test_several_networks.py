"""Comparisons over several networks, and settings files."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments.analysis.pooled import pooled_table
from experiments.analysis.tuning.choose import Tuning, best_of_all
from experiments.analysis.tuning.rates import accuracies
from experiments.cli import _parsed, main
from experiments.commands import Compare
from experiments.compare import Compared, _report_networks, network_names
from experiments.errors import UserError
from experiments.models.from_file import load_maker
from experiments.runs.spec import OFFSET
from experiments.settings_file import MARK, flags_of, keep_settings, settings_of, text_of
from experiments.training.run import Run
from tests.experiments.toy import rows_of, run_of, save_toy
from tests.programs import ROOT

COMMITTED = sorted((ROOT / "experiments" / "results").rglob("settings.toml"))

FILE = Path(__file__).parent / "own_network.py"

SETTINGS = """
methods = ["bn", "none"]
seeds = 2
epochs = 1
batch-size = 16
tune-seeds = 1
[tune]
learning-rate = [0.05, 0.1]
"""


def kept_of(flags: Compare) -> None:
    keep_settings(flags, settings_of(flags))


def scored(method: str, seed: int, accuracy: float, outcome: str = "") -> Run:
    return run_of(method, seed, accuracy, 1.0)._replace(outcome=outcome)


def test_differences_are_paired_by_network_and_seed() -> None:
    networks = {
        "A": [scored("bn", 0, 0.40), scored("bn", 1, 0.44), scored("gn", 0, 0.41)],
        "B": [scored("bn", 0, 0.50), scored("gn", 0, 0.48)],
    }
    networks["A"].append(scored("gn", 1, 0.46))
    _, [(method, count, over_pairs, over_networks, _)] = pooled_table(networks)
    assert (method, count) == ("gn", "2 of 2")
    # Student's t of 95 % with two degrees of freedom is 4.3027, with one 12.706.
    half = 4.3027 * np.std([1.0, 2.0, -2.0], ddof=1) / math.sqrt(3)
    assert over_pairs == f"+0.33 [{1 / 3 - half:+.2f}, {1 / 3 + half:+.2f}]"
    half = 12.7062 * np.std([1.5, -2.0], ddof=1) / math.sqrt(2)
    assert over_networks == f"-0.25 [{-0.25 - half:+.2f}, {-0.25 + half:+.2f}]"


def test_a_network_in_which_a_run_did_not_train_is_left_out_and_counted() -> None:
    networks = {
        "A": [scored("bn", 0, 0.40), scored("gn", 0, 0.41)],
        "B": [scored("bn", 0, 0.50), scored("gn", 0, 0.10, "at chance")],
    }
    _, [(_, count, over_pairs, *_)] = pooled_table(networks)
    assert count == "1 of 2"
    assert over_pairs.startswith("+1.00")


def test_networks_have_folders_of_their_names() -> None:
    assert network_names("") == {"": ""}
    assert network_names("mlp, a.py:Net") == {"mlp": "mlp", "Net": "a.py:Net"}
    both = network_names("b/a.py:Net,c.py:Net")
    assert both == {"a-Net": "b/a.py:Net", "c-Net": "c.py:Net"}
    with pytest.raises(UserError, match="each network once"):
        network_names("mlp,mlp")


def test_the_report_of_several_networks_draws_their_trials(tmp_path: Path) -> None:
    trials = [
        run_of("bn", OFFSET, accuracy, 1.0)._replace(changes=(("learning_rate", rate),))
        for rate, accuracy in ((0.1, 0.5), (0.2, 0.6))
    ]
    compared = {
        name: Compared([scored("bn", 0, 0.4), scored("gn", 0, 0.41)], trials) for name in "AB"
    }
    grid = {"learning_rate": (0.1, 0.2)}
    _report_networks(tmp_path, compared, "compare", Tuning(grid))
    assert (tmp_path / "rates.png").read_bytes().startswith(b"\x89PNG")
    assert "Of an earlier call" not in (tmp_path / "table.md").read_text()
    _report_networks(tmp_path, compared, "compare", None)
    assert (
        "Of an earlier call, not of these runs: rates.png." in (tmp_path / "table.md").read_text()
    )


def test_a_choice_for_all_seeds_is_the_best_on_average() -> None:
    runs = [
        run_of("bn", OFFSET + seed, accuracy, 1.0)._replace(changes=(("learning_rate", rate),))
        for rate, of_seeds in ((0.1, (0.9, 0.1)), (0.2, (0.6, 0.6)))
        for seed, accuracy in enumerate(of_seeds)
    ]
    assert dict(best_of_all("bn", 5, runs).changes) == {"learning_rate": 0.2}
    np.testing.assert_allclose(accuracies(runs, [0.1, 0.2]), [[90, 10], [60, 60]])


def test_a_settings_file_has_the_flags_of_the_command(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(SETTINGS + "noise = [0.1]\n")
    assert flags_of(file) == [
        *("--methods", "bn,none", "--seeds", "2", "--epochs", "1", "--batch-size", "16"),
        *("--tune-seeds", "1", "--tune", "learning-rate=0.05,0.1", "noise=0.1"),
    ]
    flags = Compare(seeds=3, tune=("noise=0.1,0.2",))
    file.write_text(text_of(flags))
    assert flags_of(file) == ["--seeds", "3", "--tune", "noise=0.1,0.2"]


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("sedes = 3", "did you mean 'seeds'"),
        ('seeds = "many"', "seeds: invalid"),
        ("seeds = {a = 1}", "seeds"),
        ("seeds 3", "Expected '='"),
        ('settings = "other.toml"', "settings"),
        ('methods = ["bn", "nonee"]', "did you mean 'none'"),
        ("learning_rate = nan", ": learning_rate is nan"),
        ("train-rows = false", "train-rows = false"),
        ("train_rows = 128\ntrain-rows = 3", "has train_rows and train-rows, one flag"),
        ('quiet = "yes"', 'has quiet = "yes"; wanted quiet = true or false'),
        ("[tune]\nlerning-rate = [0.1, 0.2]", "did you mean 'learning-rate'"),
        ("[tune]\nlearning-rate = [-1.0, 0.2]", ": tune has 'learning-rate=-1.0,0.2'"),
    ],
)
def test_a_wrong_settings_file_is_refused_with_its_name(
    line: str, named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(line)
    assert main(["compare", "--settings", str(file)]) == 2
    said = capsys.readouterr().err
    assert named in said
    assert "mine.toml" in said


def test_an_error_of_the_command_line_does_not_name_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("seeds = 1")
    for flags in (["--methods", "nonee"], ["--tune", "lerning-rate=0.1"]):
        assert main(["compare", "--settings", str(file), *flags]) == 2
        assert "mine.toml" not in capsys.readouterr().err


def test_a_flag_that_is_true_false_or_left_out_has_its_value(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    for value in (True, False):
        flags = _parsed(["compare", "--vcl-per-channel", str(value)])
        file.write_text(text_of(flags))
        assert _parsed(["compare", "--settings", str(file)]).config.vcl_per_channel is value


def test_a_settings_file_of_the_users_is_not_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept, mine = tmp_path / "settings.toml", tmp_path / "mine.toml"
    for file, text in {kept: "seeds = 1 # a note\n", mine: "seeds = 2\n"}.items():
        file.write_text(text)
    kept_of(Compare(out=tmp_path, settings=kept, seeds=1))
    kept_of(Compare(out=tmp_path, seeds=3))
    assert f"{kept} is left as it is" in capsys.readouterr().out
    for flags in (Compare(settings=mine, seeds=2), Compare(settings=kept, seeds=5)):
        with pytest.raises(UserError, match="compare did not write it"):
            kept_of(replace(flags, out=tmp_path))
    assert kept.read_text() == "seeds = 1 # a note\n"


def test_the_settings_in_a_folder_are_those_of_its_last_comparison(tmp_path: Path) -> None:
    kept, mine = tmp_path / "out" / "settings.toml", tmp_path / "mine.toml"
    kept.parent.mkdir()
    mine.write_text("seeds = 2 # a note\n")
    kept_of(Compare(out=kept.parent))
    assert not kept.exists()
    kept_of(Compare(out=kept.parent, settings=mine, seeds=2))
    assert kept.read_text() == f"{MARK}seeds = 2 # a note\n"
    kept_of(Compare(out=kept.parent, settings=kept, seeds=2))
    assert kept.read_text() == f"{MARK}seeds = 2 # a note\n"
    kept_of(Compare(out=kept.parent, seeds=4))
    assert kept.read_text() == f"{MARK}seeds = 4\n"
    kept_of(Compare(out=kept.parent, settings=mine, seeds=5))
    assert kept.read_text().splitlines()[1:] == [
        "# mine.toml, with other flags of its command.",
        "seeds = 5",
    ]


@pytest.mark.parametrize("wrong", [["--model", "gone.py:Net"], ["--dataset", "gone.npz"]])
def test_no_settings_are_written_for_a_comparison_that_is_refused(
    wrong: list[str], tmp_path: Path
) -> None:
    file, out = tmp_path / "mine.toml", tmp_path / "out"
    file.write_text("seeds = 1")
    assert main(["compare", "--settings", str(file), "--out", str(out), *wrong]) == 2
    assert not (out / "settings.toml").exists()


@pytest.mark.parametrize("file", COMMITTED, ids=lambda file: file.parent.name)
def test_committed_settings_are_flags_and_networks_of_today(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    flags = _parsed(["compare", "--settings", str(file), "--dataset", "digits"])
    for model in network_names(flags.config.model).values():
        assert callable(load_maker(model))


def test_train_takes_one_network(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--model", "mlp,cnn4"]) == 2
    assert "compare takes several" in capsys.readouterr().err


@pytest.mark.slow  # `test_out_of_several` compares two networks by one method.
def test_two_networks_are_compared_and_pooled_and_their_settings_repeat(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, file = tmp_path / "out", tmp_path / "mine.toml"
    file.write_text(f'dataset = "{save_toy(tmp_path)}"\n{SETTINGS}')
    networks = f"{FILE}:Residual,{FILE}:Wide"
    command = ["compare", "--settings", str(file), "--model", networks, "--out", str(out)]
    assert main(command) == 0
    assert (out / "rates.png").read_bytes().startswith(b"\x89PNG")
    table = (out / "table.md").read_text()
    assert "| method - bn | networks |" in table
    first = {name: rows_of(out / name / "results.csv") for name in ("Residual", "Wide")}
    for name, rows in first.items():
        assert f"## {name}" in table
        assert [row["method"] for row in rows] == ["bn", "bn", "none", "none"]
        assert len({row["learning_rate"] for row in rows[:2]}) == 1
        trials = rows_of(out / name / "tuning.csv")
        assert {row["seed"] for row in trials} == {"0"}
    capsys.readouterr()
    assert main(["compare", "--settings", str(out / "settings.toml"), "--out", str(out)]) == 0
    assert capsys.readouterr().err.count("4 of 4 runs are kept") == 4
    assert {name: rows_of(out / name / "results.csv") for name in first} == first
