"""The least and the largest value of each numeric flag."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from experiments.errors import UserError

_COUNTS = (
    *("train_rows", "test_rows", "resize", "batch_size", "ghost_groups", "accumulate", "clients"),
    *("refresh_every", "population_rows", "probes", "processes", "checkpoint_every"),
    *("keep", "resume_from", "steps", "rows_per_device", "tune_seeds"),
)
_STRENGTHS = ("weight_decay", "noise", "clip", "vcl_weight", "decay_times")

#: The least and the largest value of each numeric flag of any command; beyond lie typing errors.
RANGES: Mapping[str, tuple[float, float]] = {
    **dict.fromkeys(_COUNTS, (1, 2**31 - 1)),
    **dict.fromkeys(_STRENGTHS, (0, 1000)),
    **dict.fromkeys(("epochs", "tune_epochs", "repeats"), (1, 10**6)),
    **{"depth": (1, 1000), "width": (1, 2**20), "channels": (1, 2**16), "side": (1, 2**12)},
    **{"sample_size": (2, 2**31 - 1), "process_id": (0, 2**31 - 1), "seed": (0, 2**32 - 1)},
    **{"learning_rate": (1e-30, 3e38), "clip_layers": (1e-30, 1e30), "epsilon": (1e-6, 1e6)},
    **{"dropout": (0, 0.999), "checkpoint_seconds": (0, 10**6), "seeds": (1, 10**4)},
    **{"jobs": (1, 1024), "join_timeout": (1, 10**6)},
    **dict.fromkeys(("rate_decay", "warm_up"), (0, 0.999)),
}


def check_ranges(flags: Any, defaults: Any) -> None:
    """Raises UserError for the first setting that is out of its range, or blank.

    Args:
        flags: a dataclass, whose fields are settings or dataclasses of settings. None stands for a
            flag left out; text that is empty by default may be empty.
        defaults: the settings of a command without flags.
    """
    for field in fields(flags):
        value, default = (getattr(each, field.name) for each in (flags, defaults))
        if is_dataclass(value):
            check_ranges(value, default)
        elif isinstance(value, str) and default != "" and not value.strip(" ,"):
            raise _wrong(field.name, repr(value), "a name or a path", default)
        elif (
            field.name in RANGES
            and value is not None
            and (wanted := missed_range(field.name, value))
        ):
            raise _wrong(field.name, value, wanted, default)


def missed_range(name: str, value: float) -> str:
    """Returns the range of a setting in words if a value is outside, and else an empty text."""
    least, most = RANGES.get(name, (float("-inf"), 2**63))
    return "" if least <= value <= most else f"{least:,} to {most:,}"  # NaN is in no range.


def _wrong(name: str, value: object, wanted: str, default: object) -> UserError:
    usual = "" if default is None else f", and it is {default}"
    return UserError(
        f"--{name.replace('_', '-')} is {value}; wanted {wanted}: give such a value, or leave the "
        f"flag out{usual}."
    )
