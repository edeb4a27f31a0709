"""Links from pages to files of the checkout: the site copies pictures, and names other files."""

import re
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "experiments" / "results"
#: A link out of docs/ to another file of the checkout: its text and its target.
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?:\.\./)+((?:examples|experiments|notebooks)/[^)]+)\)")
#: The address of a picture among the committed results, in a page.
PICTURE = re.compile(r"\]\((?:\.\./)+experiments/results/")


def on_files(files: Any, config: Any) -> Any:
    """Adds every picture of the committed results to the site."""
    from mkdocs.structure.files import File  # The tests of this file run without MkDocs.

    for path in sorted(RESULTS.glob("**/*.png")):
        name = path.relative_to(RESULTS).as_posix()
        files.append(File.generated(config, f"results/{name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **kwargs: Any) -> str:
    """Links to the copies of pictures, and names other files by their paths."""
    up = "../" * page.file.src_uri.count("/")
    named = LINK.sub(named_place, markdown)
    return PICTURE.sub(f"]({up}results/", named)


def named_place(link: re.Match[str]) -> str:
    """Returns the link's text followed by the path, in brackets unless the link is in brackets."""
    text, place = link.groups()
    bracketed = link.string[: link.start()].endswith("(")
    return f"{text}: `{place}`" if bracketed else f"{text} (`{place}`)"
