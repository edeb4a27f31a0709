"""Luo et al. 2019, the regularization in batch normalization."""

from typing import Any

from experiments.verdicts.claim import Claim, Decider, method, row

PAPER = "The regularization in batch normalization (Luo et al. 2019)"

_FIG2CD = "cifar10-jpeg/bn-fig2cd/results.csv"
_HALVES = {"mean": "WN + mean-only BN", "variance": "WN + variance-only BN"}


def _on_photographs(word: str, says: str, better: str, worse: str, **changes: Any) -> Claim:
    return Claim(
        f"luo-{word}",
        "Figure 2(c, d)",
        says,
        _FIG2CD,
        row(better, ""),
        row(worse, ""),
        decider=Decider("bn/fig2cd", ((better, ""), (worse, ""))),
        **changes,
    )


def _decays(batch: int) -> tuple[Claim, ...]:
    """Of gamma decay in the place of the noise of minibatches."""
    pairs = (
        ("pn+gamma-decay", "bn", "PN + gamma decay does better than BN"),
        ("pn+gamma-decay", "pn", "gamma decay improves PN"),
        ("wn+gamma-decay", "wn", "gamma decay improves WN"),
    )
    rows = {"pn+gamma-decay": "PN + gamma decay", "pn": "PN", "bn": "BN, M = 128"}
    return tuple(
        Claim(
            f"luo-{better.replace('+', '-')}-{worse}-{batch}",
            "section 4.1" if worse == "wn" else "Figure 2(a, b)",
            f"{says} (batches of {batch})",
            f"gamma-decay/{batch}/results.csv",
            method(better),
            method(worse),
            data="Fashion-MNIST",
            # The paper trains no deep network with WN + gamma decay.
            decider=None
            if worse == "wn"
            else Decider("bn/fig2ab", ((rows[better], ""), (rows[worse], ""))),
        )
        for better, worse, says in pairs
    )


CLAIMS = (
    _on_photographs("bn-over-sgd", "BN generalizes better than nothing", "BN", "SGD"),
    _on_photographs("bn-over-wn", "BN generalizes better than WN", "BN", "WN"),
    _on_photographs("bn-over-sgd-loss", "the same in test loss", "BN", "SGD", measure="test_loss"),
    *(
        _on_photographs(f"{half}-over-wn", f"{half}-only BN improves WN", name, "WN")
        for half, name in _HALVES.items()
    ),
    *(
        _on_photographs(
            f"bn-over-{half}", f"each half does less: BN is better than {name}", "BN", name
        )
        for half, name in _HALVES.items()
    ),
    *_decays(256),
    *_decays(32),
)
