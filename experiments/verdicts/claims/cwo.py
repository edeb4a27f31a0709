"""Ikami et al. 2021, constrained weight optimization."""

from typing import Any

from experiments.verdicts.claim import Claim, Decider, cells, method, of_rows
from experiments.verdicts.claims.cwo_parts import DATA, LONG, OWN_RATE, PARTS, TUNED, table

PAPER = "Constrained weight optimization (Ikami et al. 2021)"
PICTURE = "photographs/curves.png"

_CNN = "CNN, CIFAR-10, standard"


NOTE = (
    "Our `cwo` also clips each layer's gradient at 1, of which the paper says nothing; its noise "
    "is 0.1 unless a row says otherwise, where the paper gives no size for a plain network."
)

_CLIPPED = "our runs clip each layer's gradient, of which the paper says nothing"
_UNCLIPPED = Decider(
    "", said="the same command without the part `ClippedByLayer` in `experiments/methods/table.py`"
)


def _table_1(
    name: str,
    says: str,
    results: str,
    better: str,
    worse: str,
    place: str = "Table 1",
    **changes: Any,
) -> Claim:
    """Of two methods of a comparison, which rows of table 1 would decide."""
    rows = ("Ours" if each.startswith("cwo") else each.upper() for each in (better, worse))
    sides, decider = (method(better), method(worse)), cells("cwo/tab1", _CNN, *rows)
    return Claim(name, place, says, results, *sides, decider=decider, **changes)


def _trains(
    name: str, place: str, says: str, results: str, side: str = "cwo", **changes: Any
) -> Claim:
    """Of what is said to train, which ours does with clipping."""
    kind: dict[str, Any] = {"kind": "trains", "about": "training", "decider": _UNCLIPPED}
    return Claim(name, place, says, results, method(side), **kind, **{"scale": _CLIPPED, **changes})


CLAIMS = (
    _table_1(
        "cwo-as-bn",
        "both constraints and the noise: equal to or better than BN without normalizing an "
        "activation (within a point)",
        LONG,
        "cwo",
        "bn",
        "Table 1, section 4.1.2",
        margin=1.0,
    ),
    _table_1(
        "cwo-as-bn-quiet",
        "both constraints without noise: within a point of BN, or better",
        LONG,
        "cwo-centre-sphere",
        "bn",
        "Tables 1 and 3",
        margin=1.0,
    ),
    _table_1("cwo-over-gn", "better than GN", LONG, "cwo", "gn"),
    _trains(
        "cwo-trains",
        "section 3.5",
        "trains stably at a rate of 0.1, the gradient not being divided by the weights' size",
        LONG,
    ),
    _trains(
        "cwo-trains-wide",
        "section 4.1.1",
        "the same at the paper's width of 64 channels",
        "width64/results.csv",
    ),
    *(
        _table_1(
            f"cwo-few-rows-{other.replace('+', '-')}",
            f"{says}: few rows, rates tuned",
            TUNED,
            "cwo",
            other,
            margin=margin,
        )
        for other, margin, says in (
            ("bn", 1.0, "as good as BN (within a point)"),
            ("ws+bn", 1.0, "as good as WS+BN (within a point)"),
            ("gn", 0.0, "better than GN"),
            ("ws+gn", 0.0, "better than WS+GN"),
        )
    ),
    _table_1("bn-over-gn", "BN is better than GN", LONG, "bn", "gn"),
    Claim(
        "cwo-small-batch",
        "Table 2, section 4.1.3",
        "at a batch of 4 better than BN (rates tuned)",
        "batches/4/results.csv",
        method("cwo"),
        method("bn"),
        decider=table(2, "Ours, B = 4", "BN, B = 4"),
    ),
    of_rows(
        "cwo-middle-batch",
        "Table 2",
        "at a batch of 16 better than BN",
        "cwo/tab2",
        "Ours, B = 16",
        "BN, B = 16",
        DATA,
    ),
    of_rows(
        "bn-small-batch",
        "Table 2, section 4.1.3",
        "BN is severely worse at a batch of 4 than at 128",
        "cwo/tab2",
        "BN, B = 128",
        "BN, B = 4",
        DATA,
        scale="with few epochs the smaller batch has 32 times the steps, whatever normalizes",
    ),
    _table_1(
        "cwo-own-rate-bn",
        "as good as BN (within a point; at the paper's rate of 0.1)",
        OWN_RATE,
        "cwo",
        "bn",
        margin=1.0,
    ),
    _trains(
        "cwo-linear-trains",
        "section 3.3, Table 4",
        "a residual network trains with noise that grows to 1 (digits alone)",
        "narrow/results.csv",
        "cwo-linear",
        data="digits",
    ),
    _trains(
        "cwo-linear-resnet110",
        "section 3.3, Table 4",
        "ResNet-110 trains with growing noise (digits alone)",
        "resnet110/results.csv",
        "cwo-linear",
        data="digits",
        scale=f"its branches start more quietly than the paper says, and {_CLIPPED}",
    ),
    *PARTS,
)
