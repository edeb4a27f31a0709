"""Whether a sample has one mode: the dip test (Hartigan and Hartigan 1985)."""

import functools

import diptest
import numpy as np
from jaxtyping import Bool, Float

#: The values of a unit that are tested, and the uniform samples that its dip is compared with.
TESTED, DRAWS = 300, 400
#: The share of uniform samples that count as having several modes.
LEVEL = 0.05


@functools.cache
def critical_dip(rows: int) -> float:
    """The dip that a share of `LEVEL` of uniform samples of so many rows exceed.

    Of all distributions with one mode the uniform one has the largest dips, nearly.
    """
    random = np.random.default_rng(0)
    dips = [diptest.dipstat(random.uniform(size=rows)) for _ in range(DRAWS)]
    return float(np.quantile(dips, 1 - LEVEL))


def multimodal(values: Float[np.ndarray, "rows units"]) -> Bool[np.ndarray, " units"]:
    """Which units have more than one mode, by the dip test on the first `TESTED` rows."""
    tested = np.asarray(values[:TESTED], np.float64)
    return np.array([diptest.dipstat(unit) for unit in tested.T]) > critical_dip(len(tested))
