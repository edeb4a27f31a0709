"""Files of the checkout on the site: notebooks, results, examples and the experiments' own pages.

Links between files of the checkout hold on the site, too: pages are built, other files copied.
"""

import json
import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
#: The pages outside of docs/.
PAGES = (
    *("CHANGELOG.md", "CONTRIBUTING.md", "examples/**/*.md", "notebooks/*.ipynb"),
    *("experiments/README.md", "experiments/papers/**/*.md", "experiments/results/**/*.md"),
)
RESULTS = "experiments/results"
#: A displayed formula with its indentation; in Markdown it is a paragraph of its own.
DISPLAYED = re.compile(r"\n?([ \t]*)\$\$(.+?)\$\$[ \t]*\n?", re.DOTALL)
#: The target of a link or a picture, without its anchor.
TARGET = re.compile(r"(?<=\]\()(?!\w+:)([^)#\s]+)")


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages of the checkout, and a page for each folder of results that has none."""
    from mkdocs.structure.files import File  # The tests of this file run without MkDocs.

    for path in sorted(each for pattern in PAGES for each in ROOT.glob(pattern)):
        name = path.relative_to(ROOT).as_posix()
        if path.suffix == ".ipynb":
            text = notebook_page(json.loads(path.read_text()))
            files.append(File.generated(config, site_name(name), content=text))
        else:
            files.append(File.generated(config, name, abs_src_path=str(path)))
    for folder in sorted(path for path in (ROOT / RESULTS).rglob("*") if path.is_dir()):
        if not (folder / "README.md").exists():
            name = f"{folder.relative_to(ROOT).as_posix()}/README.md"
            files.append(File.generated(config, name, content=folder_page(folder)))
    return files


def on_page_markdown(markdown: str, page: Any, files: Any, config: Any) -> str:
    """Points links to files of the checkout at their copies on the site."""
    from mkdocs.structure.files import File

    uri = page.file.src_uri
    source = uri if page.file.generated_by else f"docs/{uri}"

    def moved(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link[1]))
        path = ROOT / target
        if not path.exists() or not path.is_relative_to(ROOT):
            return link[1]
        name = site_name(target)
        if files.get_file_from_path(name) is None:
            if path.is_dir() or path.suffix == ".md":
                return link[1]  # The strict build refuses a link to what has no page.
            files.append(File.generated(config, name, abs_src_path=str(path)))
        return posixpath.relpath(name, posixpath.dirname(uri) or ".")

    return TARGET.sub(moved, markdown)


def site_name(path: str) -> str:
    """Returns the name on the site of a file or a folder of the checkout."""
    if (ROOT / path).is_dir():
        return site_name(f"{path}/README.md")
    if path == "README.md":
        return "index.md"
    return re.sub(r"\.ipynb$", ".md", path.removeprefix("docs/"))


def folder_page(folder: Path) -> str:
    """Lists the files of a folder, and shows its pictures."""
    names = [each.name for each in sorted(folder.iterdir()) if not each.name.startswith(".")]
    pictures = [f"![{name}]({name})" for name in names if name.endswith(".png")]
    links = [f"- [{name}]({name})" for name in names]
    title = f"# {folder.relative_to(ROOT / RESULTS).as_posix()}"
    return "\n\n".join([title, "\n".join(links), *pictures])


def notebook_page(notebook: dict[str, Any]) -> str:
    """Returns a notebook as Markdown: text, code, and outputs as they are stored."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        text = DISPLAYED.sub(paragraph, source)
        parts.append(text if cell["cell_type"] == "markdown" else fenced(source, "python"))
        parts += [shown(output) for output in cell.get("outputs", ())]
    return "\n\n".join(parts)


def paragraph(formula: re.Match[str]) -> str:
    """Returns a displayed formula as a paragraph; in a list it is indented by four spaces."""
    indentation, text = formula.groups()
    return f"\n\n{4 * ' ' * bool(indentation)}$${' '.join(text.split())}$$\n\n"


def shown(output: dict[str, Any]) -> str:
    """Returns an output of a cell as Markdown: a picture, Markdown or plain text."""
    data = output.get("data", {})
    if picture := data.get("image/png"):
        return f'<p><img src="data:image/png;base64,{"".join(picture).strip()}" alt="figure"></p>'
    if table := data.get("text/markdown"):
        return "".join(table)
    return fenced("".join(output.get("text", data.get("text/plain", ""))), "text")


def fenced(text: str, language: str) -> str:
    """Returns a block of code."""
    return f"```{language}\n{text.rstrip()}\n```"
