"""The figures of docs/evidence/baselines.md are the defaults of the code."""

import inspect
import re

import pytest

from examples.networks import mimicnorm
from examples.networks.built import groups_of
from examples.networks.methods import AGC, optimizer
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


def test_what_all_methods_of_the_networks_get(shared: dict[str, list[str]]) -> None:
    source = inspect.getsource(optimizer)
    assert ("momentum of 0.9" in shared["optimizer"][1]) == ("momentum=0.9" in source)
    assert ("a tenth" in shared["warm-up"][1]) == ("warm_up: float = 0.1" in source)
    assert ("gradient at 1," in shared["clipping"][1]) == ("clip_by_layer_norm(1.0)" in source)


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
    assert f"at most {64 // groups_of(64)} channels" in groups["in `whole.py`"]


def test_methods_on_weights() -> None:
    standardized = METHODS["ws+gn"].get(Reparametrized)
    assert (standardized.node, standardized.layers) == (WeightStandardized, "all")
    method = METHODS["wn"]
    assert method.get(Reparametrized).node is WeightNormalized
    assert method.get(Initialized).by is data_dependent_init
    assert here("wn")["start"].startswith(f"{INITIAL_ROWS} rows")
    assert here("wn")["decay"].startswith(f"{Config().weight_decay:g} on v")


def test_adaptive_clipping_and_mimicnorm() -> None:
    method: Method = METHODS["agc"]
    clipping = method.get(AdaptivelyClipped).clipping
    assert here("agc")["threshold"] == f"{clipping:g} in `compare`, {AGC:g} in `whole.py`"
    assert here("agc")["least norm of weights"] == f"{LEAST_NORM:g}"
    start = method.get(Initialized).by.__name__
    assert here("agc")["start"].startswith(f"`{start}`, then branches")
    assert method.get(QuietBranches) is not None
    source = inspect.getsource(mimicnorm)
    for words, code in (("above 50", "<= 50"), ("2.8 / n", "2.8 if"), ("1e-05", "1e-5")):
        assert any(words in cell for cell in here("mimicnorm").values()) == (code in source)
