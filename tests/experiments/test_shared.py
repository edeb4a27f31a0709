"""Runs of one folder: which are kept, and which are shown."""

import contextlib
import errno
import importlib.metadata
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from experiments.cli import main, way_on
from experiments.commands import Compare
from experiments.config import Config
from experiments.data.reading import reading
from experiments.errors import UserError
from experiments.models.own_code import own_code
from experiments.runs import spec as specs
from experiments.runs.comparison import Comparison, execute
from experiments.runs.files import write_whole
from experiments.runs.signals import KEPT, Stopped, stopping
from experiments.runs.spec import Spec
from experiments.runs.store import Store
from tests.experiments.test_items import REPORT
from tests.experiments.test_runs import run, spec
from tests.experiments.toy import rows_of, save_toy, toy_dataset

ROOT = Path(__file__).parents[2]
TINY = ["--model", "mlp", "--depth", "1", "--width", "4", "--epochs", "1", "--batch-size", "16"]


def digests(path, seeds=4):
    """Returns the digests of the rows of each seed."""
    comparison = Comparison(Config(dataset=str(path)))
    specs = [Spec("bn", seed, comparison.config) for seed in range(seeds)]
    return [comparison.parts_beside(each)["rows"] for each in specs]


def save_masks(path, masks, order=slice(None)):
    X_train, y_train, X_test, y_test, *_ = toy_dataset()
    X, y = np.concatenate([X_train, X_test]), np.concatenate([y_train, y_test])
    np.savez(path, X=X[order], y=y[order], test4=masks)


def test_masks_of_every_seed_decide_its_runs_and_no_others(tmp_path):
    path, masks = tmp_path / "toy.npz", np.random.default_rng(0).random((4, 93)) < 0.3
    save_masks(path, masks)
    usual = digests(path)
    assert digests(path) == usual
    for seed in range(4):  # One row of one mask: an edit of each seed's, the first seed's too.
        changed = masks.copy()
        changed[seed, 5] ^= True
        save_masks(path, changed)
        same = [old == new for old, new in zip(usual, digests(path), strict=True)]
        assert same == [other != seed for other in range(4)]


def test_rows_in_another_order_are_other_rows_to_every_seed(tmp_path):
    path, masks = tmp_path / "toy.npz", np.tile(np.arange(93) % 4 == 0, (4, 1))
    save_masks(path, masks)
    usual = digests(path)
    save_masks(path, masks, np.r_[4:8, 0:4, 8:93])  # The masks stay what they are.
    assert not {*usual} & {*digests(path)}


@pytest.mark.kept("0")
@pytest.mark.parametrize("seed", [0, 3])
def test_a_run_of_train_is_one_that_compare_keeps(seed, tmp_path, capsys):
    command = ["--dataset", save_toy(tmp_path), *TINY, "--channels", "8", "--out", str(tmp_path)]
    assert main(["train", "--method", "none", "--seed", str(seed), *command]) == 0
    assert main(["compare", "--methods", "none", "--seeds", str(seed + 1), *command]) == 0
    assert f"1 of {seed + 1} runs are kept" in capsys.readouterr().err


