"""The measures of curves and csv files: their words, units, and better directions."""

import numpy as np
from jaxtyping import Float

Values = Float[np.ndarray, " pairs"]

#: The measures of the last epoch that every run has.
MEASURES = ("train_loss", "train_accuracy", "test_loss", "test_accuracy")

#: The assumed speed of one GPU: sustained operations per second, and small steps per second.
GPU_SPEED, GPU_STEPS = 15e12, 100.0

#: The words of measures that are not their names.
_WORDS = {
    "train_loss": "training loss",
    "train_accuracy": "training accuracy",
    "class_accuracy": "mean-class accuracy",
    "top5_accuracy": "top-5 accuracy",
    "mean_iou": "mIoU",
}


def words(measure: str) -> str:
    """Returns the words of a measure."""
    return _WORDS.get(measure, measure.replace("_", " "))


def heading(measure: str, as_error: bool = False) -> str:
    """Returns the heading of a measure, with % for a fraction; an accuracy also as an error."""
    name = words(measure)
    name = name.replace("accuracy", "error") if as_error else name
    return f"{name}, %" if is_fraction(measure) else name


def is_fraction(measure: str) -> bool:
    """True for measures that are shown in percent, and whose differences are in points."""
    return measure.endswith(("accuracy", "error", "change", "iou"))


def factor(measure: str) -> float:
    """Returns 100 for fractions, which are shown in percent, and 1 for other measures."""
    return 100.0 if is_fraction(measure) else 1.0


def unit(measure: str) -> str:
    """Returns the unit of differences, to stand behind a number."""
    others = {"kurtosis": "", "wins": " wins a set"}
    return " points" if is_fraction(measure) else others.get(measure, " nats")


def gains(measure: str, ours: Values, theirs: Values) -> Values:
    """Returns by how much one side is better than the other, pair by pair, in `unit`."""
    is_higher_better = measure == "wins" or measure.endswith(("accuracy", "iou"))
    return factor(measure) * (ours - theirs if is_higher_better else theirs - ours)
