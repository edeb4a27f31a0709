"""Settings: a declaration with type and range makes the flag, the check and the tuning."""

from dataclasses import dataclass, field
from typing import get_args, get_type_hints

import pytest
import tyro
from tyro.conf import OmitArgPrefixes

from experiments.bench.command import Bench
from experiments.commands import Compare, Paper, Train
from experiments.config import Training
from experiments.errors import UserError
from experiments.ranges import Count, check_ranges, ranges_of
from experiments.runs.spec import Spec
from experiments.settings import Settings, Trains

#: What papers set, and nobody else: no flags.
HIDDEN = {"rate_decay", "alpha_dropout", "head_dropout", "norm_at"}


@pytest.mark.parametrize("command", [Compare, Train, Settings, Paper, Bench])
def test_every_number_has_a_range_and_its_default_is_in_it(command):
    hints = get_type_hints(command)
    numbers = {name for name, hint in hints.items() if {int, float} & {hint, *get_args(hint)}}
    assert numbers - HIDDEN == set(ranges_of(command))
    check_ranges(command())


@dataclass(frozen=True)
class Warmed(Training):
    """Training with one more setting, declared in one line."""

    warmup: Count = 1
    """The epochs of warmup."""


@dataclass(frozen=True)
class WarmedSettings(Warmed, Settings):
    """Settings that include the new one."""


@dataclass(frozen=True)
class WarmedCommand(Trains):
    """A command with the new setting in its group."""

    training: OmitArgPrefixes[Warmed] = field(default_factory=Warmed)


def test_a_new_setting_is_one_line():
    with pytest.raises(UserError, match=r"--warmup is 0; wanted 1 to .* out, and it is 1"):
        check_ranges(Warmed(warmup=0))
    assert Spec("bn", 0, WarmedSettings(warmup=2)).described["warmup"] == 2
    assert tyro.cli(WarmedCommand, args=["--warmup", "3"]).training == Warmed(warmup=3)
