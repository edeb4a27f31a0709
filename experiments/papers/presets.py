"""The three sizes of a table of trainings."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from experiments.papers.grid import Protocol
from experiments.papers.item import Preset, Presets

SMOKE_LABEL = (
    "one epoch of a few hundred enlarged digits, narrow networks, one seed: it shows that the item "
    "runs, and nothing else"
)

#: The fields that both reduced presets of image networks change, then those of smoke, and of cpu.
_SMALL: dict[str, Any] = {"side": 0, "last": 1, "rate_decay": 0.0, "held_out": 0, "batch_size": 64}
SMOKE = _SMALL | {
    "epochs": 1,
    "rows": 256,
    "test_rows": 64,
    "seeds": 1,
    "channels": 4,
    "rate_schedule": (),
}
CPU = _SMALL | {"epochs": 10, "rows": 2000, "test_rows": 2000, "seeds": 3, "channels": 16}


def table_presets(
    full: Protocol, smoke: Mapping[str, Any], cpu: Mapping[str, Any], cpu_cost: str, full_cost: str
) -> Presets:
    """Makes the presets of a table from the protocol of the paper.

    Args:
        full: the paper's protocol.
        smoke: the fields that smoke changes besides `SMOKE`.
        cpu: the fields that cpu changes besides `CPU`.
        cpu_cost: the cost of cpu in words.
        full_cost: the cost of full in words.
    """
    reduced = full.changed(**(CPU | dict(cpu)))
    return {
        "smoke": Preset(full.changed(**(SMOKE | dict(smoke))), "30 s on 2 CPU cores", SMOKE_LABEL),
        "cpu": Preset(reduced, cpu_cost, _differences(full, reduced)),
        "full": Preset(full, full_cost),
    }


def _differences(full: Protocol, reduced: Protocol) -> str:
    """Lists every field in which a protocol differs from the paper's, with its value."""
    ours = asdict(reduced)
    return ", ".join(_shown(n, ours[n]) for n, paper in asdict(full).items() if ours[n] != paper)


def _shown(name: str, value: Any) -> str:
    if name in ("rate_schedule", "rate_decay") and not value:
        return "half a cosine for the learning rate"
    return f"{name.replace('_', ' ')} {'; '.join(value) if isinstance(value, tuple) else value}"
