"""The three sizes of the UCI experiments."""

from experiments.papers.item import Preset, Presets
from experiments.papers.vcl.uci_train import Settings

_CPU = Settings(depths=(4,), width=64, epochs=20, rows=1000, test_rows=1000, seeds=3)
_SMOKE = Settings(
    activations=("elu",), depths=(2,), width=8, epochs=3, rows=200, test_rows=100, seeds=2
)

PRESETS: Presets = {
    "smoke": Preset(
        _SMOKE.changed(bundled=True),
        "40 s on 2 CPU cores",
        "three small sets cut out of the digits, one activation, networks of 2 x 8 units, three "
        "epochs: it shows that the item runs, and nothing else",
    ),
    "cpu": Preset(
        _CPU,
        "12 min of one CPU core for 37 sets",
        "at most 1,000 training rows (validation's among them) and 1,000 test rows of each set, "
        "networks of 4 x 64 units alone, 20 epochs of the paper's 500, 3 seeds",
    ),
    "full": Preset(
        Settings(),
        "2 GPU days for 37 sets (estimated)",
        "4 seeds, SGD with momentum 0.9 and 15% of the training rows for validation, about which "
        "the paper is silent; else its protocol",
    ),
}
