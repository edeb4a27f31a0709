"""Kutsuna 2019, linearly constrained weights."""

from typing import Any

from experiments.verdicts.claim import Claim, cells, method, of_rows

PAPER = "Linearly constrained weights (Kutsuna 2019)"
PICTURE = "cifar10-jpeg/lcw-fig5/curves.png"

_DATA = "CIFAR-10"


def _beside_bn(row: str, word: str, says: str, **changes: Any) -> Claim:
    """Of a network of table 1, with BN and with both."""
    name, decider = row.lower(), cells("lcw/tab1", _DATA, f"{row}+LCW", row)
    return Claim(
        f"lcw-{name}{word}",
        "Table 1, section 6.2",
        f"{says} (rates tuned)",
        f"bn-lcw/{name}/results.csv",
        method("bn+lcw"),
        method("bn"),
        decider=decider,
        **changes,
    )


def _sigmoids(place: str, name: str, says: str, better: str, worse: str, **changes: Any) -> Claim:
    """Of fifty sigmoid layers."""
    return of_rows(name, place, says, "lcw/fig5", better, worse, _DATA, **changes)


_SECTION, _FIG5 = "section 6.1", "Figure 5, section 6.1"

CLAIMS = (
    *(
        _sigmoids(
            _SECTION,
            f"lcw-{name.lower()}-stays",
            f"50 sigmoid layers with {name} do not train at all, and with LCW they do",
            name,
            "LCW",
            measure="train_accuracy",
            kind="fails",
            about="training",
        )
        for name in ("WN", "SN")
    ),
    *(
        _sigmoids(
            _FIG5,
            f"lcw-faster-than-{name.lower()}",
            f"LCW converges faster than {name}: its training loss is lower",
            "LCW",
            name,
            measure="train_loss",
            about="training",
        )
        for name in ("BN", "SL", "CWN")
    ),
    _sigmoids(
        _SECTION,
        "lcw-overfits",
        "in test loss LCW is no better than BN",
        "BN",
        "LCW",
        measure="test_loss",
    ),
    *(
        _sigmoids(
            _FIG5,
            f"lcw-bn-over-{name.lower()}",
            f"BN+LCW reaches a better test accuracy than {name}",
            "BN+LCW",
            name,
        )
        for name in ("LCW", "BN")
    ),
    Claim(
        "lcw-bn-over-bn-digits",
        _FIG5,
        "the same over BN (digits alone)",
        "sigmoid50/results.csv",
        method("bn+lcw"),
        method("bn"),
        data="digits",
        decider=cells("lcw/fig5", _DATA, "BN+LCW", "BN"),
    ),
    _beside_bn("VGG19", "", "BN+LCW reaches a better test accuracy than BN in VGG19"),
    _beside_bn("VGG19", "-loss", "the same in test loss", measure="test_loss"),
    _beside_bn(
        "VGG19", "-train-loss", "the same in training loss", measure="train_loss", about="training"
    ),
    _beside_bn(
        "ResNet18",
        "",
        "in ResNet-18 BN+LCW is about as good as BN (within a point)",
        kind="same",
        margin=1.0,
    ),
)
