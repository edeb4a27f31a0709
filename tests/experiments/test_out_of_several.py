"""The folder of a comparison of several networks, and what later calls into it do."""

import shutil
from pathlib import Path

import pytest
from filelock import FileLock, Timeout

from experiments import compare, train
from experiments.analysis.tuning import choose
from experiments.cli import main
from experiments.models.from_file import _executed
from experiments.runs import lock
from experiments.runs.lock import FILE, alone_in
from experiments.runs.marks import STALE
from tests.experiments.toy import rows_of, save_toy

NETS = """
from flax import nnx


def A(rngs, shape, classes):
    return nnx.Linear(shape[-1], classes, rngs=rngs)


def B(rngs, shape, classes):
    return nnx.Linear(shape[-1], classes, use_bias=False, rngs=rngs)
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with two networks, their data and their comparison in `out`."""
    folder = tmp_path_factory.mktemp("several")
    (folder / "nets.py").write_text(NETS)
    save_toy(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        _executed.cache_clear()
        assert main(command(folder, "A,B", "--tensorboard", "events")) == 0
    return folder


@pytest.fixture
def folder(trained, tmp_path, monkeypatch):
    """A copy of that folder, in which the test runs."""
    copy = Path(shutil.copytree(trained, tmp_path / "copy"))
    monkeypatch.chdir(copy)
    _executed.cache_clear()
    return copy


def command(folder: Path, names: str, *more: str) -> list[str]:
    model = ",".join(f"nets.py:{name}" for name in names.split(","))
    flags = ["--dataset", "toy.npz", "--methods", "none", "--seeds", "1"]
    flags += ["--epochs", "1", "--batch-size", "16", "--out", str(folder / "out")]
    return ["compare", "--model", model, *flags, *more]


def test_each_network_has_event_files_of_its_own(trained):
    for name in "AB":
        assert list((trained / "events" / name / "none" / "seed-0").iterdir())


def test_the_runs_of_all_networks_are_listed(trained, tmp_path, capsys):
    assert main(["runs", str(trained / "out"), "--csv", str(tmp_path / "runs.csv")]) == 0
    assert "2 runs in " in capsys.readouterr().out
    rows = rows_of(tmp_path / "runs.csv")
    assert [(row["folder"], row["model"][-2:]) for row in rows] == [("A", ":A"), ("B", ":B")]


def test_copies_of_runs_are_listed_by_their_folders(folder, tmp_path, capsys):
    shutil.copytree(folder / "out" / "A", folder / "out" / "copy of A")
    assert main(["runs", str(folder / "out"), "--csv", str(tmp_path / "runs.csv")]) == 0
    folders = [row["folder"] for row in rows_of(tmp_path / "runs.csv")]
    assert folders == ["A", "B", "copy of A"]
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("| copy of A ")]


def test_pages_of_one_network_and_of_several_do_not_replace_each_other(folder, capsys):
    before = (folder / "out" / "table.md").read_text()
    assert main(command(folder, "A")) == 2
    assert "is of several networks, and would be replaced by that of one" in capsys.readouterr().err
    assert (folder / "out" / "table.md").read_text() == before
    assert main(command(folder, "A,B", "--out", str(folder / "out" / "A"))) == 2
    assert "is of one network, and would be replaced by that of several" in capsys.readouterr().err
    names = sorted(path.name for path in (folder / "out").iterdir())
    assert names == [FILE, "A", "B", "table.md"]


def test_a_misspelt_second_network_is_refused_before_the_first_is_trained(folder, capsys):
    settings = folder / "mine.toml"
    settings.write_text("seeds = 1")
    more = ["--out", str(folder / "new"), "--settings", str(settings)]
    assert main(command(folder, "A,C", *more)) == 2
    assert "no function in" in capsys.readouterr().err
    assert [path for path in (folder / "new").rglob("*") if path.is_file()] == []


@pytest.mark.kept("False")
@pytest.mark.parametrize("fresh", [False, True])
def test_pages_whose_runs_are_trained_again_say_so_first(fresh, folder, monkeypatch):
    out = folder / "out"
    changed, more = ("A", ["--fresh"]) if fresh else ("B", [])
    if not fresh:
        (folder / "nets.py").write_text(NETS.replace("use_bias=False", "use_bias=True"))
    with monkeypatch.context() as patch:
        patch.setattr(compare, "run_all", stopped(compare.run_all))
        assert main(command(folder, "A,B", *more)) == 130
    for page in (out / "table.md", out / changed / "table.md"):
        assert page.read_text().count(STALE) == 1
    if not fresh:
        assert STALE not in (out / "A" / "table.md").read_text()
        assert main(command(folder, "A,B")) == 0
        assert STALE not in (out / "table.md").read_text()


