"""Programs of the pages in a user's process, which has none of the tests' strict settings."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
RUN = """
import json, sys
for name, code in json.load(sys.stdin).items():
    exec(compile(code, name, "exec"), {"__name__": "__main__"})
"""


def output_of(programs: dict[str, str]) -> str:
    """Standard output of programs by name, each in its own namespace.

    They share the imports, and the small functions that JAX compiles at the first call. Warnings
    are errors; the traceback of an error has the name of its program.
    """
    process = subprocess.run(
        [sys.executable, "-W", "error", "-c", RUN],
        cwd=ROOT,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        input=json.dumps(programs),
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout
