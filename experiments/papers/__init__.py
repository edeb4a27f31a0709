"""The papers' tables and figures: each a protocol with three presets, and a report.

An item is one file of data, ``papers/PAPER/ITEM.toml``, and its name in the registry. A table of
trainings needs no code::

    title = "errors with batches of 4, 16 and 128 samples"
    reported = "BN degrades with small batches; ours does not"
    as_error = true
    orderings = [{better = "Ours", worse = ["BN"], margin = 1.0}]

    [full]  # The paper's protocol; [cpu] and [smoke] follow, with the fields that they change.
    cost = "10 GPU hours a run (estimated)"
    recipe = "cwo/wrn28x10"  # In `recipes.py`.
    augment = "crop-flip"

    [rows]
    Ours = {method = "cwo", overrides = {noise = 0.4}}
    BN = {method = "bn"}

    [columns.CIFAR-10]
    dataset = "cifar10"
    changes = {epochs = 300}
    reported = [2.65, 3.08]  # In the order of the rows; nan where the paper has no number.

Any other item has its code beside it, ``papers/PAPER/ITEM.py``, and its presets are its settings::

    class Settings(NamedTuple):
        runs: int


    def run(settings: Settings, context: Context) -> Report:
        values = simulate(settings.runs)
        figure = new_figure(1)
        figure.axes[0].plot(values)
        finding = Finding("mean", f"{values.mean():.3f}", "0.5", abs(values.mean() - 0.5) < 0.01)
        return Report([finding], ("run", "value"), list(enumerate(values)), {"values": figure})
"""
