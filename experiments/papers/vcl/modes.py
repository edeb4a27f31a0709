"""Whether a sample has one mode: the dip test."""

import functools

import numpy as np
from jaxtyping import Float, Int

#: The values of a unit that are tested, and the uniform samples that its dip is compared with.
TESTED, DRAWS = 300, 400
#: The share of uniform samples that count as having several modes.
LEVEL = 0.05


def dip(values: Float[np.ndarray, " rows"]) -> float:
    """The distance of a sample to the nearest distribution with one mode.

    The largest difference of distribution functions, from 1 / (2 rows) for samples that one mode
    explains to 1 / 4 for two far points. A distribution function of one mode is convex before it
    and concave after it; between the greatest convex minorant and the least concave majorant the
    modal interval is narrowed until the two are no farther apart than what lies outside of it.

    Args:
        values: any order; equal ones are told apart by their place.

    Source: Hartigan and Hartigan 1985 (the dip test of unimodality).
    """
    x = np.sort(np.asarray(values, np.float64))
    # Equal values make a vertical piece, whose slope no hull has.
    x = x + np.arange(len(x)) * 1e-9 * (x[-1] - x[0])
    low, high, found = 0, len(x) - 1, 1.0
    while low < high and x[-1] > x[0]:
        # Of the steps of the distribution function: from row (below) to row + 1 (above).
        rows = np.arange(low, high + 1)
        below, above = _hull(x, rows, 1.0), _hull(x, rows, -1.0)
        minorant = np.interp(x[rows], x[below], below)
        majorant = np.interp(x[rows], x[above], above + 1)
        touched = np.union1d(below, above)
        gaps = (majorant - minorant)[touched - low]
        if gaps.max() <= found:
            break
        widest = touched[gaps.argmax()]
        start = below[below <= widest][-1]
        end = above[above >= widest][0]
        before = (rows + 1 - minorant)[rows <= start].max()
        after = (majorant - rows)[rows >= end].max()
        found = max(found, before, after)
        if (start, end) == (low, high):
            break
        low, high = int(start), int(end)
    return float(found) / (2 * len(x))


def _hull(
    x: Float[np.ndarray, " all"], rows: Int[np.ndarray, " rows"], side: float
) -> Int[np.ndarray, " hull"]:
    """The rows at which the convex minorant (side 1) or concave majorant (side -1) has corners."""
    # Each corner with its place: the way through the last two and the next row must turn.
    kept: list[tuple[int, float]] = []
    for row, place in zip(rows.tolist(), x[rows].tolist(), strict=True):
        while len(kept) > 1:
            (first, start), (second, middle) = kept[-2:]
            turn = (row - second) * (middle - start) - (second - first) * (place - middle)
            if side * turn > 0:
                break
            kept.pop()
        kept.append((row, place))
    return np.array([row for row, _ in kept])


@functools.cache
def critical_dip(rows: int) -> float:
    """The dip that a share of `LEVEL` of uniform samples of so many rows exceed.

    Of all distributions with one mode the uniform one has the largest dips, nearly.
    """
    random = np.random.default_rng(0)
    dips = [dip(random.uniform(size=rows)) for _ in range(DRAWS)]
    return float(np.quantile(dips, 1 - LEVEL))


def multimodal(values: Float[np.ndarray, "rows units"]) -> np.ndarray:
    """Which units have more than one mode, by the dip test on the first `TESTED` rows."""
    tested = values[:TESTED]
    return np.array([dip(unit) for unit in tested.T]) > critical_dip(len(tested))
