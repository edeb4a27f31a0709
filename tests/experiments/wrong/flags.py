"""Flags out of their range, and unknown names."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments.cli import run
from experiments.commands import Bench, Compare, Paper, Report, Train
from experiments.config import Config, Workers
from experiments.runs.checkpoint_settings import CheckpointSettings
from tests.experiments.toy import save_toy
from tests.experiments.wrong import Walk, Wrong

#: Networks of a user.
OWN = Path(__file__).parents[1] / "own_network.py"

#: One of each range and of each command: `test_wrong_input.py` sees that all numbers have one.
VALUES: list[tuple[Any, str, Any]] = [
    (Compare(), "depth", 0),
    (Compare(), "width", 10**20),
    (Compare(), "channels", -1),
    (Compare(), "epochs", 10**30),
    (Compare(), "batch_size", 0),
    (Compare(), "learning_rate", 0.0),
    (Compare(), "learning_rate", float("nan")),
    (Compare(), "weight_decay", float("inf")),
    (Compare(), "dropout", 1.0),
    (Compare(), "noise", -1.0),
    (Compare(), "sample_size", 1),
    (Compare(), "train_rows", 0),
    (Compare(), "process_id", -1),
    (Compare(), "seeds", 10**12),
    (Train(), "seed", 2**32),
    (Train(), "checkpoint_seconds", -1.0),
    (Bench("step"), "repeats", 0),
    (Bench("input"), "side", 0),
    (Paper("bn/fig1a"), "jobs", -2),
    (Compare(), "methods", " , "),
    (Compare(), "dataset", ""),
    (Train(), "method", ""),
    (Train(), "checkpoint_dir", ""),
]


def with_out(command: Any, at: Path, **changes: Any) -> object:
    return run(replace(command, out=at, **changes), "")


def flag(command: Any, name: str, value: Any) -> Wrong:
    shown = repr(value) if isinstance(value, str) else str(value)
    records = {"config": Config, "checkpoints": CheckpointSettings, "workers": Workers}
    place = next((place for place, record in records.items() if hasattr(record(), name)), "")
    default = getattr(getattr(command, place) if place else command, name)
    changes = {place: records[place](**{name: value})} if place else {name: value}
    left_out = "leave the flag out" if default is None else f"and it is {default}."
    named = f"--{name.replace('_', '-')} is {shown}; ", left_out
    return Wrong(lambda at: with_out(command, at, **changes), named)


def own_network(name: str, *named: str, methods: str = "none") -> Wrong:
    """A comparison of a network of the user's own, FILE:NAME, on rows of six features."""
    model = name if ":" in name else f"{OWN}:{name}"

    def call(at: Path) -> object:
        config = Config(model=model, dataset=save_toy(at))
        return with_out(Compare(methods=methods, config=config), at)

    return Wrong(call, named)


def on(dataset: str, *named: str, method: str = "none", **changes: Any) -> Wrong:
    """A training on a bundled dataset."""

    def call(at: Path) -> object:
        config = Config(dataset=dataset, **({"batch_size": 16} | changes))
        return with_out(Train(method=method, config=config), at)

    return Wrong(call, named)


FLAGS: Walk = {
    **{
        f"{type(command).__name__.lower()} {name} {value!r}": flag(command, name, value)
        for command, name, value in VALUES
    },
    "no such method": Wrong(
        lambda at: with_out(Compare(methods="bn,cvo"), at), ("'cvo'", "'cwo'", "none, bn")
    ),
    "two methods for train": Wrong(
        lambda at: with_out(Train(method="bn,cwo"), at), ("--method is 'bn,cwo'", "compare")
    ),
    "no such item": Wrong(
        lambda at: with_out(Paper("cwo/tab11"), at), ("'cwo/tab11'", "'cwo/tab1'", "vcl/fig1")
    ),
    "no such benchmark": Wrong(
        lambda at: with_out(Bench("stop"), at), ("'stop'", "'step'", "compiled")
    ),
    "pictures of no folder": Wrong(
        lambda at: with_out(Bench("input"), at), ("bench input", "--data-dir")
    ),
    "flags before bench's compiled": Wrong(
        lambda at: with_out(Bench("compiled"), at), ("bench compiled", "behind")
    ),
    "resuming from nowhere": Wrong(
        lambda at: with_out(Train(checkpoints=CheckpointSettings(resume=True)), at),
        ("--resume", "--checkpoint-dir"),
    ),
    "no folder of data": Wrong(
        lambda at: with_out(Paper("cwo/tab1", data_dir=at / "absent"), at),
        ("absent", "--data-dir"),
    ),
    "no file of a network": own_network("absent.py:Net", "'absent.py'", "FILE.py:NAME"),
    "no Python file": own_network("net.txt:Net", "'net.txt'", "FILE.py:NAME"),
    "no such network in the file": own_network("Residul", "'Residul'", "'Residual'", "plain"),
    "a network without bn": own_network("plain", "plain has no BatchNorm", "none", methods="bn"),
    "a network that is no module": own_network("no_module", "function", "flax.nnx.Module"),
    "a network of another shape": own_network("one_logit_more", "(2, 4)", "(2, 3)"),
    "a network without a classifier": own_network(
        "no_classifier", "layers/0/kernel", "6 units", "3 classes", methods="lcw"
    ),
    "a method with layers of its own": own_network("Residual", "'ln'", "none, bn", methods="ln"),
    "label maps for a model of images": on("shapes", "cnn9 has logits", "unet", model="cnn9"),
    "label maps for rows": on("shapes", "mlp has logits", "FILE.py:NAME", model="mlp"),
    "one label a row for a model of pixels": on("digits", "unet", "--dataset shapes", model="unet"),
    "tokens for a model of pixels": on("python", "tokens", "unet", model="unet"),
    "label maps that an augmentation leaves": on("shapes", "--augment is flip", augment="flip"),
    "label maps with holes": on("shapes", "leave out --augment", augment="crop-flip-cutout"),
    "label maps by clients": on("shapes", "--clients", "one label", clients=2),
    "eight rows for a loss over ten": on("shapes", "vcl", method="vcl", batch_size=8),
    "logits of images for label maps": on(
        "shapes", "(2, 3)", "(2, 32, 32, 3)", model=f"{OWN}:Average"
    ),
    "no reports": Wrong(
        lambda at: run(Report(at / "absent"), ""), ("absent", "PAPER/ITEM/report.md", "--folder")
    ),
}