def test_a_run_of_an_earlier_version_is_listed_and_trained_again(tmp_path):
    """It has checksums of its files, and none of its programs and of its initial parameters."""
    store = Store(tmp_path)
    store.add(spec(), run())
    with contextlib.closing(sqlite3.connect(store.path)) as database:
        described, results = database.execute("SELECT spec, results FROM runs").fetchone()
        results = {k: v for k, v in json.loads(results).items() if k not in ("parts", "initial")}
        described = {**json.loads(described), "data": [7, 8], "network": "abc"}
        row = json.dumps(described), json.dumps(results)
        database.execute("UPDATE runs SET digest = 'x', spec = ?, results = ?", row)
        database.commit()
    assert [(row.run, row.parts) for row in store.rows()] == [(run(), {})]
    assert store.finished([spec()]) == {}
    assert store.why_not([spec()]) == [
        "Trained again: 1 of 1, as the stored ones are of an earlier version, which kept no "
        "digests of programs."
    ]
    store.add(spec(), run(0.75))
    assert (store.finished([spec()])[spec()], store.why_not([spec()])) == (run(0.75), [])


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("jax_default_prng_impl", "rbg", "jax_default_prng_impl=rbg"),
        ("jax_threefry_partitionable", False, "jax_threefry_partitionable=False"),
        ("jax_default_matmul_precision", "bfloat16", "jax_default_matmul_precision=bfloat16"),
    ],
)
def test_a_run_of_other_options_of_jax_is_trained_again(option, value, words, tmp_path):
    """They come from the environment or the user's code, and other random numbers from them."""
    (tmp_path / "other").mkdir()
    store, other, usual = Store(tmp_path), Store(tmp_path / "other"), getattr(jax.config, option)
    store.add(spec(), run())
    began = specs.versions()
    specs.check_options(began, "c/1")
    try:
        jax.config.update(option, value)
        with pytest.raises(UserError, match=f"the default ones there and {words} here"):
            specs.check_options(began, "c/1")  # A run that is resumed would be of both.
        assert store.finished([spec()]) == {}
        default = "Trained again: 1 of 1, as the stored ones are of JAX's default options."
        assert store.why_not([spec()]) == [default]
        for each in (store, other):
            each.add(spec(), run())
            assert spec() in each.finished([spec()])
    finally:
        jax.config.update(option, usual)
    assert other.why_not([spec()]) == [f"Trained again: 1 of 1, as the stored ones are of {words}."]
    assert store.why_not([spec()]) == []  # It has the run of the usual options, too.


@pytest.mark.parametrize("package", ["jax", "jaxlib", "flax", "optax", "numpy"])
def test_a_run_of_another_package_is_trained_again(package, tmp_path, monkeypatch):
    store = Store(tmp_path)
    store.add(spec(), run())
    real = specs.package_versions()
    monkeypatch.setattr(specs, "package_versions", lambda: {**real, package: "0.0.1"})
    assert store.finished([spec()]) == {}
    assert f"{package} {importlib.metadata.version(package)}." in store.why_not([spec()])[0]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (["rows"], "their rows changed"),
        (["initialization", "step", "score"], "their initialization, step and score changed"),
        (["settings"], "their settings changed"),
    ],
)
def test_stale_runs_say_why(changed, reason, tmp_path):
    store = Store(tmp_path)
    for seed in range(3):
        store.add(spec(seed), run(seed=seed))
    wanted = [spec(seed).made_of(dict.fromkeys(changed, "new")) for seed in range(4)]
    assert store.why_not(wanted) == [f"Trained again: 3 of 4, as {reason}."]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the runs of two methods and two seeds."""
    place = tmp_path_factory.mktemp("shared")
    command = ["compare", "--dataset", save_toy(place), *TINY, "--out", str(place / "out")]
    assert main([*command, "--methods", "none,ln", "--seeds", "2", "--quiet"]) == 0
    return place


def again(folder, tmp_path, *flags):
    shutil.copytree(folder / "out", tmp_path / "out")
    command = ["--dataset", str(folder / "toy.npz"), *TINY, "--out", str(tmp_path / "out")]
    assert main([flags[0], *command, *flags[1:], "--quiet"]) == 0
    rows = rows_of(tmp_path / "out" / "results.csv")
    return [(row["method"], row["seed"]) for row in rows]


BOTH = [(method, seed) for method in ("none", "ln") for seed in "01"]


@pytest.mark.slow
def test_other_methods_of_the_folder_are_shown(folder, tmp_path):
    shown = again(folder, tmp_path, "compare", "--methods", "rms", "--seeds", "2")
    assert shown == [("rms", "0"), ("rms", "1"), *BOTH]
    curves = rows_of(tmp_path / "out" / "curves.csv")
    assert {(row["method"], row["seed"]) for row in curves} == {*shown}
    table = (tmp_path / "out" / "table.md").read_text()
    assert all(f"| {name} " in table for name in ("rms", "none", "ln"))


@pytest.mark.slow
def test_a_run_of_train_stands_beside_those_of_compare(folder, tmp_path):
    flags = ["train", "--method", "rms", "--seed", "1", "--channels", "8"]
    assert again(folder, tmp_path, *flags) == [("rms", "1"), *BOTH]


@pytest.mark.slow
def test_more_seeds_of_earlier_calls_are_shown_and_counted(folder, tmp_path):
    shown = again(folder, tmp_path, "compare", "--methods", "ln", "--seeds", "1")
    assert shown == [*BOTH[2:], *BOTH[:2]]
    shutil.rmtree(tmp_path / "out")
    shown = again(folder, tmp_path, "compare", "--methods", "rms", "--seeds", "1")
    assert shown == [("rms", "0"), *BOTH]
    assert "1 of 2 seeds) " in (tmp_path / "out" / "table.md").read_text()


@pytest.mark.slow
def test_runs_of_other_settings_are_not_shown(folder, tmp_path):
    flags = ["compare", "--methods", "ln", "--seeds", "1", "--learning-rate", "0.3"]
    assert again(folder, tmp_path, *flags) == [("ln", "0")]
    assert len(Store(tmp_path / "out").rows()) == 5


@pytest.mark.slow
def test_methods_that_another_call_tuned_are_not_shown(folder, tmp_path):
    """They may be of another grid, or of other trials; a call that names them has them."""
    flags = ["compare", "--seeds", "1", "--tune", "learning-rate=0.1,0.2", "--methods"]
    assert again(folder, tmp_path, *flags, "none") == [("none", "0")]
    shutil.copytree(tmp_path / "out", tmp_path / "tuned" / "out")
    shutil.copy(folder / "toy.npz", tmp_path / "tuned" / "toy.npz")
    for methods, shown in (("ln", [("ln", "0")]), ("ln,none", [("ln", "0"), ("none", "0")])):
        (tmp_path / methods).mkdir()
        assert again(tmp_path / "tuned", tmp_path / methods, *flags, methods) == shown


def test_two_programs_write_to_one_folder_at_once(tmp_path):
    specs, ended = [spec(seed) for seed in range(4)], {}
    both = threading.Barrier(2)

    def program(name):
        def training(spec, keeper):
            both.wait(30)  # So that both store the same run at the same time.
            return run(seed=spec.seed)

        ended[name] = [
            each.seed for each, _, _ in execute(specs, lambda: training, Store(tmp_path))
        ]

    threads = [threading.Thread(target=program, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert ended == {name: [0, 1, 2, 3] for name in "ab"}
    assert sorted(row.run.seed for row in Store(tmp_path).rows()) == [0, 1, 2, 3]


class Quick:
    """A training in no time."""

    def __call__(self, spec, keeper):
        return run(seed=spec.seed)


@contextlib.contextmanager
def as_nobody():
    """Gives up the rights of root, who may read and write anything."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)


