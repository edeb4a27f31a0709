"""What is compared, by its name in curves and csv files: its words, unit, and better direction."""

import numpy as np
from jaxtyping import Float

Values = Float[np.ndarray, " pairs"]

#: Those of the last epoch that every run has.
MEASURES = ("train_loss", "train_accuracy", "test_loss", "test_accuracy")

#: How some are called; the others by their names.
_WORDS = {
    "train_loss": "training loss",
    "train_accuracy": "training accuracy",
    "class_accuracy": "mean-class accuracy",
    "top5_accuracy": "top-5 accuracy",
}


def words(measure: str) -> str:
    """How it is called."""
    return _WORDS.get(measure, measure.replace("_", " "))


def heading(measure: str, as_error: bool = False) -> str:
    """How it is called above its numbers, with %; an accuracy also as an error."""
    name = words(measure)
    name = name.replace("accuracy", "error") if as_error else name
    return f"{name}, %" if is_fraction(measure) else name


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
