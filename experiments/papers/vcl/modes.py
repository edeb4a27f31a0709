"""Tests for several modes of a sample: the dip test (Hartigan and Hartigan 1985)."""

import functools

import diptest
import numpy as np
from jaxtyping import Bool, Float

#: The number of values tested per unit, and of uniform samples to compare its dip with.
TESTED, DRAWS = 300, 400
#: The level of the test: the share of uniform samples that count as multimodal.
LEVEL = 0.05


@functools.cache
def critical_dip(rows: int) -> float:
    """Returns the dip that a share `LEVEL` of uniform samples of so many rows exceed.

    Among unimodal distributions the uniform one has nearly the largest dips.
    """
    random = np.random.default_rng(0)
    dips = [diptest.dipstat(random.uniform(size=rows)) for _ in range(DRAWS)]
    return float(np.quantile(dips, 1 - LEVEL))


def multimodal(values: Float[np.ndarray, "rows units"]) -> Bool[np.ndarray, " units"]:
    """Tests which units have more than one mode, on the first `TESTED` rows."""
    tested = np.asarray(values[:TESTED], np.float64)
    return np.array([diptest.dipstat(unit) for unit in tested.T]) > critical_dip(len(tested))
