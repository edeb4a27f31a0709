"""Costs of deciding a claim: the command, and GPU hours from `bench papers`."""

from pathlib import Path

from experiments.errors import UserError
from experiments.papers.registry import ITEMS
from experiments.verdicts.claim import Claim
from experiments.verdicts.sides import Row, rows_of

#: The file that ``bench papers`` writes, in the folder of results.
COSTS = "bench/papers.csv"


def decided_by(claim: Claim, folder: Path) -> str:
    """Returns the command at the paper's size with its hours, in words.

    Args:
        claim: the claim to decide.
        folder: the folder of results.
    """
    if not claim.decider:
        return claim.otherwise
    item, cells = claim.decider, claim.deciding
    command = f"`python -m experiments paper {item} --preset full --data-dir DIR`"
    if not cells:
        return f"{command}: {ITEMS[item].presets['full'].cost}"
    table = [row for row in rows_of(folder / COSTS) if row["item"] == item]
    rows = [row for row in table if (row["row"], row["column"]) in cells]
    if len(rows) != len(cells):
        raise UserError(
            f"{folder / COSTS} does not have the cells {sorted(cells)} of {item}, which the "
            f"claim {claim.name} names; run python -m experiments bench papers, or correct them."
        )
    return f"{command}: {_hours(rows)} GPU hours for these rows, {_hours(table)} for the table"


def _hours(rows: list[Row]) -> str:
    """Returns the hours of all seeds, in two digits."""
    hours = sum(float(row["hours"]) * int(row["seeds"]) for row in rows)
    return f"{float(f'{hours:.2g}'):,g}"
