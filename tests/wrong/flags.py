"""Flags out of their range: the command, the flag, what is given, what is wanted, the default."""

from dataclasses import fields, is_dataclass, replace
from typing import Any

from experiments.bench.command import Bench
from experiments.cli import run
from experiments.commands import Compare, Paper, Report, Train
from tests.wrong.entry import Walk, Wrong

INF, NAN = float("inf"), float("nan")
COUNT = "1 to 2,147,483,647"
STRENGTH = "0 to 1,000"

RANGES: list[tuple[Any, str, Any, str, str | None]] = [
    (Compare(), "depth", 0, "1 to 1,000", "3"),
    (Compare(), "depth", 10**6, "1 to 1,000", "3"),
    (Compare(), "width", 0, "1 to 1,048,576", "256"),
    (Compare(), "width", 10**9, "1 to 1,048,576", "256"),
    (Compare(), "width", 10**20, "1 to 1,048,576", "256"),
    (Compare(), "channels", -1, "1 to 65,536", "16"),
    (Compare(), "channels", 10**9, "1 to 65,536", "16"),
    (Compare(), "epochs", 0, "1 to 1,000,000", "10"),
    (Compare(), "epochs", 10**30, "1 to 1,000,000", "10"),
    (Compare(), "batch_size", 0, COUNT, "64"),
    (Compare(), "learning_rate", 0.0, "more than 0 and at most 3e+38", "0.05"),
    (Compare(), "learning_rate", 1e39, "more than 0 and at most 3e+38", "0.05"),
    (Compare(), "learning_rate", NAN, "more than 0 and at most 3e+38", "0.05"),
    (Compare(), "learning_rate", INF, "more than 0 and at most 3e+38", "0.05"),
    (Compare(), "weight_decay", -1.0, STRENGTH, "0.001"),
    (Compare(), "weight_decay", INF, STRENGTH, "0.001"),
    (Compare(), "ghost_groups", 0, COUNT, "1"),
    (Compare(), "accumulate", 0, COUNT, "1"),
    (Compare(), "dropout", 1.0, "at least 0 and less than 1", None),
    (Compare(), "dropout", 1.5, "at least 0 and less than 1", None),
    (Compare(), "dropout", NAN, "at least 0 and less than 1", None),
    (Compare(), "noise", -1.0, STRENGTH, None),
    (Compare(), "noise", INF, STRENGTH, None),
    (Compare(), "sample_size", 1, "2 to 2,147,483,647", None),
    (Compare(), "vcl_weight", INF, STRENGTH, None),
    (Compare(), "vcl_clip", 0.0, "more than 0 and at most 1,000,000", None),
    (Compare(), "refresh_every", 0, COUNT, None),
    (Compare(), "population_rows", -5, COUNT, None),
    (Compare(), "probes", 0, COUNT, None),
    (Compare(), "decay_times", -1.0, STRENGTH, None),
    (Compare(), "train_rows", 0, COUNT, None),
    (Compare(), "test_rows", 0, COUNT, None),
    (Compare(), "processes", 0, COUNT, None),
    (Compare(), "process_id", -1, "0 to 2,147,483,647", None),
    (Compare(), "seeds", 0, "1 to 10,000", "3"),
    (Compare(), "seeds", 10**12, "1 to 10,000", "3"),
    (Train(), "seed", -1, "0 to 4,294,967,295", "0"),
    (Train(), "seed", 2**32, "0 to 4,294,967,295", "0"),
    (Train(), "checkpoint_every", 0, COUNT, "1"),
    (Train(), "checkpoint_seconds", -1.0, "0 to 1,000,000", "0.0"),
    (Train(), "keep", -1, COUNT, "3"),
    (Train(), "resume_from", 0, COUNT, None),
    (Bench("step"), "repeats", 0, "1 to 1,000,000", "20"),
    (Bench("input"), "enlarged", -1, "0 to 1,000,000", "0"),
    (Bench("input"), "side", 0, "1 to 4,096", "224"),
    (Bench("input"), "steps", 0, COUNT, "20"),
    (Paper("cwo/tab1"), "gib", 0.0, "more than 0 and at most 1,048,576", "8.0"),
    (Bench("lcw"), "repeats", -1, "1 to 1,000,000", "20"),
    (Bench("scaling"), "batch_size", -1, COUNT, "128"),
    (Bench("throughput"), "width", 10**20, "1 to 1,048,576", "256"),
    (Paper("bn/fig1a"), "jobs", 0, "1 to 1,024", "1"),
    (Paper("bn/fig1a"), "jobs", -2, "1 to 1,024", "1"),
]

