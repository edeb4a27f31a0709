"""The scripts of `examples/`, shortened."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.slow  # a process that compiles everything
def test_the_table_of_the_residual_network_has_a_row_per_method() -> None:
    methods = ("deleted", "linearly_constrain, quiet branches")
    options = ("--seeds", "1", "--steps", "1", "--rates", "0.1", "--methods", *methods)
    command = [sys.executable, "-W", "error", str(ROOT / "examples" / "taken_out.py"), *options]
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
    process = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=600
    )
    assert process.returncode == 0, process.stderr
    rows = process.stdout.splitlines()[2:]
    assert [row.split(" | ")[0] for row in rows] == [f"| {method}" for method in methods]
