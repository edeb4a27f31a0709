"""Ikami et al. 2021, constrained weight optimization."""

from experiments.verdicts.claim import Claim, Decider, method, row
from experiments.verdicts.claims.cwo_parts import DATA, LONG, OWN_RATE, PARTS, TUNED, table

PAPER = "Constrained weight optimization (Ikami et al. 2021)"
PICTURE = "photographs/curves.png"

_TAB2, _FOUR = "cifar10-jpeg/cwo-tab2/results.csv", "batches/4/results.csv"
_CNN = "CNN, CIFAR-10, standard"


NOTE = (
    "Our `cwo` also clips each layer's gradient at 1, of which the paper says nothing; its noise "
    "is 0.1 unless a row says otherwise, where the paper gives no size for a plain network."
)

_CLIPPED = "our runs clip each layer's gradient, of which the paper says nothing"
_UNCLIPPED = Decider(
    "", said="the same command without the part `ClippedByLayer` in `experiments/methods/table.py`"
)


def _tab1(*rows: str) -> Decider:
    return Decider("cwo/tab1", tuple((name, _CNN) for name in rows))


def _as_bn(name: str, place: str, says: str, results: str, better: str = "cwo") -> Claim:
    """Of what is said to be as good as batch normalization, or better."""
    sides = method(better), method("bn")
    return Claim(name, place, says, results, *sides, margin=1.0, decider=_tab1("Ours", "BN"))


def _trains(
    name: str,
    place: str,
    says: str,
    results: str,
    side: str = "cwo",
    *,
    data: str = "photographs",
    scale: str = _CLIPPED,
) -> Claim:
    """Of what is said to train, which ours does with clipping."""
    return Claim(
        name,
        place,
        says,
        results,
        method(side),
        kind="trains",
        about="training",
        data=data,
        scale=scale,
        decider=_UNCLIPPED,
    )


CLAIMS = (
    _as_bn(
        "cwo-as-bn",
        "Table 1, section 4.1.2",
        "both constraints and the noise: equal to or better than BN without normalizing an "
        "activation (within a point)",
        LONG,
    ),
    _as_bn(
        "cwo-as-bn-quiet",
        "Tables 1 and 3",
        "both constraints without noise: within a point of BN, or better",
        LONG,
        "cwo-centre-sphere",
    ),
    Claim(
        "cwo-over-gn",
        "Table 1",
        "better than GN",
        LONG,
        method("cwo"),
        method("gn"),
        decider=_tab1("Ours", "GN"),
    ),
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
        Claim(
            f"cwo-few-rows-{other}",
            "Table 1",
            f"{says}: few rows, rates tuned",
            TUNED,
            method("cwo"),
            method(other.replace("-", "+")),
            margin=margin,
            decider=_tab1("Ours", other.replace("-", "+").upper()),
        )
        for other, margin, says in (
            ("bn", 1.0, "as good as BN (within a point)"),
            ("ws-bn", 1.0, "as good as WS+BN (within a point)"),
            ("gn", 0.0, "better than GN"),
            ("ws-gn", 0.0, "better than WS+GN"),
        )
    ),
    Claim(
        "bn-over-gn",
        "Table 1",
        "BN is better than GN",
        LONG,
        method("bn"),
        method("gn"),
        decider=_tab1("BN", "GN"),
    ),
    Claim(
        "cwo-small-batch",
        "Table 2, section 4.1.3",
        "at a batch of 4 better than BN (rates tuned)",
        _FOUR,
        method("cwo"),
        method("bn"),
        decider=table(2, "Ours, B = 4", "BN, B = 4"),
    ),
    Claim(
        "cwo-middle-batch",
        "Table 2",
        "at a batch of 16 better than BN",
        _TAB2,
        row("Ours, B = 16", DATA),
        row("BN, B = 16", DATA),
        decider=table(2, "Ours, B = 16", "BN, B = 16"),
    ),
    Claim(
        "bn-small-batch",
        "Table 2, section 4.1.3",
        "BN is severely worse at a batch of 4 than at 128",
        _TAB2,
        row("BN, B = 128", DATA),
        row("BN, B = 4", DATA),
        scale="with few epochs the smaller batch has 32 times the steps, whatever normalizes",
        decider=table(2, "BN, B = 128", "BN, B = 4"),
    ),
    _as_bn(
        "cwo-own-rate-bn",
        "Table 1",
        "as good as BN (within a point; at the paper's rate of 0.1)",
        OWN_RATE,
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
