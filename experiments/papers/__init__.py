"""The papers' tables and figures: each a protocol with three presets, and a report.

An item is one file, ``papers/PAPER/ITEM.py``, and one entry in ``papers/PAPER/__init__.py``::

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