def test_pages_of_kept_runs_say_so_before_the_files_beside_them_are_written(folder, monkeypatch):
    out = folder / "out"
    monkeypatch.setattr(compare, "write_results", stop)
    assert main([*command(folder, "A"), "--out", str(out / "A")]) == 130
    assert STALE not in (out / "table.md").read_text()
    assert main(command(folder, "A,B")) == 130
    for page in (out / "table.md", out / "A" / "table.md"):
        assert page.read_text().count(STALE) == 1
    assert STALE not in (out / "B" / "table.md").read_text()


@pytest.mark.slow
def test_all_files_of_a_network_are_written_while_no_other_program_writes_there(
    folder, monkeypatch
):
    out, asked = folder / "out" / "A", []

    def alone(write):
        def wrapped(*arguments):
            with pytest.raises(Timeout), FileLock(out / FILE, timeout=0):
                pass
            asked.append(write.__name__)
            return write(*arguments)

        return wrapped

    writers = ("keep_settings", "write_results", "write_curves", "write_trials", "draw_curves")
    writers = (*writers, "write_whole")
    for name in writers:
        monkeypatch.setattr(compare, name, alone(getattr(compare, name)))
    assert main([*command(folder, "A"), "--tune", "learning-rate=0.1", "--out", str(out)]) == 0
    assert {*asked} == {*writers}


def reports(out: Path) -> dict[str, bytes]:
    others = FILE, "runs.sqlite"
    return {path.name: path.read_bytes() for path in out.iterdir() if path.name not in others}


def test_nothing_is_written_where_a_paper_s_item_runs(folder, monkeypatch, capsys):
    monkeypatch.setattr(lock, "PATIENCE", 0.1)
    monkeypatch.setattr(lock, "SILENCE", 0.0)
    out = folder / "out" / "A"
    with alone_in(out):
        before = reports(out)
        assert main([*command(folder, "A"), "--out", str(out), "--fresh"]) == 2
    waits, ended = capsys.readouterr().err.splitlines()
    assert waits.startswith(f"another run writes to {out}: this one waits")
    assert ended.startswith(f"error: another run writes to {out}, and holds")
    assert reports(out) == before


def test_nothing_is_written_over_tables_that_came_while_it_trained(folder, monkeypatch, capsys):
    out, run_all = folder / "out" / "A", compare.run_all
    before = reports(out) | {"results.csv": b"quantity,value"}

    def meanwhile(*arguments, **more):
        (out / "results.csv").write_bytes(before["results.csv"])
        return run_all(*arguments, **more)

    monkeypatch.setattr(compare, "run_all", meanwhile)
    assert main([*command(folder, "A"), "--out", str(out)]) == 2
    printed = capsys.readouterr()
    assert "results.csv is no results.csv of this command" in printed.err
    assert "none" in printed.out  # The runs are shown.
    assert reports(out) == before


def test_the_page_over_several_says_so_if_another_call_writes_beside_one_meanwhile(
    folder, monkeypatch
):
    page, pooled_table = folder / "out" / "A" / "table.md", compare.pooled_table

    def meanwhile(*arguments):
        page.write_text(page.read_text().replace("seed", "seeds"))
        return pooled_table(*arguments)

    monkeypatch.setattr(compare, "pooled_table", meanwhile)
    assert main(command(folder, "A,B")) == 0
    assert (folder / "out" / "table.md").read_text().startswith(STALE)


@pytest.mark.slow
def test_a_network_whose_folder_is_reached_by_a_link_marks_the_page_over_several(folder):
    link = folder / "link"
    link.symlink_to(folder / "out" / "A")
    assert main([*command(folder, "A", "--learning-rate", "0.01"), "--out", str(link)]) == 0
    assert (folder / "out" / "table.md").read_text().startswith(STALE)


@pytest.mark.slow
@pytest.mark.parametrize("tuned", [False, True])
def test_a_page_says_so_when_its_trials_are_trained(tuned, folder, monkeypatch):
    plain = [*command(folder, "A"), "--out", str(folder / "tuned")]
    tune = [*plain, "--tune", "learning-rate=0.1"]
    assert main(tune if tuned else plain) == 0
    page = folder / "tuned" / "table.md"
    assert STALE not in page.read_text()
    (folder / "nets.py").write_text(NETS.replace("classes, rngs", "classes, use_bias=False, rngs"))
    _executed.cache_clear()
    monkeypatch.setattr(choose, "run_all", stopped(choose.run_all))
    assert main(tune) == 130
    assert page.read_text().count(STALE) == 1


#: A network that reads a factor when it is called, or when it is made.
READING = """
from pathlib import Path
from flax import nnx


class A(nnx.Linear):
    def __init__(self, rngs, shape, classes):
        super().__init__(shape[-1], classes, rngs=rngs)
        self.factor = {made}

    def __call__(self, x):
        return {called} * super().__call__(x)
"""
FACTOR = 'float(Path("factor.txt").read_text())'
READS = {
    "called": READING.format(made="1.0", called=FACTOR),
    "made": READING.format(made=FACTOR, called="self.factor"),
}


@pytest.fixture(params=READS)
def _reading(request, folder):
    (folder / "nets.py").write_text(READS[request.param])
    (folder / "factor.txt").write_text("1")


