"""The figures of docs/evidence/baselines.md are the defaults of the code."""

import inspect
import re

import pytest

from experiments.cli import _parsed
from experiments.config import Config
from experiments.methods.method import Method
from experiments.methods.optimizer import MOMENTUM
from experiments.methods.own_network import QuietBranches
from experiments.methods.reparametrized import INITIAL_ROWS, Initialized, Reparametrized
from experiments.methods.rivals.adaptive_clipping import LEAST_NORM, AdaptivelyClipped
from experiments.methods.statistics import ROWS
from experiments.methods.table import METHODS
from experiments.models.group_norm import EPSILON, GROUP_VALUES, GROUPS, LAYER_VALUES
from jaxnorm import WeightNormalized, WeightStandardized, data_dependent_init
from jaxnorm.nnx import BatchNorm
from tests.programs import ROOT

PAGE = (ROOT / "docs" / "evidence" / "baselines.md").read_text(encoding="utf-8")
BATCH_NORM = inspect.signature(BatchNorm.__init__).parameters


def rows_of(title: str) -> dict[str, list[str]]:
    """Returns the cells after the first of a section's table, by the first."""
    section = re.search(rf"^## {re.escape(title)}.*?(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    assert section is not None, title
    table = [line for line in section[0].splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    return {first: rest for first, *rest in cells[2:]}


def here(code: str) -> dict[str, str]:
    """Returns the cells of the column "here" of a baseline."""
    title = next(line[3:] for line in PAGE.splitlines() if line.startswith(f"## {code}:"))
    return {name: cells[0] for name, cells in rows_of(title).items()}


@pytest.fixture(scope="module")
def shared() -> dict[str, list[str]]:
    return rows_of("What all methods get")


def test_what_all_methods_get(shared: dict[str, list[str]]) -> None:
    config = Config()
    assert shared["optimizer"][0] == f"{config.optimizer.upper()}, momentum of {MOMENTUM:g}"
    assert shared["rate"][0].startswith(f"{config.learning_rate:g} unless `--tune`")
    assert shared["decay"][0].startswith(f"{config.weight_decay:g} on kernels; none on scales")
    assert shared["batch size"][0] == f"{config.batch_size}"
    assert (config.rate_schedule, config.rate_decay) == ((), 0.0)  # half a cosine


def test_what_whole_networks_get(shared: dict[str, list[str]]) -> None:
    file = ROOT / "experiments" / "results" / "networks" / "whole" / "settings.toml"
    settings = _parsed(["compare", "--settings", str(file), "--dataset", "digits"])
    assert f"`--tune {settings.tune[0]}`" in shared["rate"][1]
    assert f"`--warm-up {settings.config.warm_up:g}`" in shared["warm-up"][1]
    assert f"`--clip-layers {settings.config.clip_layers:g}`" in shared["clipping"][1]
    assert shared["batch size"][1] == f"{settings.config.batch_size}"
    assert (Config().warm_up, Config().clip_layers) == (0.0, None)


def test_batch_normalization() -> None:
    found = here("bn")
    assert found["epsilon"] == f"{BATCH_NORM['epsilon'].default:g}"
    assert f"anew from {ROWS:,} training rows" in found["statistics in evaluation"]


def test_group_and_layer_normalization() -> None:
    groups, layer = here("gn"), here("ln")
    assert groups["groups"].startswith(f"at most {GROUPS}, of at least {GROUP_VALUES} values")
    assert groups["narrow layers"].startswith(f"refused below {GROUP_VALUES} values")
    assert layer["narrow layers"].startswith(f"refused below {LAYER_VALUES} values")
    assert groups["epsilon"] == layer["epsilon"] == f"{EPSILON:g}"


def test_methods_on_weights() -> None:
    standardized = METHODS["ws+gn"].get(Reparametrized)
    assert (standardized.node, standardized.layers) == (WeightStandardized, "all")
    method = METHODS["wn"]
    assert method.get(Reparametrized).node is WeightNormalized
    assert method.get(Initialized).by is data_dependent_init
    assert here("wn")["start"].startswith(f"{INITIAL_ROWS} rows")
    assert here("wn")["decay"].startswith(f"{Config().weight_decay:g} on v")


def test_adaptive_clipping() -> None:
    method: Method = METHODS["agc"]
    clipping = method.get(AdaptivelyClipped).clipping
    assert here("agc")["threshold"] == f"{clipping:g}"
    assert here("agc")["least norm of weights"] == f"{LEAST_NORM:g}"
    start = method.get(Initialized).by.__name__
    assert here("agc")["start"].startswith(f"`{start}`, then branches")
    assert method.get(QuietBranches) is not None
