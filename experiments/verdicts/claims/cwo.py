"""Ikami et al. 2021, constrained weight optimization."""

from experiments.verdicts.claim import Claim, Decider, method, row

PAPER = "Constrained weight optimization (Ikami et al. 2021)"
PICTURE = "photographs/curves.png"

_TAB2, _TAB4 = (f"cifar10-jpeg/cwo-tab{n}/results.csv" for n in (2, 4))
_LONG = "photographs/results.csv"
#: Every rate chosen on held-out rows; few rows, which are fitted.
_TUNED = "rivals/results.csv"
_FOUR = "batches/4/results.csv"
#: Few rows too, at the paper's own rate.
_OWN_RATE = "rate-0.1/results.csv"
_CNN = "CNN, CIFAR-10, standard"
_DATA = "CIFAR-10"


NOTE = (
    "Our `cwo` also clips each layer's gradient at 1, of which the paper says nothing; its noise "
    "is 0.1 unless a row says otherwise, where the paper gives no size for a plain network."
)

_CLIPPED = "our runs clip each layer's gradient, of which the paper says nothing"
_UNCLIPPED = Decider(
    "", said="the same command without the part `ClippedByLayer` in `experiments/methods/table.py`"
)


#: Rows of table 3, the methods that train them, and their names.
_ABLATIONS = (
    ("neither", "cwo-none", "neither"),
    ("centre", "cwo-centre", "centring alone"),
    ("sphere", "cwo-sphere", "the sphere alone"),
)


def _tab1(*rows: str) -> Decider:
    return Decider("cwo/tab1", tuple((name, _CNN) for name in rows))


def _table(number: int, *rows: str) -> Decider:
    return Decider(f"cwo/tab{number}", tuple((name, _DATA) for name in rows))


