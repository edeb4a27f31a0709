"""The event files of --tensorboard: the numbers of curves.csv, complete after a resume."""

import math
import struct
import sys

import pytest
from tensorboardX.proto.event_pb2 import Event, SessionLog

from experiments.cli import main
from experiments.errors import UserError
from experiments.runs.tensorboard import EventFiles
from experiments.training.run import Epoch
from tests.experiments.toy import rows_of, save_toy

COMMAND = ["--depth", "1", "--width", "4", "--epochs", "2", "--batch-size", "16"]


def events(path):
    """Reads the events of a file: records of a length, its checksum, the data, their checksum."""
    data, start, found = path.read_bytes(), 0, []
    while start < len(data):
        (size,) = struct.unpack_from("<Q", data, start)
        found.append(Event.FromString(data[start + 12 : start + 12 + size]))
        start += size + 16
    assert start == len(data)
    return found


def scalars(folder):
    """Returns the value by step and name that TensorBoard shows, without purged ones."""
    shown = {}
    for path in sorted(folder.glob("events.out.tfevents.*"), key=lambda path: path.name):
        for event in events(path):
            if event.session_log.status == SessionLog.START:
                shown = {key: x for key, x in shown.items() if key[1] < event.step}
            for value in event.summary.value:
                assert (value.tag, event.step) not in shown
                shown[value.tag, event.step] = value.simple_value
    return shown


@pytest.mark.slow
@pytest.mark.parametrize("command", [["train", "--method", "cwo"], ["compare", "--methods", "cwo"]])
def test_the_curves_are_in_the_event_files(command, tmp_path):
    more = ["--seeds", "1"] if command[0] == "compare" else []
    where = ["--out", str(tmp_path / "out"), "--tensorboard", str(tmp_path / "events")]
    assert main([*command, *more, "--dataset", save_toy(tmp_path), *COMMAND, *where]) == 0
    shown = scalars(tmp_path / "events" / "cwo" / "seed-0")
    rows = rows_of(tmp_path / "out" / "curves.csv")
    wanted = {
        (name, int(row["epoch"])): float(value)
        for row in rows
        for name, value in row.items()
        if name not in ("method", "seed", "epoch")
    }
    assert len(wanted) == 14
    assert shown == pytest.approx(wanted, rel=1e-5)


def test_a_resumed_run_shows_each_epoch_once(tmp_path):
    first, second = (Epoch(n, 1.0 / n, 0.5, 2.0 / n, 0.25, 3.0, 4.0, 0.0) for n in (1, 2))
    for curve in ([first], [first, second]):
        with EventFiles(tmp_path).of("bn+lcw", 3) as log:
            for entry in curve:
                log(entry)
    shown = scalars(tmp_path / "bn+lcw" / "seed-3")
    assert shown["train_loss", 1] == 1.0
    assert shown["test_loss", 2] == 1.0
    assert len(shown) == 14


def test_what_is_not_finite_is_left_out_without_a_warning(tmp_path, caplog):
    with EventFiles(tmp_path).of("none", 0) as log:
        log(Epoch(1, math.nan, math.inf, *[0.5] * 5))
    shown = scalars(tmp_path / "none" / "seed-0")
    assert {name for name, _ in shown} == set(Epoch._fields[3:])
    assert not caplog.records


def test_without_the_flag_nothing_is_written_and_nothing_is_needed(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with EventFiles(None).of("none", 0) as log:
        log(Epoch(1, *[0.5] * 7))
    assert not list(tmp_path.iterdir())


def test_without_the_library_the_error_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(UserError, match=r"--tensorboard needs tensorboardX, .*'\.\[tensorboard\]'"):
        EventFiles(tmp_path / "events")
    assert not (tmp_path / "events").exists()
