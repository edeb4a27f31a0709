"""Claims of Luo et al. 2019, the regularization in batch normalization."""

from functools import partial
from typing import Any

from experiments.analysis.verdicts.claim import Claim, Paper, Side, Source, Table, side, sides

ORDER = Table("Figure 2(c, d)", "bn/fig2cd")
DECAY = Table("Figure 2(a, b)", "bn/fig2ab")
PREDICTED = Table("section 4.1, Figure 2(a, b)", "bn/fig2ab")("PN + gamma decay", "BN, M = 128")
STRENGTH = Source("section 4.1", "bn/fig1a", otherwise="hours on a GPU with 32 GB (estimated)")

#: The rows of the figure, by method.
ROWS = {
    "none": "SGD",
    "bn": "BN",
    "wn": "WN",
    "wn+mean-only-bn": "WN + mean-only BN",
    "wn+variance-only-bn": "WN + variance-only BN",
}

BN_16 = side("luo/strength/1-ten-seeds", "bn")
clothes = partial(Claim, data="Fashion-MNIST")


def with_decay(kind: str) -> Side:
    """Returns the runs of pn or wn with gamma decay of the predicted strength."""
    return side("luo/strength/1-ten-seeds", f"{kind}+gamma-decay", f"{kind}, predicted decay")


def without_decay(kind: str) -> Side:
    """Returns the same runs without the decay."""
    return side("luo/strength/0-ten-seeds", f"{kind}+gamma-decay", f"{kind}, no decay")


def ordered(
    name: str, says: str, better: str, worse: str, folder: str = "bn-fig2cd", **fields: Any
) -> Claim:
    """Returns a claim on the figure of BN, WN and the halves of BN."""
    source = ORDER(ROWS[better], ROWS[worse])
    return Claim(f"luo-{name}", says, sides(folder, better, worse), source, **fields)


def in_batches_of(rows: int) -> tuple[Claim, ...]:
    """Returns the claims on networks that are trained in batches of so many rows."""
    decayed, mean, variance = "pn+gamma-decay", "wn+mean-only-bn", "wn+variance-only-bn"
    decay_row = "PN + gamma decay"
    claims = (
        (f"{decay_row} does better than BN", decayed, "bn", DECAY(decay_row, "BN, M = 128")),
        ("gamma decay improves PN", decayed, "pn", DECAY(decay_row, "PN")),
        ("gamma decay improves WN", "wn+gamma-decay", "wn", STRENGTH),
        ("mean-only BN improves WN", mean, "wn", ORDER(ROWS[mean], "WN")),
        ("variance-only BN improves WN", variance, "wn", ORDER(ROWS[variance], "WN")),
        (f"BN is better than {ROWS[mean]}", "bn", mean, ORDER("BN", ROWS[mean])),
        (f"BN is better than {ROWS[variance]}", "bn", variance, ORDER("BN", ROWS[variance])),
    )
    return tuple(
        clothes(
            f"luo-{better}-{worse}-{rows}".replace("+", "-"),
            f"{says} (batches of {rows})",
            sides(f"luo/{rows}-ten-seeds", better, worse),
            source,
        )
        for says, better, worse, source in claims
    )


HALVES = "each half does less: BN is better than"

CLAIMS = (
    ordered("bn-over-sgd", "BN generalizes better than nothing", "bn", "none"),
    ordered("bn-over-wn", "BN generalizes better than WN", "bn", "wn"),
    ordered("bn-over-sgd-loss", "the same in test loss", "bn", "none", measure="test_loss"),
    ordered("mean-over-wn", "mean-only BN improves WN", "wn+mean-only-bn", "wn"),
    ordered("variance-over-wn", "variance-only BN improves WN", "wn+variance-only-bn", "wn"),
    ordered(
        "bn-over-mean",
        f"{HALVES} WN + mean-only BN",
        "bn",
        "wn+mean-only-bn",
        folder="bn-fig2cd-ten-seeds",
    ),
    ordered("bn-over-variance", f"{HALVES} WN + variance-only BN", "bn", "wn+variance-only-bn"),
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
