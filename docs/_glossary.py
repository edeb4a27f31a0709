"""Writes docs/glossary.md from the tables of the methods: `python -m docs._glossary`."""

import csv
import re
from pathlib import Path

from experiments.methods.glossary import GLOSSARY, Entry
from experiments.methods.table import METHODS

PAGE = Path(__file__).parent / "glossary.md"
COSTS = Path(__file__).parents[1] / "experiments" / "results" / "compiled"
#: Pages of the API by topic.
TOPICS = ("activations", "initializers", "losses", "noise", "reparam", "statistics", "transforms")
#: The first lines of each method's code.
IMPORTS = """from functools import partial
import jax, optax
from flax import nnx
import jaxnorm as jn

cross_entropy = optax.softmax_cross_entropy_with_integer_labels
"""
BEGIN = f"""# The methods by their codes

The codes are those of `python -m experiments compare --methods CODES`. A `+` joins two methods:
`bn+lcw` is batch normalization on zero-sum weights. The tables of costs name networks (`cnn9`),
devices (`v5e:4x4`) and collectives by [the words of the
measurements](concepts.md#words-of-the-measurements). This page is written by
`python -m docs._glossary`.

In the formulas $x$ is what a unit reads, $w$ its weights, $\\gamma$ or $g$ its learned scale, $b$
or $\\beta$ its bias and $f$ the activation. The index $B$ means the minibatch, $P$ the whole
training set. A bar is a mean over the fan-in.

The methods that are compared most have the code of one training step; a test holds it equal to a
step of the method in the experiments, so that their figures are figures of this code. It begins
with the imports below, and takes

- `network(norm, activation)`, which makes your model: a `flax.nnx.Module` with these layers after
  each linear map, and a classifier called `head`,
- `optimizer`, any optax optimizer, and `examples`, some hundred training rows,
- `x` and `y`, a minibatch with classes as integers, and `key`, a new `jax.random.key` in each step.

```python
{IMPORTS}```

| code | what it is | functions |
|---|---|---|
"""
#: The head of a method's costs.
COST = """- **It costs:** the bytes that a compiled training step moves, over those of `none`.

| network | numbers | devices | bytes, none = 1 | collectives |
|---|---|---|---:|---:|
"""
OTHERS = """## Combinations and ablations

| code | what it is |
|---|---|
"""


def text() -> str:
    """Returns the page."""
    entries = "\n".join(section(code, entry) for code, entry in GLOSSARY.items())
    others = [code for code in METHODS if code not in GLOSSARY]
    table = "".join(f"| `{code}` | {METHODS[code].summary} |\n" for code in others)
    return f"{BEGIN}{overview()}\n{entries}\n{OTHERS}{table}"


def overview() -> str:
    """Makes a row per code, with a link to its section."""
    rows = (
        f"| [`{code}`](#{anchor(heading(code))}) | {entry.name} | {functions(entry)} |\n"
        for code, entry in GLOSSARY.items()
    )
    return "".join(rows)


def heading(code: str) -> str:
    """Returns the title of a code's section."""
    return f"{code}: {GLOSSARY[code].name}"


def anchor(title: str) -> str:
    """Returns the address of the section with a title, on the site and in a checkout's viewers."""
    return re.sub(r"[^\w\s-]", "", title).lower().replace(" ", "-")


def functions(entry: Entry) -> str:
    """Lists the public names of a method, each with a link to its page of the API."""
    return ", ".join(f"[`{name}`](api/{page_of(name)}.md)" for name in entry.functions)


def page_of(name: str) -> str:
    """Returns the page of the API that explains the name."""
    if name.startswith("nnx."):
        return "nnx"
    pages = {page: (PAGE.parent / "api" / f"{page}.md").read_text() for page in TOPICS}
    return next((page for page, text in pages.items() if f".{name}\n" in text), "index")


def section(code: str, entry: Entry) -> str:
    """Makes the section of one method: formula, facts and costs."""
    lines = [f"## {heading(code)}\n"]
    if entry.formula:
        lines.append(f"$$\n{entry.formula}\n$$\n")
    if entry.call:
        lines.append(f"```python\n{entry.call}```\n")
    facts = {
        "In the experiments": METHODS[code].summary,
        "Functions": functions(entry),
        "Source": entry.source,
        "Use it": entry.when,
        "It needs": entry.needs,
    }
    lines += [f"- **{name}:** {fact}" for name, fact in facts.items() if fact]
    return "\n".join(lines) + "\n" + costs(code)


def costs(code: str) -> str:
    """Makes the table of a compiled training step; empty if the method was not compiled."""
    rows = [row for row in compiled() if row["method"] == code != "none" and plain(row)]
    keys = ("model", "dtype", "target", "hbm_ratio", "collectives")
    cells = ([f"{float(r[k]):.2f}" if k == "hbm_ratio" else r[k] for k in keys] for r in rows)
    return COST * bool(rows) + "".join(f"| {' | '.join(row)} |\n" for row in cells)


def compiled() -> list[dict[str, str]]:
    """Reads the rows of all files of compiled steps."""
    files = sorted(COSTS.glob("*/compiled.csv"))
    return [row for file in files for row in csv.DictReader(file.read_text().splitlines())]


def plain(row: dict[str, str]) -> bool:
    """Returns True if the row is a training step that is compared with `none`."""
    return row["what"] == "step" and bool(row["hbm_ratio"])


if __name__ == "__main__":
    PAGE.write_text(text())
