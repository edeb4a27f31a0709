"""Claims of Kutsuna 2019, linearly constrained weights."""

from typing import Any

from experiments.analysis.verdicts.claim import Claim, Paper, Side, Table, side, sides

SECTION = Table("section 6.1", "lcw/fig5", "CIFAR-10")
FIGURE = Table("Figure 5, section 6.1", "lcw/fig5", "CIFAR-10")
DEEP = Table("Table 1, section 6.2", "lcw/tab1", "CIFAR-10")


def rows(*names: str) -> tuple[Side, ...]:
    """Returns the runs of some rows of the figure."""
    return tuple(side("cifar10-jpeg/lcw-fig5", row=name, column="CIFAR-10") for name in names)


def in_vgg19(name: str, says: str, **fields: Any) -> Claim:
    """Returns a claim on VGG19, whose rates are tuned."""
    runs, source = sides("bn-lcw/vgg19-fashion", "bn+lcw", "bn"), DEEP("VGG19+LCW", "VGG19")
    return Claim(name, f"{says} (rates tuned)", runs, source, data="Fashion-MNIST", **fields)


CLAIMS = (
    *(
        Claim(
            f"lcw-{name.lower()}-stays",
            f"50 sigmoid layers with {name} do not train at all, and with LCW they do",
            rows(name, "LCW"),
            SECTION(name, "LCW"),
            kind="fails",
            measure="train_accuracy",
        )
        for name in ("WN", "SN")
    ),
    *(
        Claim(
            f"lcw-faster-than-{name.lower()}",
            f"LCW converges faster than {name}: its training loss is lower",
            rows("LCW", name),
            FIGURE("LCW", name),
            measure="train_loss",
            about="training",
        )
        for name in ("BN", "SL", "CWN")
    ),
    Claim(
        "lcw-overfits",
        "in test loss LCW is no better than BN",
        rows("BN", "LCW"),
        SECTION("BN", "LCW"),
        measure="test_loss",
    ),
    Claim(
        "lcw-bn-over-lcw",
        "BN+LCW reaches a better test accuracy than LCW",
        rows("BN+LCW", "LCW"),
        FIGURE("BN+LCW", "LCW"),
    ),
    Claim(
        "lcw-bn-over-bn",
        "BN+LCW reaches a better test accuracy than BN",
        sides("sigmoid50-photographs", "bn+lcw", "bn"),
        FIGURE("BN+LCW", "BN"),
    ),
    Claim(
        "lcw-bn-over-bn-digits",
        "the same over BN (digits alone)",
        sides("sigmoid50-ten-seeds", "bn+lcw", "bn"),
        FIGURE("BN+LCW", "BN"),
        data="digits",
    ),
    in_vgg19("lcw-vgg19", "BN+LCW reaches a better test accuracy than BN in VGG19"),
    in_vgg19("lcw-vgg19-loss", "the same in test loss", measure="test_loss"),
    in_vgg19(
        "lcw-vgg19-train-loss",
        "the same in training loss",
        measure="train_loss",
        about="training",
    ),
    Claim(
        "lcw-resnet18",
        "in ResNet-18 BN+LCW is about as good as BN (within a point) (rates tuned)",
        sides("bn-lcw/resnet18", "bn+lcw", "bn"),
        DEEP("ResNet18+LCW", "ResNet18"),
        kind="same",
        margin=1.0,
    ),
)

PAPER = Paper(
    "Linearly constrained weights (Kutsuna 2019)", "cifar10-jpeg/lcw-fig5/curves.png", CLAIMS
)