DEFAULT_METHODS = Compare().methods
BLANKS: list[tuple[Any, str, str, str | None]] = [
    (Compare(), "methods", "", DEFAULT_METHODS),
    (Compare(), "methods", " , ", DEFAULT_METHODS),
    (Compare(), "dataset", "", "digits"),
    (Compare(), "activation", " ", "relu"),
    (Compare(), "augment", "", "none"),
    (Train(), "method", "", "cwo"),
    (Train(), "checkpoint_dir", "", None),
    (Bench("step"), "methods", "", "none,cwo,bn"),
]


def with_flag(command: Any, name: str, value: Any) -> Any:
    """The command with that flag, which may be one of a group's."""
    for each in fields(command):
        group = getattr(command, each.name)
        if is_dataclass(group) and hasattr(group, name):
            return replace(command, **{each.name: replace(group, **{name: value})})
    return replace(command, **{name: value})


def entry(
    command: Any, name: str, value: Any, shown: str, wanted: str, default: str | None
) -> Wrong:
    flag = f"--{name.replace('_', '-')}"
    return Wrong(
        lambda at: run(with_flag(replace(command, out=at), name, value), ""),
        f"{flag} is {shown}; ",
        f"wanted {wanted}: ",
        "leave the flag out." if default is None else f"leave the flag out, and it is {default}.",
    )


OTHERS: Walk = {
    "no such method": Wrong(
        lambda at: run(Compare(methods="bn,cvo", out=at), ""),
        "there is no method 'cvo'",
        "There are none, bn",
        "did you mean 'cwo'?",
    ),
    "two methods for train": Wrong(
        lambda at: run(Train(method="bn,cwo", out=at), ""),
        "--method is 'bn,cwo'",
        "wanted one name",
        "compare takes several",
    ),
    "no such item": Wrong(
        lambda at: run(Paper("cwo/tab11", out=at), ""),
        "there is no paper item 'cwo/tab11'",
        "There are vcl/fig1",
        "did you mean 'cwo/tab1'",
    ),
    "no such benchmark": Wrong(
        lambda at: run(Bench("stop", out=at), ""),
        "there is no benchmark 'stop'",
        "There are step",
        "did you mean 'step'",
    ),
    "resuming from nowhere": Wrong(
        lambda at: run(Train(resume=True, out=at), ""),
        "--resume needs a folder",
        "wanted --checkpoint-dir",
        "give the one to resume from",
    ),
    "no folder of data": Wrong(
        lambda at: run(Paper("cwo/tab1", data_dir=at / "absent", out=at), ""),
        "absent is not a folder",
        "--data-dir",
        "give the folder of the data",
    ),
    "no reports": Wrong(
        lambda at: run(Report(at), ""),
        "holds no report",
        "wanted PAPER/ITEM/report.md",
        "give the folder of reports as --folder",
    ),
}

FLAGS: Walk = {
    **{
        f"{type(command).__name__.lower()} {name} {value}": entry(
            command, name, value, str(value), wanted, default
        )
        for command, name, value, wanted, default in RANGES
    },
    **{
        f"{type(command).__name__.lower()} {name} {value!r}": entry(
            command, name, value, repr(value), "a name or a path", default
        )
        for command, name, value, default in BLANKS
    },
    **OTHERS,
}