CLAIMS = (
    Claim(
        "cwo-as-bn",
        "Table 1, section 4.1.2",
        "both constraints and the noise: equal to or better than BN without normalizing an "
        "activation (within a point)",
        _LONG,
        method("cwo"),
        method("bn"),
        margin=1.0,
        decider=_tab1("Ours", "BN"),
    ),
    Claim(
        "cwo-as-bn-quiet",
        "Tables 1 and 3",
        "both constraints without noise: within a point of BN, or better",
        _LONG,
        method("cwo-centre-sphere"),
        method("bn"),
        margin=1.0,
        decider=_tab1("Ours", "BN"),
    ),
    Claim(
        "cwo-over-gn",
        "Table 1",
        "better than GN",
        _LONG,
        method("cwo"),
        method("gn"),
        decider=_tab1("Ours", "GN"),
    ),
    Claim(
        "cwo-trains",
        "section 3.5",
        "trains stably at a rate of 0.1, the gradient not being divided by the weights' size",
        _LONG,
        method("cwo"),
        kind="trains",
        about="training",
        scale=_CLIPPED,
        decider=_UNCLIPPED,
    ),
    Claim(
        "cwo-trains-wide",
        "section 4.1.1",
        "the same at the paper's width of 64 channels",
        "width64/results.csv",
        method("cwo"),
        kind="trains",
        about="training",
        scale=_CLIPPED,
        decider=_UNCLIPPED,
    ),
    *(
        Claim(
            f"cwo-few-rows-{other}",
            "Table 1",
            f"{says}: few rows, rates tuned",
            _TUNED,
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
        _LONG,
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
        decider=_table(2, "Ours, B = 4", "BN, B = 4"),
    ),
    Claim(
        "cwo-middle-batch",
        "Table 2",
        "at a batch of 16 better than BN",
        _TAB2,
        row("Ours, B = 16", _DATA),
        row("BN, B = 16", _DATA),
        decider=_table(2, "Ours, B = 16", "BN, B = 16"),
    ),
    Claim(
        "bn-small-batch",
        "Table 2, section 4.1.3",
        "BN is severely worse at a batch of 4 than at 128",
        _TAB2,
        row("BN, B = 128", _DATA),
        row("BN, B = 4", _DATA),
        scale="with few epochs the smaller batch has 32 times the steps, whatever normalizes",
        decider=_table(2, "BN, B = 128", "BN, B = 4"),
    ),
    *(
        Claim(
            f"cwo-both-over-{other}",
            "Table 3, section 4.1.4",
            f"both constraints are better than {said} (rates tuned)",
            _TUNED,
            method("cwo-centre-sphere"),
            method(name),
            decider=_table(3, "both", other),
        )
        for other, name, said in _ABLATIONS
    ),
    *(
        Claim(
            f"cwo-own-rate-over-{other}",
            "Table 3, section 4.1.4",
            f"both constraints are better than {said} (at the paper's rate of 0.1)",
            _OWN_RATE,
            method("cwo-centre-sphere"),
            method(name),
            decider=_table(3, "both", other),
        )
        for other, name, said in _ABLATIONS
    ),
    Claim(
        "cwo-own-rate-noise",
        "Tables 3 and 4, section 4.1.4",
        "noise improves both constraints (at the paper's rate of 0.1)",
        _OWN_RATE,
        method("cwo"),
        method("cwo-centre-sphere"),
        decider=_table(3, "both + noise", "both"),
    ),
    Claim(
        "cwo-own-rate-bn",
        "Table 1",
        "as good as BN (within a point; at the paper's rate of 0.1)",
        _OWN_RATE,
        method("cwo"),
        method("bn"),
        margin=1.0,
        decider=_tab1("Ours", "BN"),
    ),
    Claim(
        "cwo-centre-alone",
        "section 4.1.4",
        "centring alone can be worse than neither (rates tuned)",
        _TUNED,
        method("cwo-none"),
        method("cwo-centre"),
        decider=_table(3, "neither", "centre"),
    ),
    Claim(
        "cwo-noise",
        "Tables 3 and 4, section 4.1.4",
        "noise improves both constraints",
        _LONG,
        method("cwo"),
        method("cwo-centre-sphere"),
        scale="noise regularizes, and is said to pay over many more epochs, where rows are fitted",
        decider=_table(3, "both + noise", "both"),
    ),
    Claim(
        "cwo-noise-few-rows",
        "Tables 3 and 4, section 4.1.4",
        "the same, few rows, rates tuned",
        _TUNED,
        method("cwo"),
        method("cwo-centre-sphere"),
        decider=_table(3, "both + noise", "both"),
    ),
    Claim(
        "cwo-noise-loss",
        "Figure 2, section 4.1.4",
        "noise raises the final training loss",
        _LONG,
        method("cwo-centre-sphere"),
        method("cwo"),
        measure="train_loss",
        decider=_table(3, "both + noise", "both"),
    ),
    Claim(
        "cwo-noise-digits",
        "Tables 3 and 4",
        "noise improves both constraints (digits alone, more seeds)",
        "digits-noise/results.csv",
        method("cwo"),
        method("cwo-centre-sphere"),
        data="digits",
        decider=_table(3, "both + noise", "both"),
    ),
    *(
        Claim(
            f"cwo-linear-{word}",
            "section 3.3, Table 4",
            f"{says} (digits alone)",
            results,
            method("cwo-linear"),
            kind="trains",
            about="training",
            data="digits",
            scale=scale,
            decider=_UNCLIPPED,
        )
        for word, says, results, scale in (
            (
                "trains",
                "a residual network trains with noise that grows to 1",
                "narrow/results.csv",
                _CLIPPED,
            ),
            (
                "resnet110",
                "ResNet-110 trains with growing noise",
                "resnet110/results.csv",
                f"its branches start more quietly than the paper says, and {_CLIPPED}",
            ),
        )
    ),
    Claim(
        "cwo-noise-of-04",
        "Table 4",
        "constant noise of 0.4 is better than none",
        _TAB4,
        row("constant, sigma = 0.4", _DATA),
        row("constant, sigma = 0", _DATA),
        decider=_table(4, "constant, sigma = 0.4", "constant, sigma = 0"),
    ),
    Claim(
        "cwo-linear-noise",
        "Table 4",
        "noise growing to 1 is better than none",
        _TAB4,
        row("linear, sigma = 1", _DATA),
        row("constant, sigma = 0", _DATA),
        decider=_table(4, "linear, sigma = 1", "constant, sigma = 0"),
    ),
)
