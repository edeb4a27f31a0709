"""The code of a new method in CONTRIBUTING.md, executed."""

import re
from dataclasses import make_dataclass
from pathlib import Path

import jax
import numpy as np
import pytest

from experiments.config import Config
from experiments.methods.method import Method
from experiments.training.fit import fit
from experiments.training.trainer import make_trainer
from tests.experiments.toy import SETTINGS, toy_dataset

TEXT = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()


@pytest.fixture(scope="module")
def method() -> Method:
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    defined: dict[str, object] = {"__name__": "slow"}
    exec(compile(code, "CONTRIBUTING.md", "exec"), defined)
    (found,) = [value for value in defined.values() if isinstance(value, Method)]
    return found


@pytest.mark.usefixtures("standard_promotion")
def test_the_method_trains_and_carries_its_state(method: Method) -> None:
    trainer = make_trainer(method, SETTINGS, toy_dataset())
    state = fit(trainer, toy_dataset(), 0).state
    kept, raw = state.method_state["Slow"], state.params["blocks"]
    for old, new in zip(jax.tree.leaves(kept), jax.tree.leaves(raw), strict=True):
        assert not np.array_equal(old, new)
        # A running mean of ten steps lags behind by less than the kernels' own size.
        assert np.linalg.norm(old - new) < np.linalg.norm(new) + 0.1


def test_its_setting_is_a_flag(method: Method, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = ("slow_weight", float | None, None)
    flags = make_dataclass("Flags", [slow], bases=(Config,), frozen=True)
    monkeypatch.setattr("experiments.methods.method.OF_PARTS", ("slow_weight",))
    assert method.adjusted(flags(slow_weight=0.5)).parts[0].slow_weight == 0.5
    assert method.adjusted(flags()) == method
