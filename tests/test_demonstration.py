"""`python -m jaxnorm`, the first command of someone who has the wheel alone."""

import re
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow  # two trainings of thirty layers, compiled in a process of its own
def test_it_trains_with_zero_sum_weights_alone(tmp_path: Path) -> None:
    code = "import sys; sys.path.insert(0, sys.argv.pop()); import runpy; "
    code += "runpy.run_module('jaxnorm', run_name='__main__'); assert 'flax' not in sys.modules"
    command = [sys.executable, "-W", "error", "-c", code, str(Path(__file__).parents[1])]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    rows = re.findall(r"(\d\.\d+) +(\d+)%", ran.stdout)
    (plain, at_chance), (constrained, learned) = ([float(x) for x in row] for row in rows)
    assert plain == pytest.approx(0.693, abs=1e-3)
    assert at_chance < 55
    assert constrained < 0.55
    assert learned > 70
