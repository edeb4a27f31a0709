"""Output in narrow terminals, closed pipes and limited encodings."""

import io
import os
import sys
from functools import partial

import jax
import pytest
from rich.console import Console

from experiments.analysis import table as screen
from experiments.analysis.comparison import comparison_table
from experiments.analysis.curves import draw_curves
from experiments.analysis.table import provenance
from experiments.cli import main
from experiments.runs.files import write_whole
from tests.experiments.test_reports import RUNS


@pytest.mark.parametrize("width", [20, 60, 90, 120, 300])
def test_no_figure_is_cut_on_a_narrow_terminal(width, monkeypatch, capsys):
    text = io.StringIO()
    terminal = partial(Console, file=text, force_terminal=True, width=width, color_system=None)
    monkeypatch.setattr(screen, "Console", terminal)
    table = comparison_table(RUNS)
    screen.show_table(table)
    shown = text.getvalue() + capsys.readouterr().out
    assert "…" not in shown
    assert all(word in shown for row in table[1] for cell in row for word in cell.split())
    assert ("┃" in shown) == (width >= 60)


def test_brackets_in_a_table_are_no_markup(monkeypatch):
    text = io.StringIO()
    terminal = partial(Console, file=text, force_terminal=True, color_system=None)
    monkeypatch.setattr(screen, "Console", terminal)
    screen.show_table((("[b]name[/b]", "[i]"), [("[red]", "1 [0, 2]")]))
    assert all(word in text.getvalue() for word in ("[b]name[/b]", "[i]", "[red]", "1 [0, 2]"))


def test_a_reader_that_has_enough_is_no_traceback(monkeypatch, capsys):
    """``| head -1`` closes the pipe before everything is written."""
    reading, writing = os.pipe()
    os.close(reading)
    for arguments in (["methods"], ["--version"]):
        with os.fdopen(os.dup(writing), "w") as closed, monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", closed)
            assert main(arguments) == 128 + 13
    os.close(writing)
    assert capsys.readouterr().err == ""


def test_an_encoding_without_a_sign_loses_nothing(monkeypatch):
    bare = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", bare)
    monkeypatch.setattr("experiments.cli.show_methods", lambda: print("1 ± 2"))
    assert main(["methods"]) == 0
    assert bare.buffer.getvalue() == b"1 \\xb1 2\n"


def test_a_path_that_is_no_unicode_is_written_as_it_was_typed(tmp_path):
    write_whole(tmp_path / "table.md", os.fsdecode(b"--out caf\xe9"))
    assert (tmp_path / "table.md").read_bytes() == b"--out caf\xe9"


def test_a_name_of_data_is_no_formula(tmp_path):
    draw_curves(tmp_path / "curves.png", RUNS, r"cost$\none$.npz")
    assert (tmp_path / "curves.png").is_file()


def test_options_of_jax_stand_beside_the_versions_if_they_are_not_the_default():
    assert "options of JAX" not in provenance("train --out x")
    with jax.default_matmul_precision("float32"):
        assert "- options of JAX: jax_default_matmul_precision=float32\n" in provenance("train")


def test_where_git_is_not_installed_a_comparison_still_ends(monkeypatch):
    monkeypatch.setenv("PATH", "")
    text = provenance("train --out x")
    for part in ("`train --out x`", "jax ", "Python ", "no git\n", "CPU cores", "date: 2"):
        assert part in text
