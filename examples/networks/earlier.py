"""Earlier runs with batch normalization, which were scored by running statistics."""

from collections.abc import Iterable
from typing import Any

#: Methods that normalize by the batch, the last one the logits alone.
WITH_STATISTICS = ("bn", "bn quiet", "mimicnorm", "batch normalization")

#: Momentum of the networks' running statistics.
MOMENTUM = 0.9

#: Values of "statistics" in runs of these methods, and in others. Earlier runs have no "statistics"
#: or those of `of_earlier`.
ANEW, NONE = "estimated anew", "none"

#: The share of the updates in which the rate rises, also of runs that do not say so.
WARM_UP = 0.1

Run = dict[str, Any]


def of_new(method: str) -> str:
    """Returns the "statistics" of a run that is trained now."""
    return ANEW if method in WITH_STATISTICS else NONE


def of_earlier(method: str) -> str:
    """Returns the "statistics" of a run that has none in its line."""
    return f"running of momentum {MOMENTUM:g}" if method in WITH_STATISTICS else NONE


def completed(run: Run) -> Run:
    """Returns the run of a whole network with the settings that earlier lines leave out."""
    return {"statistics": of_earlier(run["method"]), "warm_up": WARM_UP, **run}


def is_earlier(run: Run) -> bool:
    """Returns True if the run was scored by running statistics."""
    return run.get("statistics", of_earlier(run["method"])) not in (ANEW, NONE)


def unmixed(runs: Iterable[Run], keys: tuple[str, ...]) -> list[Run]:
    """Returns the runs without earlier ones where a newer one agrees with them in ``keys``.

    Args:
        runs: runs, perhaps of both kinds.
        keys: names of what is one in a cell of a table, such as the network and the method.
    """
    runs = list(runs)
    cell = lambda run: tuple(str(run[key]) for key in keys)  # noqa: E731
    newer = {cell(run) for run in runs if not is_earlier(run)}
    return [run for run in runs if not is_earlier(run) or cell(run) not in newer]
