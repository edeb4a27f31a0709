"""Claims of Luo et al. 2019, the regularization in batch normalization."""

from functools import partial

from experiments.analysis.verdicts.claim import Claim, Paper, Side, Source, Table, side, sides

ORDER = Table("Figure 2(c, d)", "bn/fig2cd")
DECAY = Table("Figure 2(a, b)", "bn/fig2ab")
PREDICTED = Table("section 4.1, Figure 2(a, b)", "bn/fig2ab")("PN + gamma decay", "BN, M = 128")
STRENGTH = Source("section 4.1", "bn/fig1a", otherwise="hours on a GPU with 32 GB (estimated)")

BN_16 = side("luo/strength/1-ten-seeds", "bn")
clothes = partial(Claim, data="Fashion-MNIST")


def with_decay(kind: str) -> Side:
    """Returns the runs of pn or wn with gamma decay of the predicted strength."""
    return side("luo/strength/1-ten-seeds", f"{kind}+gamma-decay", f"{kind}, predicted decay")


def without_decay(kind: str) -> Side:
    """Returns the same runs without the decay."""
    return side("luo/strength/0-ten-seeds", f"{kind}+gamma-decay", f"{kind}, no decay")


def in_batches_of(rows: int) -> tuple[Claim, ...]:
    """Returns the claims on networks that are trained in batches of so many rows."""
    runs, batches = partial(sides, f"luo/{rows}-ten-seeds"), f"(batches of {rows})"
    return (
        clothes(
            f"luo-pn-gamma-decay-bn-{rows}",
            f"PN + gamma decay does better than BN {batches}",
            runs("pn+gamma-decay", "bn"),
            DECAY("PN + gamma decay", "BN, M = 128"),
        ),
        clothes(
            f"luo-pn-gamma-decay-pn-{rows}",
            f"gamma decay improves PN {batches}",
            runs("pn+gamma-decay", "pn"),
            DECAY("PN + gamma decay", "PN"),
        ),
        clothes(
            f"luo-wn-gamma-decay-wn-{rows}",
            f"gamma decay improves WN {batches}",
            runs("wn+gamma-decay", "wn"),
            STRENGTH,
        ),
        clothes(
            f"luo-wn-mean-only-bn-wn-{rows}",
            f"mean-only BN improves WN {batches}",
            runs("wn+mean-only-bn", "wn"),
            ORDER("WN + mean-only BN", "WN"),
        ),
        clothes(
            f"luo-wn-variance-only-bn-wn-{rows}",
            f"variance-only BN improves WN {batches}",
            runs("wn+variance-only-bn", "wn"),
            ORDER("WN + variance-only BN", "WN"),
        ),
        clothes(
            f"luo-bn-wn-mean-only-bn-{rows}",
            f"BN is better than WN + mean-only BN {batches}",
            runs("bn", "wn+mean-only-bn"),
            ORDER("BN", "WN + mean-only BN"),
        ),
        clothes(
            f"luo-bn-wn-variance-only-bn-{rows}",
            f"BN is better than WN + variance-only BN {batches}",
            runs("bn", "wn+variance-only-bn"),
            ORDER("BN", "WN + variance-only BN"),
        ),
    )


CLAIMS = (
    Claim(
        "luo-bn-over-sgd",
        "BN generalizes better than nothing",
        sides("bn-fig2cd", "bn", "none"),
        ORDER("BN", "SGD"),
    ),
    Claim(
        "luo-bn-over-wn",
        "BN generalizes better than WN",
        sides("bn-fig2cd", "bn", "wn"),
        ORDER("BN", "WN"),
    ),
    Claim(
        "luo-bn-over-sgd-loss",
        "the same in test loss",
        sides("bn-fig2cd", "bn", "none"),
        ORDER("BN", "SGD"),
        measure="test_loss",
    ),
    Claim(
        "luo-mean-over-wn",
        "mean-only BN improves WN",
        sides("bn-fig2cd", "wn+mean-only-bn", "wn"),
        ORDER("WN + mean-only BN", "WN"),
    ),
    Claim(
        "luo-variance-over-wn",
        "variance-only BN improves WN",
        sides("bn-fig2cd", "wn+variance-only-bn", "wn"),
        ORDER("WN + variance-only BN", "WN"),
    ),
    Claim(
        "luo-bn-over-mean",
        "each half does less: BN is better than WN + mean-only BN",
        sides("bn-fig2cd-ten-seeds", "bn", "wn+mean-only-bn"),
        ORDER("BN", "WN + mean-only BN"),
    ),
    Claim(
        "luo-bn-over-variance",
        "each half does less: BN is better than WN + variance-only BN",
        sides("bn-fig2cd", "bn", "wn+variance-only-bn"),
        ORDER("BN", "WN + variance-only BN"),
    ),
    *(
        clothes(
            f"luo-decay-helps-{kind}-16",
            f"gamma decay of the predicted strength improves {kind.upper()} (batches of 16)",
            (with_decay(kind), without_decay(kind)),
            PREDICTED,
            measure="test_loss",
        )
        for kind in ("pn", "wn")
    ),
    *(
        clothes(
            f"luo-bn-is-{kind}-and-decay-16",
            f"BN does what {kind.upper()} with predicted gamma decay does (within 0.05 nats) "
            "(batches of 16)",
            (BN_16, with_decay(kind)),
            PREDICTED,
            kind="same",
            measure="test_loss",
            margin=0.05,
        )
        for kind in ("pn", "wn")
    ),
    *in_batches_of(64),
    *in_batches_of(256),
)

PAPER = Paper(
    "The regularization in batch normalization (Luo et al. 2019)", "bn-fig2cd/curves.png", CLAIMS
)
