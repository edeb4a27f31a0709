"""Meanings of the methods' codes: function, paper, formula, use and requirements.

The entries are data, in `glossary.toml`. A description in a few words is in `table.py`.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Entry:
    """A method as a reader looks it up.

    Attributes:
        name: the method's name, spelled out.
        functions: the public names that make it, without ``jaxnorm.``; empty for what only the
            experiments have.
        source: paper and equation.
        formula: in LaTeX; empty where there is none.
        when: a clause that begins with "when", or the purpose.
        needs: what it needs of the model.
        call: the user's code of one step, at most twelve lines, for the names that the page
            explains; empty where there is none.
    """

    name: str
    functions: tuple[str, ...] = ()
    source: str = ""
    formula: str = ""
    when: str = "for comparison; the library does not have it."
    needs: str = "Kernels whose fan-in axes a layout names; any activation."
    call: str = ""


_KNOWN = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))

GLOSSARY: Mapping[str, Entry] = {
    code: Entry(**{**entry, "functions": tuple(entry.get("functions", ()))})
    for code, entry in _KNOWN.items()
}
