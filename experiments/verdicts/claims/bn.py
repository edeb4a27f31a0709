"""Luo et al. 2019, the regularization in batch normalization."""

from typing import Any

from experiments.verdicts.claim import Claim, Side, cells, method, of, of_rows

PAPER = "The regularization in batch normalization (Luo et al. 2019)"
PICTURE = "cifar10-jpeg/bn-fig2cd/curves.png"

_HALVES = {"mean": "WN + mean-only BN", "variance": "WN + variance-only BN"}


def _on_photographs(word: str, says: str, better: str, worse: str, **changes: Any) -> Claim:
    sides = better, worse, ""
    return of_rows(f"luo-{word}", "Figure 2(c, d)", says, "bn/fig2cd", *sides, **changes)


#: (better, worse, what the paper says, the item that would decide).
_ON_CLOTHES = (
    ("pn+gamma-decay", "bn", "PN + gamma decay does better than BN", "bn/fig2ab"),
    ("pn+gamma-decay", "pn", "gamma decay improves PN", "bn/fig2ab"),
    ("wn+gamma-decay", "wn", "gamma decay improves WN", "bn/fig1a"),
    *((f"wn+{half}-only-bn", "wn", f"{half}-only BN improves WN", "bn/fig2cd") for half in _HALVES),
    *(
        ("bn", f"wn+{half}-only-bn", f"BN is better than {name}", "bn/fig2cd")
        for half, name in _HALVES.items()
    ),
)
#: Of these items the places, and the rows of methods where it is a table.
_ITEMS: dict[str, tuple[str, dict[str, str]]] = {
    "bn/fig1a": ("section 4.1", {}),
    "bn/fig2ab": (
        "Figure 2(a, b)",
        {"bn": "BN, M = 128", "pn": "PN", "pn+gamma-decay": "PN + gamma decay"},
    ),
    "bn/fig2cd": (
        "Figure 2(c, d)",
        {"bn": "BN", "wn": "WN", **{f"wn+{half}-only-bn": name for half, name in _HALVES.items()}},
    ),
}


def _on_clothes(batch: int, better: str, worse: str, says: str, item: str) -> Claim:
    """Of networks of three layers on Fashion-MNIST, every rate tuned alike."""
    place, rows = _ITEMS[item]
    return Claim(
        f"luo-{better}-{worse}-{batch}".replace("+", "-"),
        place,
        f"{says} (batches of {batch})",
        f"luo/{batch}/results.csv",
        method(better),
        method(worse),
        data="Fashion-MNIST",
        decider=cells(item, "", *(rows[each] for each in (better, worse) if rows)),
    )


_STRENGTH = {times: f"luo/strength/{times}/results.csv" for times in (0, 1)}


def _at_16(word: str, says: str, better: Side, worse: Side, **changes: Any) -> Claim:
    """Where batches are small, and batch normalization regularizes: batches of 16."""
    return Claim(
        f"luo-{word}-16",
        "section 4.1, Figure 2(a, b)",
        f"{says} (batches of 16)",
        _STRENGTH[1],
        better,
        worse,
        measure="test_loss",
        data="Fashion-MNIST",
        decider=cells("bn/fig2ab", "", "PN + gamma decay", "BN, M = 128"),
        **changes,
    )


def _decayed(name: str, times: int) -> Side:
    side = method(f"{name}+gamma-decay")
    return of(side, _STRENGTH[times], f"{name}, {('no', 'predicted')[times]} decay")


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
    *(
        _at_16(
            f"decay-helps-{name}",
            f"gamma decay of the predicted strength improves {name.upper()}",
            _decayed(name, 1),
            _decayed(name, 0),
        )
        for name in ("pn", "wn")
    ),
    *(
        _at_16(
            f"bn-is-{name}-and-decay",
            f"BN does what {name.upper()} with predicted gamma decay does (within 0.05 nats)",
            method("bn"),
            _decayed(name, 1),
            kind="same",
            margin=0.05,
        )
        for name in ("pn", "wn")
    ),
    *(_on_clothes(batch, *claimed) for batch in (64, 256) for claimed in _ON_CLOTHES),
)