@pytest.fixture
def stored():
    """A folder with a stored run; what its path leads through can be read by all."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "out"
        folder.mkdir()
        Store(folder).add(spec(), run())
        Path(place).chmod(0o755)
        yield folder
        for each in (Path(place), folder):
            each.chmod(0o755)


@pytest.mark.skipif(os.name != "posix", reason="the rights are POSIX's")
def test_a_store_on_a_disk_that_cannot_be_written_is_listed(stored, capsys):
    for each in (stored / "runs.sqlite", stored, stored.parent):
        each.chmod(0o444 if each.is_file() else 0o555)
    with as_nobody():
        with pytest.raises(OSError, match="denied"):
            (stored / "x").touch()
        assert [row.run for row in Store(stored).rows()] == [run()]
        assert main(["runs", str(stored)]) == 0
    assert "1 runs in" in capsys.readouterr().out


@pytest.mark.skipif(os.name != "posix", reason="the rights are POSIX's")
@pytest.mark.parametrize("command", ["runs", "report", "items", "csv", "data"])
def test_what_may_not_be_read_or_written_is_one_line(command, stored, capsys, monkeypatch):
    """None says that the file is damaged, and to remove it."""
    line = {
        "runs": ["runs", str(stored)],
        "report": ["report", "--folder", str(stored)],
        "items": ["report", "--items", "--folder", str(stored)],
        "csv": ["runs", str(stored), "--csv", str(stored / "runs.csv")],
        "data": ["compare", "--dataset", str(stored), "--methods", "none", "--seeds", "1"],
    }[command]
    monkeypatch.chdir(stored.parent)
    (stored.parent / "results").mkdir()
    (stored.parent / "results").chmod(0o777)
    (stored / "runs.sqlite").chmod(0o000 if command == "runs" else 0o644)
    (stored / "cwo").mkdir()
    text = REPORT.format(name="cwo/tab1", preset="cpu", data="cifar10")
    (stored / "cwo" / "report.md").write_text(text)
    stored.chmod(0o555 if command in ("runs", "csv", "items") else 0o000)
    with as_nobody():
        assert main(line) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert "denied" in said
    assert str(stored) in said
    assert "remove" not in said


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_a_file_on_a_disk_that_cannot_be_written_is_one_line(number, tmp_path, monkeypatch):
    """There the draft cannot even be removed."""

    def refused(*arguments, **options):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "write_bytes", refused)
    monkeypatch.setattr(Path, "unlink", refused)
    with pytest.raises(UserError, match=r"cannot write .*runs\.csv.*--csv"):
        write_whole(tmp_path / "runs.csv", "", "--csv")


@pytest.mark.skipif(os.name != "posix", reason="the rights are POSIX's")
def test_a_store_that_cannot_be_written_is_said_before_the_training(stored):
    stored.chmod(0o777)
    (stored / "runs.sqlite").chmod(0o444)
    with as_nobody():
        assert spec() in Store(stored).finished([spec()])
        with pytest.raises(UserError, match="readonly database; wanted a folder that"):
            list(execute([spec(1)], lambda: None, Store(stored)))


def test_train_asks_for_its_store_before_it_trains(tmp_path, monkeypatch, capsys):
    def refused(self):
        raise UserError("no")

    monkeypatch.setattr("experiments.runs.comparison.fit", None)
    monkeypatch.setattr(Store, "check_writable", refused)
    command = ["train", "--method", "none", "--dataset", save_toy(tmp_path), *TINY]
    assert main([*command, "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == "error: no\n"


def test_runs_in_the_log_of_a_store_are_not_forgotten_on_a_disk_that_cannot_be_written(
    stored, monkeypatch
):
    """A copy of a store that is being written to has runs in its log alone."""
    (stored / "runs.sqlite-wal").write_bytes(b"runs")

    def refused(self, mode, which, values):
        assert mode != "immutable=1"
        error = sqlite3.OperationalError("unable to open database file")
        error.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
        raise error

    monkeypatch.setattr(Store, "_read", refused)
    with pytest.raises(UserError, match=r"runs\.sqlite-wal beside it has its last runs"):
        Store(stored).rows()


def test_listing_writes_nothing_beside_a_store(tmp_path):
    Store(tmp_path).add(spec(), run())
    content = (tmp_path / "runs.sqlite").read_bytes()
    assert Store(tmp_path).rows()[0].run == run()
    assert [path.name for path in tmp_path.iterdir()] == ["runs.sqlite"]
    assert (tmp_path / "runs.sqlite").read_bytes() == content


def test_a_store_that_another_program_is_about_to_make_is_empty(tmp_path):
    (tmp_path / "runs.sqlite").touch()
    assert Store(tmp_path).rows() == []


@pytest.fixture
def interruptible():
    """Ctrl-C as in a terminal: a shell lets its background jobs, and so these tests, ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_command_that_is_asked_to_end_says_how_it_goes_on(number, monkeypatch, tmp_path, capsys):
    def stopped(*arguments, **options):
        os.kill(os.getpid(), number)
        time.sleep(30)

    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    monkeypatch.setattr("experiments.runs.comparison.fit", stopped)
    command = ["--dataset", save_toy(tmp_path), *TINY, "--out", str(tmp_path / "out")]
    assert main(["compare", "--methods", "none", "--seeds", "1", *command]) == 128 + number
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == f"stopped by {number.name}; {KEPT}."
    assert main(["train", "--method", "none", *command]) == 128 + number
    assert "with --checkpoint-dir" in capsys.readouterr().err.splitlines()[-1]
    kept = str(tmp_path / "kept")
    monkeypatch.setattr("experiments.train.keeping", stopped)  # Before the checkpoints are read.
    assert main(["train", "--method", "none", *command, "--checkpoint-dir", kept]) == 128 + number
    said = capsys.readouterr().err.splitlines()[-1]
    words = f"goes on from the last checkpoint in {kept}, and begins anew if there is none."
    assert said.endswith(f"with --resume {words}")
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


