"""The papers' tables and figures: each a protocol with three presets, and a report.

An item is an `Item` in the folder of its paper, and an entry of the folder's ``ITEMS``. A table of
trainings is data, in ``PAPER/tables.py``; rows and columns change fields of its protocol by name::

    TAB2 = table(
        "cwo/tab2",
        "errors with batches of 4, 16 and 128 samples",
        "BN degrades with small batches; ours does not",
        as_error=True,
        orderings=claims("Ours", "BN", margin=1.0),
        full=PAPER.changed(model="wrn28x10", learning_rate=0.2),  # The paper's protocol.
        full_cost="10 GPU hours a run (estimated)",
        cpu={"model": "cnn9", "epochs": 6},
        cpu_cost="10 min on 2 CPU cores",
        smoke={"model": "cnn4"},
        rows={"Ours": Row("cwo", {"noise": 0.4}), "BN": Row("bn")},
        # The paper's numbers are in the order of the rows.
        columns={"CIFAR-10": Column("cifar10", (2.65, 3.08), {"epochs": 300})},
    )

Any other item has a function beside it, and settings of its own::

    class Settings(NamedTuple):
        runs: int


    def run(settings: Settings, context: Context) -> Report:
        values = simulate(settings.runs)
        figure = new_figure(1)
        figure.axes[0].plot(values)
        finding = Finding("mean", f"{values.mean():.3f}", "0.5", abs(values.mean() - 0.5) < 0.01)
        return Report([finding], ("run", "value"), list(enumerate(values)), {"values": figure})


    FIG1 = Item(
        "toy/fig1",
        "a mean",
        "it is 0.5",
        run,
        smoke=Preset(Settings(runs=3), "1 s"),
        cpu=Preset(Settings(runs=100), "10 s"),
        full=Preset(Settings(runs=10_000), "10 min"),
    )
"""
