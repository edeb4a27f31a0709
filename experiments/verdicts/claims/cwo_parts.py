"""Ikami et al. 2021, the parts of constrained weight optimization: both constraints, the noise."""

from typing import Any

from experiments.verdicts.claim import Claim, Decider, cells, method, of_rows

LONG = "photographs/results.csv"
#: Every rate chosen on held-out rows; few rows, which are fitted.
TUNED = "rivals/results.csv"
#: Few rows too, at the paper's own rate.
OWN_RATE = "rate-0.1/results.csv"
DATA = "CIFAR-10"

#: Rows of table 3, the methods that train them, and their names.
_ABLATIONS = (
    ("neither", "cwo-none", "neither"),
    ("centre", "cwo-centre", "centring alone"),
    ("sphere", "cwo-sphere", "the sphere alone"),
)


def table(number: int, *rows: str) -> Decider:
    """Rows of one of the paper's tables on CIFAR-10."""
    return cells(f"cwo/tab{number}", DATA, *rows)


def _noise(name: str, place: str, says: str, results: str, **changes: Any) -> Claim:
    """Of both constraints, with noise and without."""
    sides = method("cwo"), method("cwo-centre-sphere")
    decider = table(3, "both + noise", "both")
    return Claim(name, place, says, results, *sides, decider=decider, **changes)


PARTS = (
    *(
        Claim(
            f"cwo-{word}-over-{other}",
            "Table 3, section 4.1.4",
            f"both constraints are better than {said} ({rates})",
            results,
            method("cwo-centre-sphere"),
            method(name),
            decider=table(3, "both", other),
        )
        for word, results, rates in (
            ("both", TUNED, "rates tuned"),
            ("own-rate", OWN_RATE, "at the paper's rate of 0.1"),
        )
        for other, name, said in _ABLATIONS
    ),
    _noise(
        "cwo-own-rate-noise",
        "Tables 3 and 4, section 4.1.4",
        "noise improves both constraints (at the paper's rate of 0.1)",
        OWN_RATE,
    ),
    Claim(
        "cwo-centre-alone",
        "section 4.1.4",
        "centring alone can be worse than neither (rates tuned)",
        TUNED,
        method("cwo-none"),
        method("cwo-centre"),
        decider=table(3, "neither", "centre"),
    ),
    _noise(
        "cwo-noise",
        "Tables 3 and 4, section 4.1.4",
        "noise improves both constraints",
        LONG,
        scale="noise regularizes, and is said to pay over many more epochs, where rows are fitted",
    ),
    _noise(
        "cwo-noise-few-rows",
        "Tables 3 and 4, section 4.1.4",
        "the same, few rows, rates tuned",
        TUNED,
    ),
    Claim(
        "cwo-noise-loss",
        "Figure 2, section 4.1.4",
        "noise raises the final training loss",
        LONG,
        method("cwo-centre-sphere"),
        method("cwo"),
        measure="train_loss",
        decider=table(3, "both + noise", "both"),
    ),
    _noise(
        "cwo-noise-digits",
        "Tables 3 and 4",
        "noise improves both constraints (digits alone, more seeds)",
        "digits-noise/results.csv",
        data="digits",
    ),
    of_rows(
        "cwo-noise-of-04",
        "Table 4",
        "constant noise of 0.4 is better than none",
        "cwo/tab4",
        "constant, sigma = 0.4",
        "constant, sigma = 0",
        DATA,
    ),
    of_rows(
        "cwo-linear-noise",
        "Table 4",
        "noise growing to 1 is better than none",
        "cwo/tab4",
        "linear, sigma = 1",
        "constant, sigma = 0",
        DATA,
    ),
)
