"""Damaged records of earlier runs, places of checkpoints, and prepared datasets of others."""

import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from unittest import mock

import jax.numpy as jnp

from experiments.checkpoints.checkpoints import Checkpoints
from experiments.checkpoints.keeper import CheckpointSettings, keeping
from experiments.cli import run
from experiments.commands import Report, Train
from experiments.data.load import load
from experiments.kept import read_runs
from experiments.papers.collected import collect
from experiments.papers.grid import Protocol
from experiments.papers.registry import ITEMS
from tests.wrong.entry import Walk, Wrong

EPOCH = [1, 0.5, 0.5, 0.5, 0.5]
HISTORY = {"curve": [EPOCH], "seconds": [1.0]}
DAMAGED = "damaged or of another program"
WROTE = "wanted one that train wrote"
NONE_BEFORE = "take another --checkpoint-dir"


def resumed(history: object, config: object = None) -> Callable[[Path], object]:
    """Goes on from a checkpoint of one epoch that has this record."""

    def call(at: Path) -> object:
        record = {"config": {} if config is None else config, "history": history}
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
        sizes = Train(depth=1, width=2, epochs=1, out=at / "out", checkpoint_dir="saved")
        return run(sizes, "")


RUN = {"cell": "a", "seed": 0, "method": "bn", "step_ms": 1.0, "parameters": 9, "curve": [EPOCH]}
PROTOCOL = json.loads(json.dumps(asdict(Protocol())))
EARLIER = "wanted what an earlier call wrote"
REMOVE = "remove it, and its runs are trained again"


def kept(content: object) -> Callable[[Path], object]:
    """Goes on from finished runs: bytes as they are, or JSON."""

    def call(at: Path) -> object:
        written = content if isinstance(content, bytes) else json.dumps(content).encode()
        (at / "runs.json").write_bytes(written)
        return read_runs(Path("runs.json"), PROTOCOL)

    return call


def runs(**changes: object) -> dict[str, object]:
    return {"protocol": PROTOCOL, "runs": [RUN | changes]}


def report(at: Path) -> object:
    place = at / "cwo" / "tab1"
    place.mkdir(parents=True)
    (place / "report.md").write_bytes(b"\xff\xfe\x00")
    return collect(list(ITEMS.values()), at, at / "report.md")


OWN = "tensorflow_datasets.core.features."


def prepared(features: object, name: str = "evil") -> Callable[[Path], object]:
    """A prepared dataset with these features, and a module that says that it was imported."""

    def call(at: Path) -> object:
        (at / "imported.py").write_text("raise SystemExit('imported')\n")
        place = at / "data" / "evil" / "1.0.0"
        place.mkdir(parents=True)
        text = features if isinstance(features, str) else json.dumps(features)
        (place / "features.json").write_text(text)
        found = mock.patch.object(sys, "path", [str(at), *sys.path])
        with found, mock.patch.dict(os.environ, {"TFDS_DATA_DIR": str(at / "data")}):
            return load(name, 0)

    return call


IMPORTED = "names the class 'imported.Thing', which would be imported"
OWN_ALONE = "wanted features of TensorFlow Datasets alone"
NPZ = "save it as FILE.npz"
NESTED = json.dumps({"type": "imported.Thing", "content": "{}"})