@pytest.mark.slow
@pytest.mark.usefixtures("_reading")
def test_trials_do_not_choose_for_a_network_that_was_edited_meanwhile(folder, monkeypatch, capsys):
    def edited(*arguments, **more):
        runs = run_all(*arguments, **more)
        (folder / "factor.txt").write_text("2")
        return runs

    run_all = choose.run_all
    monkeypatch.setattr(choose, "run_all", edited)
    flags = ["--tune", "learning-rate=0.1", "--out", str(folder / "tuned")]
    assert main([*command(folder, "A"), *flags]) == 2
    assert "step and score differ here from what the command began with" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.usefixtures("_reading")
def test_runs_of_a_network_before_an_edit_are_not_shown_beside_those_after_it(
    folder, monkeypatch, capsys
):
    """The files that are there at the end need not be those of the runs."""
    both = ["--constrain-head", "--out", str(folder / "both")]
    assert main([*command(folder, "A"), *both]) == 0
    (folder / "factor.txt").write_text("2")

    def edited(*arguments, **more):
        runs = run_all(*arguments, **more | {"write": lambda runs: None})
        (folder / "factor.txt").write_text("1")
        return runs

    run_all = compare.run_all
    with monkeypatch.context() as patch:
        patch.setattr(compare, "run_all", edited)
        assert main([*command(folder, "A", "--methods", "wn"), *both]) == 0
    assert [row["method"] for row in rows_of(folder / "both" / "results.csv")] == ["wn"]
    assert "before or after an edit" in capsys.readouterr().out


def test_a_page_says_so_if_a_call_that_began_later_has_trained_another_network(folder, monkeypatch):
    def edited(comparison, specs, store, *rest, **more):
        (run,) = run_all(comparison, specs, store, *rest, **more)
        store.add(specs[0].made_of({"step": "after an edit"}), run)
        return [run]

    run_all = compare.run_all
    monkeypatch.setattr(compare, "run_all", edited)
    assert main([*command(folder, "B"), "--out", str(folder / "out" / "B")]) == 0
    for page in (folder / "out" / "B" / "table.md", folder / "out" / "table.md"):
        assert page.read_text().startswith(STALE)


@pytest.mark.slow
def test_the_page_over_networks_says_so_if_the_kept_runs_of_one_are_of_other_settings(folder):
    pooled, one = folder / "out" / "table.md", ["--out", str(folder / "out" / "A")]
    assert main([*command(folder, "A"), *one]) == 0
    assert STALE not in pooled.read_text()
    assert main(command(folder, "A,B", "--learning-rate", "0.01")) == 0
    assert main([*command(folder, "A"), *one]) == 0
    assert pooled.read_text().startswith(STALE)
    assert STALE not in (folder / "out" / "A" / "table.md").read_text()


@pytest.mark.slow
def test_so_it_does_when_train_trains_a_run_of_it(folder, monkeypatch):
    """Also if a comparison has written the page before the run ends."""
    _, *flags = command(folder, "A")
    out = folder / "out" / "A"
    flags[flags.index("--out") + 1] = str(out)
    flags[flags.index("--methods")] = "--method"
    at = flags.index("--seeds")
    flags[at : at + 2] = ["--seed", "0"]
    assert STALE not in (out / "table.md").read_text()
    flags[at + 1] = "1"
    before, trained = (out / "table.md").read_text(), train._trained

    def beside(*arguments):
        result = trained(*arguments)
        assert (out / "table.md").read_text().count(STALE) == 1
        (out / "table.md").write_text(before)
        return result

    monkeypatch.setattr(train, "_trained", beside)
    assert main(["train", *flags]) == 0
    for page in (out / "table.md", folder / "out" / "table.md"):
        assert page.read_text().count(STALE) == 1


@pytest.mark.slow
def test_a_network_by_another_path_keeps_the_other_methods_of_its_folder(folder, capsys):
    into = ["--constrain-head", "--out", str(folder / "paths")]
    assert main([*command(folder, "A"), *into]) == 0
    there = command(folder, "A", "--methods", "wn", "--model", f"{folder / 'nets.py'}:A")
    assert main([*there, *into]) == 0
    assert [row["method"] for row in rows_of(folder / "paths" / "results.csv")] == ["wn", "none"]
    (folder / "nets.py").write_text(NETS.replace("classes, rngs", "classes, use_bias=False, rngs"))
    _executed.cache_clear()
    assert main([*command(folder, "A"), *into]) == 0
    capsys.readouterr()
    assert main([*there, *into]) == 0
    assert "Trained again: 1 of 1, as their" in capsys.readouterr().err


def stop(*arguments):
    raise KeyboardInterrupt


def stopped(run_all):
    """Returns a `run_all` that Ctrl-C stops if there is something to train."""

    def stops(comparison, specs, store, kept, *rest, **more):
        if len(kept) < len(specs):
            raise KeyboardInterrupt
        return run_all(comparison, specs, store, kept, *rest, **more)

    return stops
