"""Claims of Kutsuna 2019, linearly constrained weights."""

from experiments.analysis.verdicts.claim import Claim, Paper, Side, Table, side, sides

SECTION = Table("section 6.1", "lcw/fig5", "CIFAR-10")
FIGURE = Table("Figure 5, section 6.1", "lcw/fig5", "CIFAR-10")
DEEP = Table("Table 1, section 6.2", "lcw/tab1", "CIFAR-10")


def rows(*names: str) -> tuple[Side, ...]:
    """Returns the runs of some rows of the figure."""
    return tuple(side("cifar10-jpeg/lcw-fig5", row=name, column="CIFAR-10") for name in names)


CLAIMS = (
    Claim(
        "lcw-wn-stays",
        "50 sigmoid layers with WN do not train at all, and with LCW they do",
        rows("WN", "LCW"),
        SECTION("WN", "LCW"),
        kind="fails",
        measure="train_accuracy",
    ),
    Claim(
        "lcw-sn-stays",
        "50 sigmoid layers with SN do not train at all, and with LCW they do",
        rows("SN", "LCW"),
        SECTION("SN", "LCW"),
        kind="fails",
        measure="train_accuracy",
    ),
    Claim(
        "lcw-faster-than-bn",
        "LCW converges faster than BN: its training loss is lower",
        rows("LCW", "BN"),
        FIGURE("LCW", "BN"),
        measure="train_loss",
        about="training",
    ),
    Claim(
        "lcw-faster-than-sl",
        "LCW converges faster than SL: its training loss is lower",
        rows("LCW", "SL"),
        FIGURE("LCW", "SL"),
        measure="train_loss",
        about="training",
    ),
    Claim(
        "lcw-faster-than-cwn",
        "LCW converges faster than CWN: its training loss is lower",
        rows("LCW", "CWN"),
        FIGURE("LCW", "CWN"),
        measure="train_loss",
        about="training",
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
    Claim(
        "lcw-vgg19",
        "BN+LCW reaches a better test accuracy than BN in VGG19 (rates tuned)",
        sides("bn-lcw/vgg19-fashion", "bn+lcw", "bn"),
        DEEP("VGG19+LCW", "VGG19"),
        data="Fashion-MNIST",
    ),
    Claim(
        "lcw-vgg19-loss",
        "the same in test loss (rates tuned)",
        sides("bn-lcw/vgg19-fashion", "bn+lcw", "bn"),
        DEEP("VGG19+LCW", "VGG19"),
        measure="test_loss",
        data="Fashion-MNIST",
    ),
    Claim(
        "lcw-vgg19-train-loss",
        "the same in training loss (rates tuned)",
        sides("bn-lcw/vgg19-fashion", "bn+lcw", "bn"),
        DEEP("VGG19+LCW", "VGG19"),
        measure="train_loss",
        about="training",
        data="Fashion-MNIST",
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