class Dying:
    """An object in whose destructor a signal arrives; Python ignores exceptions there."""

    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.01)


def in_a_destructor():
    del [Dying()][0]
    time.sleep(30)


def killed():
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(30)


def in_a_block_that_catches_errors():
    with contextlib.suppress(Exception):
        killed()


def in_a_block_that_catches_everything():
    """As JAX has them around questions like whether a value can be hashed."""
    with contextlib.suppress(BaseException):
        killed()
    time.sleep(30)


def in_a_block_that_makes_an_error_of_everything():
    try:
        killed()
    except:  # noqa: E722
        raise TypeError("not a tree") from None


def in_code_of_the_users():
    space = dict[str, Any]()
    code = "import os, signal, time\ndef f():\n    os.kill(os.getpid(), signal.SIGTERM)\n"
    exec(compile(code + "    time.sleep(30)", "nets.py", "exec"), space)
    with own_code("nets.py:f"):
        space["f"]()


def while_a_file_is_read():
    with reading("x.npz", "wanted another"):
        killed()


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("fresh", [False, True])
def test_a_block_inside_another_says_what_that_one_says(fresh):
    """The processes of --jobs are such a block."""
    with stopping(way_on(Compare(fresh=fresh))), stopping(later=True) as check:
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(Stopped, match="without --fresh" if fresh else f"; {KEPT}"):
            check()


