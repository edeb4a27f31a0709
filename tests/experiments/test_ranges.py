"""A setting is declared once: its range stands with its type, and everything else follows."""

from dataclasses import dataclass
from typing import get_args, get_type_hints

import pytest
import tyro

from experiments.bench.command import Bench
from experiments.checkpoints.config import config_of
from experiments.commands import Compare, Paper, Train
from experiments.errors import UserError
from experiments.grouped import flat, grouped, said
from experiments.ranges import Count, check_ranges, ranges_of
from experiments.settings import Settings
from experiments.tuning.grid import grid_of

#: What papers set, and nobody else: no flags.
HIDDEN = {"rate_decay", "alpha_dropout", "head_dropout", "norm_at"}


@pytest.mark.parametrize("command", [Compare, Train, Paper, Bench])
def test_every_number_has_a_range_and_its_default_is_in_it(command):
    hints = get_type_hints(command)
    numbers = {name for name, hint in hints.items() if {int, float} & {hint, *get_args(hint)}}
    assert numbers - HIDDEN == set(ranges_of(command))
    check_ranges(command())


@dataclass(frozen=True)
class Warmed(Settings):
    """Training with one more setting, which is one line and its words."""

    warmup: Count = 1
    """The epochs of warmup."""


def test_a_new_setting_is_one_line():
    with pytest.raises(UserError, match=r"--warmup is 0; wanted 1 to .* out, and it is 1"):
        check_ranges(Warmed(warmup=0))
    assert config_of(Warmed(warmup=2))["warmup"] == 2
    assert flat(tyro.cli(grouped(Warmed), args=["--warmup", "3"])) == Warmed(warmup=3)
    assert said(Warmed)["warmup"] == "The epochs of warmup."


def test_what_is_tuned_keeps_to_the_same_ranges():
    with pytest.raises(UserError, match="wanted values, each at least 0 and less than 1"):
        grid_of(["dropout=0.1,1"])
    with pytest.raises(UserError, match="setting to tune"):
        grid_of(["epochs=1"])
