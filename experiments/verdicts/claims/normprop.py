"""Arpit et al. 2016, normalization propagation."""

from typing import Any

from experiments.verdicts.claim import Claim, cells, method, of_rows

PAPER = "Normalization propagation (Arpit et al. 2016)"
PICTURE = "cifar10-jpeg/normprop-tab1/curves.png"

_ONE = "batches/1/results.csv"
#: What of the paper is about a batch of 1.
_FIG4 = cells("normprop/fig4", "", "batch 1")
_AT_1: dict[str, Any] = {"about": "training", "data": "Fashion-MNIST", "decider": _FIG4}

NOTE = (
    "For how many layers the propagated moments hold, and how much further where the weights of a "
    "unit sum to zero: [normprop-depth](normprop-depth/report.md), "
    "`python -m experiments paper normprop/depth`."
)


CLAIMS = (
    of_rows(
        "normprop-over-bn",
        "Table 1",
        "better than BN in a network in network",
        "normprop/tab1",
        "NormProp",
        "BN",
        "CIFAR-10",
    ),
    of_rows(
        "normprop-flips",
        "Table 1",
        "with mirrored images BN is better",
        "normprop/tab1",
        "BN",
        "NormProp",
        "CIFAR-10, flips",
    ),
    Claim(
        "normprop-batch-of-1",
        "Figure 4, section 5.4",
        "trains with a batch of 1",
        _ONE,
        method("normprop"),
        kind="trains",
        **_AT_1,
    ),
    Claim(
        "bn-batch-of-1",
        "section 5",
        "BN is not applicable to a batch of 1",
        _ONE,
        method("bn"),
        method("normprop"),
        kind="fails",
        **_AT_1,
    ),
)