@pytest.mark.parametrize(
    "place",
    [
        in_a_destructor,
        in_a_block_that_catches_errors,
        in_a_block_that_catches_everything,
        in_a_block_that_makes_an_error_of_everything,
        in_code_of_the_users,
        while_a_file_is_read,
    ],
)
def test_a_signal_is_obeyed_wherever_it_arrives(place, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("experiments.runs.comparison.fit", lambda *arguments, **options: place())
    command = ["--dataset", save_toy(tmp_path), *TINY, "--out", str(tmp_path / "out")]
    begun = time.monotonic()
    assert main(["compare", "--methods", "none", "--seeds", "1", *command]) == 128 + signal.SIGTERM
    assert time.monotonic() - begun < 25
    assert capsys.readouterr().err.splitlines()[-1] == f"stopped by SIGTERM; {KEPT}."


def test_a_command_that_fails_skips_the_teardown_of_python():
    """In the teardown a device that still computes crashes, which would be the exit status."""
    code = "import atexit, os, runpy, sys; atexit.register(os._exit, 7); "
    code += "sys.argv[1:] = ['compares']; runpy.run_module('experiments', run_name='__main__')"
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (ended.returncode, len(ended.stderr.splitlines())) == (2, 1), ended.stderr


@pytest.mark.parametrize("silenced", [True, False])
def test_nothing_is_said_of_the_locks_of_killed_processes(silenced):
    """Loky's tracker of locks, a process of its own, speaks after the last line of a command."""
    code = "import os; from joblib.externals.loky.backend import get_context; "
    code += "from experiments.runs.jobs import _silence; " + "_silence(); " * silenced
    code += "lock = get_context('loky').Lock(); os._exit(0)"
    # Without the filter that other tests' processes left in this one.
    own = {name: value for name, value in os.environ.items() if name != "PYTHONWARNINGS"}
    command = [sys.executable, "-c", code]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=own)
    assert ended.returncode == 0
    assert ("leaked semlock" in ended.stderr) is not silenced


#: A network that leaves a file with the number of the process that makes it.
LEAVES_ITS_PROCESS = """
import os, pathlib
from flax import nnx

def network(rngs, shape, classes):
    pathlib.Path(__file__).with_name(f"{os.getpid()}.made").touch()
    return nnx.Linear(*shape, classes, rngs=rngs)
"""


@pytest.mark.slow
@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(("number", "jobs"), [(signal.SIGTERM, 2), (signal.SIGINT, 1)])
def test_a_command_in_the_middle_of_its_steps_says_so_too(number, jobs, tmp_path):
    (tmp_path / "nets.py").write_text(LEAVES_ITS_PROCESS)
    command = [sys.executable, "-m", "experiments", "compare", "--methods", "none", "--seeds", "2"]
    command += ["--dataset", save_toy(tmp_path), "--model", f"{tmp_path / 'nets.py'}:network"]
    command += ["--batch-size", "16", "--epochs", "100000", "--jobs", str(jobs)]
    command += ["--out", str(tmp_path / "out")]
    begun = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE)
    while len(list(tmp_path.glob("*.made"))) < (1 if jobs == 1 else 1 + jobs):
        assert begun.poll() is None
        time.sleep(0.1)
    time.sleep(5)  # It compiles, and takes its first steps.
    begun.send_signal(number)
    _, said = begun.communicate(timeout=60)
    assert begun.returncode == 128 + number
    assert said.decode().splitlines()[-1] == f"stopped by {number.name}; {KEPT}."
