"""Executes notebooks from top to bottom, each in a fresh kernel: all of them, or those named.

python notebooks/run.py                    # check that they run
python notebooks/run.py 02_lcw --write     # and store the outputs
"""

import argparse
import base64
import io
import os
import re
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode
from PIL import Image

FOLDER = Path(__file__).resolve().parent
FAILURES = (CellExecutionError, CellTimeoutError, DeadKernelError)
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def main() -> int:
    """Returns the number of notebooks that failed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="such as 02_lcw; all notebooks if left out")
    parser.add_argument("--write", action="store_true", help="store the outputs in the notebooks")
    parser.add_argument("--timeout", type=int, default=600, help="seconds a cell may take (600)")
    parser.add_argument("--jobs", type=int, default=1, help="notebooks at a time (1)")
    chosen = parser.parse_args()
    # The kernels import this checkout, whatever else is installed.
    inherited = filter(None, [os.environ.get("PYTHONPATH")])
    os.environ["PYTHONPATH"] = os.pathsep.join([str(FOLDER.parent), *inherited])
    paths = _paths(parser, chosen.names)
    # From the last, which take longest: at the end no process waits for a long one.
    with ThreadPoolExecutor(chosen.jobs) as pool:
        runs = pool.map(lambda path: not run(path, chosen.timeout, chosen.write), reversed(paths))
        return sum(runs)


def run(path: Path, timeout: int, write: bool) -> bool:
    """Executes one notebook, prints its time, and stores it if asked; returns True for success."""
    began = time.perf_counter()
    notebook = cleaned(nbformat.read(path, as_version=4))
    error = execute(notebook, timeout)
    print(f"{path.stem}: {time.perf_counter() - began:.0f} s", flush=True)
    if error:
        print(f"FAILED: {path.name}, {error}", file=sys.stderr, flush=True)
    elif write:
        nbformat.write(smaller(cleaned(notebook)), path)
    return not error


def execute(notebook: NotebookNode, timeout: int) -> str:
    """Runs the cells in place; returns the error, or an empty text."""
    client = NotebookClient(
        notebook,
        timeout=timeout,
        kernel_name="python3",
        record_timing=False,
        extra_arguments=["--log-level=ERROR"],
        resources={"metadata": {"path": str(FOLDER)}},
    )
    try:
        client.execute()
    except FAILURES as error:
        return f"cell {_reached(notebook)}: {_plain(str(error))}"
    for number, cell in enumerate(notebook.cells, 1):
        for output in cell.get("outputs", ()):
            if output.get("name") == "stderr":
                return f"cell {number} wrote to stderr: {output['text']}"
    return ""


def cleaned(notebook: NotebookNode) -> NotebookNode:
    """Removes everything that differs from machine to machine and from run to run."""
    notebook.metadata = nbformat.from_dict(METADATA)
    for number, cell in enumerate(notebook.cells):
        cell.metadata, cell.id = NotebookNode(), f"cell-{number}"
        for output in cell.get("outputs", ()):
            if "metadata" in output:
                output.metadata = NotebookNode()
    return notebook


def smaller(notebook: NotebookNode) -> NotebookNode:
    """Reduces pictures to 256 colours, a third of the size."""
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if "image/png" in data:
                picture = Image.open(io.BytesIO(base64.b64decode(data["image/png"])))
                content = io.BytesIO()
                reduced = picture.convert("RGB").quantize(256, dither=Image.Dither.NONE)
                reduced.save(content, "PNG", optimize=True)
                data["image/png"] = base64.b64encode(content.getvalue()).decode() + "\n"
    return notebook


def _reached(notebook: NotebookNode) -> int:
    """Returns the number, from 1 as in an editor, of the last cell that was started."""
    started = [i for i, cell in enumerate(notebook.cells, 1) if cell.get("execution_count")]
    failed = [
        i
        for i, cell in enumerate(notebook.cells, 1)
        if any(output.output_type == "error" for output in cell.get("outputs", ()))
    ]
    return max(failed or started or [1])


def _paths(parser: argparse.ArgumentParser, names: Sequence[str]) -> list[Path]:
    known = {path.stem: path for path in sorted(FOLDER.glob("*.ipynb"))}
    stems = [Path(name).stem for name in names] or list(known)
    unknown = [stem for stem in stems if stem not in known]
    if unknown:
        parser.error(f"no notebook {', '.join(unknown)}; there are {', '.join(known)}")
    return [known[stem] for stem in stems]


def _plain(text: str) -> str:
    """Removes the colours of a traceback."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


if __name__ == "__main__":
    sys.exit(main())
