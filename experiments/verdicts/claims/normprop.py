"""Arpit et al. 2016, normalization propagation."""

from experiments.verdicts.claim import Claim, Decider, method, row

PAPER = "Normalization propagation (Arpit et al. 2016)"
PICTURE = "cifar10-jpeg/normprop-tab1/curves.png"

_TAB1 = "cifar10-jpeg/normprop-tab1/results.csv"
_ONE = "batches/1/results.csv"

NOTE = (
    "For how many layers the propagated moments hold, and how much further where the weights of a "
    "unit sum to zero: [normprop-depth](normprop-depth/report.md), "
    "`python -m experiments paper normprop/depth`."
)


def _decider(column: str) -> Decider:
    return Decider("normprop/tab1", (("NormProp", column), ("BN", column)))


CLAIMS = (
    Claim(
        "normprop-over-bn",
        "Table 1",
        "better than BN in a network in network",
        _TAB1,
        row("NormProp", "CIFAR-10"),
        row("BN", "CIFAR-10"),
        decider=_decider("CIFAR-10"),
    ),
    Claim(
        "normprop-flips",
        "Table 1",
        "with mirrored images BN is better",
        _TAB1,
        row("BN", "CIFAR-10, flips"),
        row("NormProp", "CIFAR-10, flips"),
        decider=_decider("CIFAR-10, flips"),
    ),
    Claim(
        "normprop-batch-of-1",
        "Figure 4, section 5.4",
        "trains with a batch of 1",
        _ONE,
        method("normprop"),
        kind="trains",
        about="training",
        data="Fashion-MNIST",
        decider=Decider("normprop/fig4", (("batch 1", ""),)),
    ),
    Claim(
        "bn-batch-of-1",
        "section 5",
        "BN is not applicable to a batch of 1",
        _ONE,
        method("bn"),
        method("normprop"),
        kind="fails",
        about="training",
        data="Fashion-MNIST",
        decider=Decider("normprop/fig4", (("batch 1", ""),)),
    ),
)
