"""Kutsuna 2019, linearly constrained weights."""

from typing import Any

from experiments.verdicts.claim import Claim, Decider, Side, method, row

PAPER = "Linearly constrained weights (Kutsuna 2019)"
PICTURE = "cifar10-jpeg/lcw-fig5/curves.png"

_FIG5 = "cifar10-jpeg/lcw-fig5/results.csv"
_DATA = "CIFAR-10"


def _side(name: str) -> Side:
    return row(name, _DATA)


def _decider(item: str, *rows: str) -> Decider:
    return Decider(f"lcw/{item}", tuple((name, _DATA) for name in rows))


#: Of table 1: what is claimed of BN+LCW beside BN, and the changes of the claim.
_NETWORKS: tuple[tuple[str, str, str, str, dict[str, Any]], ...] = (
    ("vgg19", "VGG19", "", "BN+LCW reaches a better test accuracy than BN in VGG19", {}),
    ("vgg19", "VGG19", "-loss", "the same in test loss", {"measure": "test_loss"}),
    (
        "vgg19",
        "VGG19",
        "-train-loss",
        "the same in training loss",
        {"measure": "train_loss", "about": "training"},
    ),
    (
        "resnet18",
        "ResNet18",
        "",
        "in ResNet-18 BN+LCW is about as good as BN (within a point)",
        {"kind": "same", "margin": 1.0},
    ),
)


def _beside_bn(network: str, row: str, word: str, says: str, changes: dict[str, Any]) -> Claim:
    return Claim(
        f"lcw-{network}{word}",
        "Table 1, section 6.2",
        f"{says} (rates tuned)",
        f"bn-lcw/{network}/results.csv",
        method("bn+lcw"),
        method("bn"),
        decider=_decider("tab1", f"{row}+LCW", row),
        **changes,
    )


CLAIMS = (
    *(
        Claim(
            f"lcw-{name.lower()}-stays",
            "section 6.1",
            f"50 sigmoid layers with {name} do not train at all, and with LCW they do",
            _FIG5,
            _side(name),
            _side("LCW"),
            measure="train_accuracy",
            kind="fails",
            about="training",
            decider=_decider("fig5", name, "LCW"),
        )
        for name in ("WN", "SN")
    ),
    *(
        Claim(
            f"lcw-faster-than-{name.lower()}",
            "Figure 5, section 6.1",
            f"LCW converges faster than {name}: its training loss is lower",
            _FIG5,
            _side("LCW"),
            _side(name),
            measure="train_loss",
            about="training",
            decider=_decider("fig5", "LCW", name),
        )
        for name in ("BN", "SL", "CWN")
    ),
    Claim(
        "lcw-overfits",
        "section 6.1",
        "in test loss LCW is no better than BN",
        _FIG5,
        _side("BN"),
        _side("LCW"),
        measure="test_loss",
        decider=_decider("fig5", "LCW", "BN"),
    ),
    *(
        Claim(
            f"lcw-bn-over-{name.lower()}",
            "Figure 5, section 6.1",
            f"BN+LCW reaches a better test accuracy than {name}",
            _FIG5,
            _side("BN+LCW"),
            _side(name),
            decider=_decider("fig5", "BN+LCW", name),
        )
        for name in ("LCW", "BN")
    ),
    Claim(
        "lcw-bn-over-bn-digits",
        "Figure 5, section 6.1",
        "the same over BN (digits alone)",
        "sigmoid50/results.csv",
        method("bn+lcw"),
        method("bn"),
        data="digits",
        decider=_decider("fig5", "BN+LCW", "BN"),
    ),
    *(_beside_bn(*network) for network in _NETWORKS),
)
