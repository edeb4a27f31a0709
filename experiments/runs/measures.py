"""What is compared, by its name in curves and csv files: its unit, and which way is better."""

import numpy as np
from jaxtyping import Float

Values = Float[np.ndarray, " pairs"]


def is_fraction(measure: str) -> bool:
    """Whether it is shown in percent, and differences of it in points."""
    return measure.endswith(("accuracy", "error", "change"))


def factor(measure: str) -> float:
    """From fractions to percent; 1 for what is no fraction."""
    return 100.0 if is_fraction(measure) else 1.0


def unit(measure: str) -> str:
    """That of differences, behind a number."""
    others = {"kurtosis": "", "wins": " wins a set"}
    return " points" if is_fraction(measure) else others.get(measure, " nats")


def gains(measure: str, ours: Values, theirs: Values) -> Values:
    """By how much the one side is better than the other, pair by pair, in that unit."""
    is_higher_better = measure == "wins" or measure.endswith("accuracy")
    return factor(measure) * (ours - theirs if is_higher_better else theirs - ours)
