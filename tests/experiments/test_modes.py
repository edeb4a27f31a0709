"""The dip against its definition as a linear program, and the test's level and power."""

import itertools

import numpy as np
import pytest
from scipy.optimize import linprog

from experiments.papers.vcl.modes import LEVEL, critical_dip, dip, multimodal


def dip_by_definition(values):
    """The least d such that some G within d of the sample's distribution function has one mode.

    G is linear between the sample's points, convex up to one of them and concave from there on,
    where it may jump; G(x-) and G(x) are within d of F(x-) and F(x).
    """
    x = np.sort(values)
    n = len(x)
    best = np.inf
    for mode in range(n):
        # Variables: G(x_i) for all i, G(mode-), d.
        rows, bounds = [], []

        def require(row, bound, rows=rows, bounds=bounds):
            rows.append(row)
            bounds.append(bound)

        def unit(index, scale=1.0):
            row = np.zeros(n + 2)
            row[index] = scale
            return row

        d = unit(n + 1)
        for i in range(n):
            before, at = (n, i) if i == mode else (i, i)
            require(unit(before) - d, i / n)
            require(-unit(before) - d, -i / n)
            require(unit(at) - d, (i + 1) / n)
            require(-unit(at) - d, -(i + 1) / n)
        left = [*range(mode), n]
        right = [*range(mode, n)]
        places = np.append(x, x[mode])
        require(unit(n) - unit(mode), 0)  # The jump is upwards.
        for side, sign in ((left, 1), (right, -1)):
            slopes = [
                (unit(b) - unit(a)) / (places[b] - places[a]) for a, b in itertools.pairwise(side)
            ]
            for slope in slopes:
                require(-slope, 0)
            for one, other in itertools.pairwise(slopes):
                require(sign * (one - other), 0)
        found = linprog(d, np.array(rows), bounds, bounds=[(None, None)] * (n + 2))
        best = min(best, found.fun if found.success else np.inf)
    return best


@pytest.mark.parametrize("seed", range(4))
def test_the_dip_is_the_distance_to_one_mode(seed):
    random = np.random.default_rng(seed)
    values = np.concatenate([random.normal(size=5), random.normal(seed * 2, 0.5, size=5)])
    assert dip(values) == pytest.approx(dip_by_definition(values), abs=1e-6)


def test_the_least_and_the_largest_dip():
    assert dip(np.arange(20.0)) == pytest.approx(1 / 40)
    assert dip(np.repeat([0.0, 1.0], 500)) == pytest.approx(0.25, abs=2e-3)
    assert dip(np.ones(5)) == pytest.approx(0.1)


def test_two_modes_are_found_and_one_is_left_alone():
    random = np.random.default_rng(3)
    one = random.normal(size=(300, 40))
    two = one + 4 * random.integers(0, 2, size=one.shape)
    skewed = np.exp(one)
    assert multimodal(two).mean() > 0.9
    assert multimodal(one).mean() <= LEVEL
    assert multimodal(skewed).mean() <= LEVEL
    assert 0.02 < critical_dip(300) < 0.05
