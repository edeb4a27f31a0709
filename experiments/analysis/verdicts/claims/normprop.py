"""Claims of Arpit et al. 2016, normalization propagation."""

from experiments.analysis.verdicts.claim import Claim, Paper, Table, side, sides

PLAIN = Table("Table 1", "normprop/tab1", "CIFAR-10")
FLIPS = Table("Table 1", "normprop/tab1", "CIFAR-10, flips")
CURVES = Table("Figure 4, section 5.4", "normprop/fig4")
SECTION = Table("section 5", "normprop/fig4")

CLAIMS = (
    Claim(
        "normprop-over-bn",
        "better than BN in a network in network",
        (side("normprop/plain", "normprop-batch", "NormProp"), side("normprop/plain", "bn", "BN")),
        PLAIN("NormProp", "BN"),
    ),
    Claim(
        "normprop-flips",
        "with mirrored images BN is better",
        (side("normprop/flip", "bn", "BN"), side("normprop/flip", "normprop-batch", "NormProp")),
        FLIPS("BN", "NormProp"),
    ),
    Claim(
        "normprop-batch-of-1",
        "trains with a batch of 1",
        sides("batches/1", "normprop"),
        CURVES("batch 1"),
        kind="trains",
        data="Fashion-MNIST",
    ),
    Claim(
        "bn-batch-of-1",
        "BN is not applicable to a batch of 1",
        sides("batches/1", "bn", "normprop"),
        SECTION("batch 1"),
        kind="fails",
        data="Fashion-MNIST",
    ),
)

PAPER = Paper(
    "Normalization propagation (Arpit et al. 2016)",
    "cifar10-jpeg/normprop-tab1/curves.png",
    CLAIMS,
    "For how many layers the propagated moments hold, and how much further where the weights of a "
    "unit sum to zero: [normprop-depth](normprop-depth/report.md), `python -m experiments paper "
    "normprop/depth`.",
)
