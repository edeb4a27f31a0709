"""Training steps compiled for TPUs that are not there, if their compiler is installed."""

import importlib.util
from dataclasses import replace

import pytest

from experiments.bench.compiled.measure import Costs, compile_all
from experiments.bench.compiled.spec import Spec

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None, reason="wants the extra compile-tpu"
)

#: Four convolutions, of so many rows that an activation is larger than a chip's fast memory.
STEP = Spec("v5e:2x2", model="cnn4", rows_per_device=2048)
UPDATE = Spec("v5e:2x2", "update", dtype="float32", method="sgd")


def found(*specs: Spec) -> dict[str, Costs]:
    answers = {spec.method: answer for spec, answer in compile_all(specs, jobs=2)}
    failed = {name: answer for name, answer in answers.items() if isinstance(answer, str)}
    assert not failed
    return {name: answer for name, answer in answers.items() if isinstance(answer, dict)}


def test_sgd_moves_twenty_bytes_a_parameter() -> None:
    """SGD reads gradient, momentum and parameter, and writes the latter two."""
    sgd = found(UPDATE)["sgd"]
    assert sgd["hbm_bytes"] == 20 * sgd["parameters"]
    assert sgd["collectives"] == 0


def test_a_step_makes_no_pass_over_activations_and_no_all_reduce_of_its_own() -> None:
    """A pass over the activations of one of the four layers would be at least 4% of the traffic."""
    costs = found(*(replace(STEP, method=name) for name in ("none", "cwo", "vcl")))
    plain = costs.pop("none")
    assert plain["all_reduces"] == plain["collectives"]
    for name, cost in costs.items():
        assert cost["collectives"] == plain["collectives"], name
        assert cost["hbm_bytes"] <= 1.03 * plain["hbm_bytes"], name


def test_noise_in_float32_makes_no_pass_over_activations() -> None:
    """With JAX's own derivative of (1 + n) x + beta the step moves 1.15 times the bytes."""
    step = replace(STEP, dtype="float32")
    costs = found(*(replace(step, method=name) for name in ("none", "cwo")))
    assert costs["cwo"]["hbm_bytes"] <= 1.03 * costs["none"]["hbm_bytes"]
