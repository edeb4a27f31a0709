"""Luo et al. 2019, the regularization in batch normalization."""

from typing import Any

from experiments.verdicts.claim import Claim, Decider, method, row

PAPER = "The regularization in batch normalization (Luo et al. 2019)"
PICTURE = "cifar10-jpeg/bn-fig2cd/curves.png"

_FIG2CD = "cifar10-jpeg/bn-fig2cd/results.csv"
_HALVES = {"mean": "WN + mean-only BN", "variance": "WN + variance-only BN"}


def _decider(*rows: str) -> Decider:
    return Decider("bn/fig2cd", tuple((name, "") for name in rows))


def _on_photographs(word: str, says: str, better: str, worse: str, **changes: Any) -> Claim:
    return Claim(
        f"luo-{word}",
        "Figure 2(c, d)",
        says,
        _FIG2CD,
        row(better, ""),
        row(worse, ""),
        decider=_decider(better, worse),
        **changes,
    )


#: (better, worse, what the paper says, where, its rows at its own size).
_ON_CLOTHES = (
    (
        "pn+gamma-decay",
        "bn",
        "PN + gamma decay does better than BN",
        Decider("bn/fig2ab", (("PN + gamma decay", ""), ("BN, M = 128", ""))),
    ),
    (
        "pn+gamma-decay",
        "pn",
        "gamma decay improves PN",
        Decider("bn/fig2ab", (("PN + gamma decay", ""), ("PN", ""))),
    ),
    ("wn+gamma-decay", "wn", "gamma decay improves WN", Decider("bn/fig1a")),
    *(
        (f"wn+{half}-only-bn", "wn", f"{half}-only BN improves WN", _decider(name, "WN"))
        for half, name in _HALVES.items()
    ),
    *(
        ("bn", f"wn+{half}-only-bn", f"BN is better than {name}", _decider("BN", name))
        for half, name in _HALVES.items()
    ),
)
_PLACES = {"bn/fig1a": "section 4.1", "bn/fig2ab": "Figure 2(a, b)", "bn/fig2cd": "Figure 2(c, d)"}


def _on_clothes(batch: int) -> tuple[Claim, ...]:
    """Of networks of three layers on Fashion-MNIST, every rate tuned alike."""
    return tuple(
        Claim(
            f"luo-{better}-{worse}-{batch}".replace("+", "-"),
            _PLACES[decider.item],
            f"{says} (batches of {batch})",
            f"luo/{batch}/results.csv",
            method(better),
            method(worse),
            data="Fashion-MNIST",
            decider=decider,
        )
        for better, worse, says, decider in _ON_CLOTHES
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
    *_on_clothes(64),
    *_on_clothes(256),
)
