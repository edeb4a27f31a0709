"""The papers' tables and figures: each a protocol with three presets, and a report.

An item is one file, ``papers/PAPER/_ITEM.py``, and one row in ``_registry.py``::

    class Settings(NamedTuple):
        runs: int

    def run(settings: Settings, context: Context) -> Report:
        values = simulate(settings.runs)
        figure = new_figure(1)
        figure.axes[0].plot(values)
        claim = Claim("mean", f"{values.mean():.3f}", "0.5", abs(values.mean() - 0.5) < 0.01)
        return Report([claim], ("run", "value"), list(enumerate(values)), {"values": figure})

    ITEM = Item(
        "bn/fig1a", "...", "...", run,
        {"smoke": Preset(Settings(10), "2 s", "10 runs of the paper's 100"), ...},
    )
"""

from experiments.papers._collected import collect as collect
from experiments.papers._item import Claim as Claim
from experiments.papers._item import Context as Context
from experiments.papers._item import Item as Item
from experiments.papers._item import Preset as Preset
from experiments.papers._item import PresetName as PresetName
from experiments.papers._item import Report as Report
from experiments.papers._registry import ITEMS as ITEMS
from experiments.papers._registry import find_items as find_items
from experiments.papers._run import items_table as items_table
from experiments.papers._run import run_item as run_item
