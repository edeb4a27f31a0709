"""`python -m jaxnorm`, which needs the wheel alone."""

import re
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow  # two trainings of thirty layers, compiled in their own process
def test_only_the_network_with_zero_sum_weights_trains(tmp_path: Path) -> None:
    code = "import sys; sys.path.insert(0, sys.argv.pop()); import runpy; "
    code += "runpy.run_module('jaxnorm', run_name='__main__'); assert 'flax' not in sys.modules"
    command = [sys.executable, "-W", "error", "-c", code, str(Path(__file__).parents[1])]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    losses = [float(loss) for loss in re.findall(r"loss (\d\.\d+)", run.stdout)]
    plain, constrained = losses[:2]
    assert plain > 0.68
    assert constrained < 0.1
    pictures = [line.split("  ") for line in run.stdout.splitlines() if not set(line) - {*".# "}]
    plain_picture, disc = (set("".join(column)) for column in zip(*pictures, strict=True))
    assert (len(plain_picture), disc) == (1, {".", "#"})