RECORDS: Walk = {
    **{
        f"a history of {history!r}": Wrong(resumed(history), DAMAGED, WROTE, NONE_BEFORE)
        for history in (
            {},
            [],
            3,
            {"curve": [EPOCH[:3]], "seconds": [1.0]},
            {"curve": [["1", *EPOCH[1:]]], "seconds": [1.0]},
            {"curve": [EPOCH, EPOCH], "seconds": [1.0, 1.0]},
        )
    },
    "a config of 3": Wrong(resumed(HISTORY, 3), DAMAGED, WROTE, NONE_BEFORE),
    "a config of another run": Wrong(
        resumed(HISTORY, {"width": 3}),
        "is of other settings: width 3 there",
        "not a setting here",
        "Give the same, or another --checkpoint-dir",
    ),
    "two runs in one folder": Wrong(
        second, "another run writes", "wanted one run a folder", "give another --checkpoint-dir"
    ),
    "two commands in one folder": Wrong(
        trained_second, "another run writes", "wanted one run a folder", "wait until it has ended"
    ),
    **{
        f"checkpoints in {place!r}": Wrong(
            lambda at, place=place: Checkpoints(place),
            f"--checkpoint-dir is {place!r}",
            "wanted a local folder, or one of gs://..., s3://...",
            "leave it out for no checkpoints",
        )
        for place in ("foo://bucket/run", "://", "file:///run", " ")
    },
    "a file for a folder of checkpoints": Wrong(
        lambda at: ((at / "f").write_text(""), Checkpoints("f/below")),
        "cannot write checkpoints to",
        "free it",
        "change --checkpoint-dir",
    ),
    **{
        f"runs.json with {name}": Wrong(
            kept(content), f"cannot read runs.json: {got}", EARLIER, REMOVE
        )
        for name, content, got in [
            ("no JSON", b"{", "Expecting property name"),
            ("no text", b"\xff\xfe", "'utf-8' codec"),
            ("nothing", b"", "Expecting value"),
            ("a list", [], "list indices"),
            ("a number", 3, "'int' object"),
            ("a protocol of 3", {"protocol": 3, "runs": []}, "'int' object"),
            ("runs of 3", {"protocol": PROTOCOL, "runs": 3}, ""),
            ("a run of 3", {"protocol": PROTOCOL, "runs": [3]}, "'int' object"),
            ("no method", {"protocol": PROTOCOL, "runs": [{"cell": "a"}]}, "'seed'"),
            ("a seed of text", runs(seed="0"), "its seed is '0', not int"),
            ("no epochs", runs(curve=[]), "a run in it has no epoch"),
            ("half an epoch", runs(curve=[EPOCH[:2]]), ""),
            ("a loss of text", runs(curve=[[1, "a", 0.5, 0.5, 0.5]]), "its train_loss is 'a'"),
        ]
    },
    "runs of another protocol": Wrong(
        kept({"protocol": PROTOCOL | {"epochs": 3}, "runs": []}),
        "holds runs of another protocol",
        "epochs differ",
        "give another --out, or remove it",
    ),
    "a report that is not text": Wrong(
        report, "tab1/report.md: 'utf-8' codec", "wanted a report", "run its item again"
    ),
    "a folder that is none": Wrong(
        lambda at: run(Report(at / "absent"), ""), "holds no report", "wanted PAPER", "--folder"
    ),
    "a foreign class": Wrong(
        prepared({"pythonClassName": "imported.Thing"}), IMPORTED, OWN_ALONE, NPZ
    ),
    "a foreign class inside": Wrong(
        prepared(
            {
                "pythonClassName": f"{OWN}features_dict.FeaturesDict",
                "featuresDict": {"features": {"type": {"python_class_name": "imported.Thing"}}},
            }
        ),
        IMPORTED,
        OWN_ALONE,
        NPZ,
    ),
    "a foreign class, as it was written once": Wrong(
        prepared({"type": "imported.Thing", "content": {}}), IMPORTED, OWN_ALONE, NPZ
    ),
    "a foreign class in text": Wrong(
        prepared({"pythonClassName": f"{OWN}x.X", "jsonFeature": {"json": NESTED}}),
        IMPORTED,
        OWN_ALONE,
        NPZ,
    ),
    "a foreign class, overwritten": Wrong(
        prepared(f'{{"type": "imported.Thing", "type": "{OWN}x.X"}}'), IMPORTED, OWN_ALONE, NPZ
    ),
    "features that are no JSON": Wrong(
        prepared("{"), "features.json", "wanted the features as JSON", "prepare the dataset anew"
    ),
    "features of an unknown class": Wrong(
        prepared({"pythonClassName": f"{OWN}x.X"}),
        "cannot read the TensorFlow dataset in",
        "wanted what TensorFlow Datasets wrote",
        "t.data_source('evil')",
    ),
    **{
        f"the registry of {name}": Wrong(
            lambda at, name=name: load(name, 0),
            f"is of the registry '{name.partition(':')[0]}', whose loader downloads",
            "wanted the name of a TensorFlow dataset that is prepared",
            "give one without a colon",
        )
        for name in ("huggingface:mnist", "kaggle:a/b", "user:set/config:1.0.0")
    },
    "a dataset that is not prepared": Wrong(
        prepared({}, "mnist"),
        "mnist needs splits train and test",
        "there are none in",
        "prepares it",
    ),
}
