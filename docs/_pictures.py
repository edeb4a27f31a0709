"""The pages show the repository's pictures by address; the site carries copies of its own."""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

RESULTS = Path(__file__).parents[1] / "experiments" / "results"
#: The address of a picture, as the pages have it.
ADDRESS = re.compile(r"https://raw\.githubusercontent\.com/[^/]+/[^/]+/main/experiments/results/")


def on_files(files: Any, config: Any) -> Any:
    """Adds every picture of a comparison, as the page's own."""
    for path in sorted(RESULTS.glob("*/curves.png")):
        name = path.relative_to(RESULTS).as_posix()
        files.append(File.generated(config, f"results/{name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **kwargs: Any) -> str:
    """Shows the copies; a strict build fails for one that is not there."""
    here = posixpath.relpath("results", posixpath.dirname(page.file.src_uri))
    return ADDRESS.sub(f"{here}/", markdown)
