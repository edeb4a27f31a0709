"""The command line, end to end."""

import importlib.metadata
import shutil
import subprocess
import sys
from dataclasses import fields
from itertools import pairwise
from typing import get_type_hints

import pytest

from experiments.augmentation.table import AUGMENTATIONS
from experiments.cli import main
from experiments.commands import COMMANDS
from experiments.config import OF_PARTS, Config
from experiments.data.load import BUNDLED
from experiments.methods.table import METHODS
from experiments.models.registry import MODELS, with_network
from experiments.models.style import ACTIVATIONS
from experiments.runs.lock import FILE, alone_in
from experiments.runs.store import Store
from tests.experiments.toy import rows_of, save_toy

TINY = ["--depth", "1", "--width", "8", "--epochs", "2", "--batch-size", "16"]


@pytest.fixture(scope="module")
def npz(tmp_path_factory):
    return save_toy(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def comparison(npz, tmp_path_factory):
    out = tmp_path_factory.mktemp("out") / "new" / "folder"
    arguments = ["compare", "--dataset", npz, "--methods", "bn,cwo", "--seeds", "2", *TINY]
    assert main([*arguments, "--out", str(out)]) == 0
    return out


def test_compare_writes_its_files(comparison):
    assert sorted(path.name for path in comparison.iterdir()) == [
        FILE,
        "curves.csv",
        "curves.png",
        "results.csv",
        "runs.sqlite",
        "table.md",
    ]
    results, curves = rows_of(comparison / "results.csv"), rows_of(comparison / "curves.csv")
    assert [(row["method"], row["seed"]) for row in results] == [
        ("bn", "0"),
        ("bn", "1"),
        ("cwo", "0"),
        ("cwo", "1"),
    ]
    assert len(curves) == 8
    for row in results:
        assert 0 <= float(row["test_accuracy"]) <= 1
        assert float(row["step_ms"]) > 0
        last = [c for c in curves if (c["method"], c["seed"]) == (row["method"], row["seed"])][-1]
        assert last["test_loss"] == row["test_loss"]
    table = (comparison / "table.md").read_text()
    assert "| cwo" in table
    assert "python -m experiments compare --dataset" in table
    # TINY names the depth; the defaults that decided the figures stand beside the command.
    settings = table.split("- settings besides the command's: ")[1].split("\n")[0].split(", ")
    assert {"model=mlp", "optimizer=sgd", "learning_rate=0.05", "rate_decay=0"} < set(settings)
    assert "depth=1" not in settings
    assert "Level: a difference within a point of 0;" in table
    assert "scored with statistics estimated anew" in table
    assert (comparison / "curves.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_a_comparison_grows_and_keeps_what_is_finished(comparison, npz, tmp_path, capsys):
    for path in comparison.iterdir():
        shutil.copy(path, tmp_path)
    command = ["compare", "--dataset", npz, "--seeds", "2", *TINY, "--out", str(tmp_path)]
    assert main([*command, "--methods", "none,bn"]) == 0
    said = capsys.readouterr().err
    assert "2 of 4 runs are kept from an earlier call." in said
    assert ("none, seed 1:" in said, "bn, seed 1:" in said) == (True, False)
    old, new = rows_of(comparison / "results.csv"), rows_of(tmp_path / "results.csv")
    assert new == [*new[:2], *old]  # The folder's runs, whoever asked for them.
    # The versions, hardware and date below are not those of all runs.
    assert "4 of these 6 runs are kept from earlier calls" in (tmp_path / "table.md").read_text()
    assert "are kept from" not in (comparison / "table.md").read_text()
    assert main([*command, "--methods", "none,bn,cwo"]) == 0
    assert "6 of 6 runs are kept from an earlier call." in capsys.readouterr().err
    assert rows_of(tmp_path / "results.csv") == new
    assert main(["runs", str(tmp_path), "--csv", str(tmp_path / "all.csv")]) == 0
    assert "| cwo " in capsys.readouterr().out
    listed = rows_of(tmp_path / "all.csv")
    assert [(row["method"], row["seed"]) for row in listed] == [
        (row["method"], row["seed"]) for row in [*old, *new[:2]]
    ]
    assert float(listed[0]["test_loss"]) == pytest.approx(float(old[0]["test_loss"]), rel=1e-5)


@pytest.mark.slow
def test_other_settings_and_fresh_runs_are_trained(comparison, npz, tmp_path, capsys):
    for path in comparison.iterdir():
        shutil.copy(path, tmp_path)
    command = ["compare", "--dataset", npz, "--methods", "bn", "--seeds", "1", *TINY]
    for more in (["--fresh"], ["--learning-rate", "0.3"], ["--test-rows", "20"]):
        assert main([*command, *more, "--out", str(tmp_path)]) == 0
        assert "are kept" not in capsys.readouterr().err
    first = rows_of(tmp_path / "results.csv")
    assert len(first) == 1  # Of other rows in the test there is no other run.
    assert main([*command, "--test-rows", "20", "--out", str(tmp_path)]) == 0
    assert "1 of 1 runs are kept" in capsys.readouterr().err
    assert rows_of(tmp_path / "results.csv") == first
    assert len(Store(tmp_path).rows()) == 4 + 2  # A fresh run replaces its row.


def test_two_items_at_once_do_not_undo_what_the_other_keeps(tmp_path, capsys):
    with alone_in(tmp_path):
        assert main(["paper", "lcw/fig1", "--preset", "smoke", "--out", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert f"another run writes to {tmp_path}" in said
    assert "give another --out" in said
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_train_is_one_run_of_compare(comparison, npz, tmp_path, capsys):
    arguments = ["train", "--dataset", npz, "--method", "cwo", "--seed", "1", *TINY]
    assert main([*arguments, "--out", str(tmp_path)]) == 0
    (row,) = rows_of(tmp_path / "results.csv")
    expected = rows_of(comparison / "results.csv")[-1]
    for column in set(row) - {"step_ms"}:
        assert row[column] == expected[column], column
    captured = capsys.readouterr()
    assert "| cwo" in captured.out
    assert "cwo, seed 1" in captured.err


def test_the_network_follows_the_data():
    shapes = {
        (32, 32, 3): "cnn9",
        (8, 8, 1): "cnn9",
        (3, 3, 1): "mlp",
        (64, 3): "dgcnn",
        (9,): "mlp",
    }
    for shape, name in shapes.items():
        assert with_network(Config(), shape).model == name
        assert with_network(Config(model="nin"), shape).model == "nin"


#: What is wrong, and a part of the line that says so.
WRONG = {
    "comapre --epochs 3": "there is no command 'comapre': did you mean 'compare'",
    "compare --train-rows 2000": "--train-rows is 2000, and digits has 1348 train rows",
    "compare --test-rows 450": "--test-rows is 450, and digits has 449 test rows",
    "compare --model transformer": "transformer got rows of digits, which are of numbers",
    "compare --dataset python": "python has sequences of tokens and mlp takes none",
    "compare --methods BN": "did you mean 'bn'",
    "compare --dataset Digits": "did you mean 'digits'",
    "compare --activation relo": "did you mean 'relu'",
    "train --model cn9": "did you mean 'cnn9'",
    "train --augment flp": "did you mean 'flip'",
    "paper cwo/tb1": "did you mean 'cwo/tab1'",
    "bench stepp": "did you mean 'step'",
    "compare --epoch 3": "--epoch, 3; did you mean --epochs or",
    "compare --lr 0.1": "--lr, 0.1; see python -m experiments compare --help",
    "compare --learningrate 0.1": "did you mean --learning-rate",
    "compare --no-fressh": "did you mean --fresh",
    "compare --resume": "Unrecognized options: --resume",
    "bench compiled --modle mlp": "did you mean --model",
    "train --dtypes bfloat16": "python -m experiments train --help",
    "compare digits": "Unrecognized options: digits; see",
    "runs a b": "Unrecognized options: b; see",
    "train --activation swish": "There are relu,",
    "compare --dataset CIFAR-10": "there is no dataset 'CIFAR-10'",
    "compare --dataset digit": "did you mean 'digits'",
    "--epochs 3": "--epochs comes before the command",
    "compare --epochs abc": "--epochs: invalid literal",
    "compare --optimizer sdg": "invalid choice 'sdg'",
    "compare --epochs": "Missing value for argument '--epochs'",
    "compare --out=": "--out is ''",
    "train --tensorboard=": "--tensorboard is ''",
    "train --out=\t": "--out is",
    "compare --model nets.py": "wanted FILE.py:NAME",
    "compare --batch-size 2000": "take a --batch-size from 1 to 1348",
    "compare --out /dev/null/below": "give another --out",
    "report --folder . --verdicts": (
        "there is no photographs-ten-seeds/results.csv; run what writes"
    ),
}


@pytest.mark.parametrize("arguments", WRONG)
def test_wrong_input_gets_one_line(arguments, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(arguments.split()) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ")
    assert WRONG[arguments] in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_commands_that_list(capsys):
    for command, listed in (("datasets", "digits"), ("bench", "step")):
        assert main([command]) == 0
        assert listed in capsys.readouterr().out


def test_the_methods_are_a_command(capsys):
    assert main(["methods"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    found = {line.split("|")[1].strip(): line for line in lines if line.startswith("| ")}
    assert set(METHODS) <= set(found)
    assert "centered weight normalization" in found["cwn"]
    assert ("yes" in found["moving-average"], "yes" in found["lcw"]) == (True, False)


@pytest.mark.slow
def test_quiet_prints_nothing_and_writes_everything(npz, tmp_path, capfd):
    arguments = ["train", "--dataset", npz, "--method", "cwo", "--seed", "1", *TINY, "--quiet"]
    assert main([*arguments, "--out", str(tmp_path)]) == 0
    assert capfd.readouterr() == ("", "")
    assert len(rows_of(tmp_path / "results.csv")) == 1


@pytest.mark.parametrize("command", [*COMMANDS, "bench compiled"])
def test_no_line_of_the_help_ends_before_the_next_word_is_due(command, capsys):
    with pytest.raises(SystemExit):
        main([*command.split(), "--help"])
    lines = capsys.readouterr().out.splitlines()
    boxed = [line[2:-1].rstrip() for line in lines if line.startswith("│")]
    flags = [i for i, line in enumerate(boxed) if line.startswith("-")]
    for first, last in pairwise([*flags, len(boxed)]):
        words = [line for line in boxed[first:last] if line.startswith(" " * 8)]
        for line, following in pairwise(words):
            assert len(line) + len(following.split()[0]) + 1 > 76, line
    assert max(map(len, lines)) <= 100


@pytest.mark.slow
def test_output_on_a_full_disk_ends_with_one_sentence():
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "experiments", "--version"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: cannot write: No space left on device")
    assert done.stderr.count("\n") == 1


def test_the_help_has_the_names_of_the_tables(capsys):
    with pytest.raises(SystemExit):
        main(["compare", "--help"])
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert [n for n in (*MODELS, *ACTIVATIONS, *AUGMENTATIONS, *BUNDLED) if n not in text] == []


def test_every_setting_of_parts_is_a_field_of_its_type():
    kinds = get_type_hints(Config)
    used = set()
    for part in {type(part) for method in METHODS.values() for part in method.parts}:
        types = get_type_hints(part)
        own = {each.name for each in fields(part)} & set(OF_PARTS)
        assert all(kinds[name] == types[name] | None for name in own)
        used |= own
    assert used == set(OF_PARTS)


def test_the_version_is_that_of_the_package(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"jaxnorm {importlib.metadata.version('jaxnorm')}\n"


@pytest.mark.parametrize(
    "arguments",
    [["compare", "--out", ""], ["train", "--out", " "], ["runs", ""], ["runs", ".", "--csv", ""]]
    + [["compare", flag, ""] for flag in ("--model", "--coordinator", "--mesh")]
    + [["report", "--pairs="]],
)
def test_an_unset_variable_is_no_folder(arguments, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert "is ''" in said or "is ' '" in said
    assert said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["report", "--folder", "NAME"],
        ["report", "--items", "--folder", "NAME"],
        ["runs", "NAME"],
        ["paper", "bn/fig1a", "--preset", "smoke", "--data-dir", "NAME"],
        ["compare", "--model", "NAME:f"],
        ["compare", "--dataset", "NAME"],
        ["compare", "--out", "NAME"],
    ],
)
@pytest.mark.parametrize("name", [300 * "x", "loop.py"])
def test_a_name_that_the_system_refuses_is_one_line(name, arguments, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop.py").symlink_to("loop.py")
    assert main([each.replace("NAME", name) for each in arguments]) == 2
    assert capsys.readouterr().err.count("\n") == 1
