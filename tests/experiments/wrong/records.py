"""Damaged records of earlier runs, invalid folders of checkpoints, foreign datasets."""

import contextlib
import json
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import jax.numpy as jnp

from experiments.cli import run
from experiments.commands import Train
from experiments.config import Config
from experiments.data.load import load
from experiments.papers.collected import collect
from experiments.papers.items import ITEMS
from experiments.runs.checkpoint_settings import CheckpointSettings
from experiments.runs.checkpoints import Checkpoints
from experiments.runs.keeper import keeping
from experiments.runs.spec import Spec
from experiments.runs.store import Store
from experiments.training.run import Epoch, Run
from tests.experiments.wrong import Walk, Wrong

EPOCH = [1, 0.5, 0.5, 0.5, 0.5]
HISTORY = {"curve": [EPOCH], "seconds": [1.0]}


def resumed(
    history: object, config: object = None, versions: object = None
) -> Callable[[Path], object]:
    """Resumes from a checkpoint of one epoch that has this record."""

    def call(at: Path) -> object:
        record = {"config": {} if config is None else config, "history": history}
        record |= {} if versions is None else {"versions": versions}
        with Checkpoints("saved") as checkpoints:
            checkpoints.save(1, {"x": jnp.zeros(1)}, record)
        with keeping(CheckpointSettings("saved", resume=True), {}, 2):
            return None

    return call


def second(at: Path) -> object:
    with keeping(CheckpointSettings("saved"), {}, 2), keeping(CheckpointSettings("saved"), {}, 2):
        return None


def trained_second(at: Path) -> object:
    with keeping(CheckpointSettings("saved"), {}, 2):
        return run(Train(out=at / "out", checkpoints=CheckpointSettings("saved")), "")


def stored(**changes: object) -> Callable[[Path], object]:
    """Looks for a run in a store of one run with changed columns."""

    def call(at: Path) -> object:
        spec = Spec("bn", 0, Config())
        Store(at).add(spec, Run("bn", 0, [Epoch(1, 0.5, 0.5, 0.5, 0.5)], 1.0, 9, None))
        with contextlib.closing(sqlite3.connect(at / "runs.sqlite")) as database:
            for name, value in changes.items():
                database.execute(f"UPDATE runs SET {name} = ?", (value,))
            database.commit()
        return Store(at).finished([spec])

    return call


def results(**changes: object) -> str:
    usual = {
        "method": "bn",
        "seed": 0,
        "step_ms": 1.0,
        "parameters": 9,
        "outcome": "",
        "scores": {},
    }
    return json.dumps({"scores": {}} | usual | changes)


def no_store(content: bytes, add: bool = False) -> Callable[[Path], object]:
    """Looks for a run, or stores one, in a file that is not a store and must not change."""

    def call(at: Path) -> object:
        (at / "runs.sqlite").write_bytes(content)
        spec, run = Spec("bn", 0, Config()), Run("bn", 0, [Epoch(*EPOCH)], 1.0, 9, None)
        try:
            return Store(at).add(spec, run) if add else Store(at).finished([spec])
        finally:
            assert (at / "runs.sqlite").read_bytes() == content

    return call


def report(at: Path) -> object:
    place = at / "cwo" / "tab1"
    place.mkdir(parents=True)
    (place / "report.md").write_bytes(b"\xff\xfe\x00")
    return collect(list(ITEMS.values()), at, at / "report.md")


def prepared(features: str, name: str = "mine") -> Callable[[Path], object]:
    """Makes a folder of prepared datasets, in which this one has these features."""

    def call(at: Path) -> object:
        (at / "data" / "mine" / "1.0.0").mkdir(parents=True)
        (at / "data" / "mine" / "1.0.0" / "features.json").write_text(features)
        with mock.patch.dict(os.environ, {"TFDS_DATA_DIR": str(at / "data")}):
            return load(name, 0)

    return call


RECORDS: Walk = {
    **{
        f"a history of {history!r}": Wrong(resumed(history), ("saved", "--checkpoint-dir"))
        for history in (
            [],
            {"curve": [EPOCH[:3]], "seconds": [1.0]},
            {"curve": [["1", *EPOCH[1:]]], "seconds": [1.0]},
            {"curve": [EPOCH, EPOCH], "seconds": [1.0, 1.0]},
            {"curve": [[1, 0.5, 0.5, 0.5, 8.8359]], "seconds": [1.0]},
            {"curve": [[2, *EPOCH[1:]]], "seconds": [1.0]},
            {"curve": [EPOCH], "seconds": [-1.0]},
        )
    },
    "a config of 3": Wrong(resumed(HISTORY, 3), ("saved", "--checkpoint-dir")),
    "versions of text": Wrong(
        resumed(HISTORY, versions="x"), ("saved", "not one of a training run")
    ),
    "a config of another run": Wrong(
        resumed(HISTORY, {"width": 3}), ("width 3 there", "--checkpoint-dir")
    ),
    "two runs in one folder": Wrong(second, ("saved", "another run", "--checkpoint-dir")),
    "two commands in one folder": Wrong(
        trained_second, ("saved", "another run", "--checkpoint-dir")
    ),
    **{
        f"checkpoints in {place!r}": Wrong(
            lambda at, place=place: Checkpoints(place), (f"--checkpoint-dir is {place!r}",)
        )
        for place in ("foo://bucket/run", "://", " ")
    },
    "a file for a folder of checkpoints": Wrong(
        lambda at: ((at / "f").write_text(""), Checkpoints("f/below")),
        ("f/below", "--checkpoint-dir"),
    ),
    **{
        f"a store with {name}": Wrong(call, ("runs.sqlite", "remove it"))
        for name, call in [
            ("bytes of another program", no_store(b"x" * 5000)),
            ("bytes of another program, to write to", no_store(b"x" * 5000, add=True)),
            ("its head alone", no_store(b"SQLite format 3\0" + b"\xff" * 5000)),
            ("no JSON", stored(results="{")),
            ("no method", stored(results="{}")),
            ("a seed of text", stored(results=results(seed="0"))),
            ("no epochs", stored(curve="[]")),
            ("half an epoch", stored(curve="[[1, 0.5]]")),
            ("a loss of text", stored(curve='[[1, "a", 0.5, 0.5, 0.5]]')),
        ]
    },
    "a report that is not text": Wrong(report, ("tab1/report.md",)),
    "features that are no JSON": Wrong(prepared("{"), ("mine", "t.data_source('mine')")),
    "features of an unknown class": Wrong(
        prepared('{"pythonClassName": "absent.Thing"}'), ("the TensorFlow dataset mine",)
    ),
    "a dataset of a registry": Wrong(prepared("{}", "kaggle:a/b"), ("'kaggle:a/b'",)),
    "a dataset that is not prepared": Wrong(
        prepared("{}", "mnist"), ("mnist", "train and test", "t.data_source('mnist')")
    ),
}
