"""Variance constancy loss in float64 NumPy, unit by unit, as in the paper and its authors' code."""

from typing import Any

import numpy as np


def unit_loss(pair: Any, beta: Any) -> Any:
    """(1 - s1^2 / (s2^2 + beta))^2 of two samples of one unit."""
    first, second = (np.asarray(sample, np.float64).ravel() for sample in pair)
    return (1 - first.var(ddof=1) / (second.var(ddof=1) + beta)) ** 2


def variance_constancy(
    x: Any, beta: Any, n: int, sample_axes: tuple[int, ...] = (0,), groups: int = 1
) -> float:
    """Mean over groups and units, for the first two consecutive subsets of n samples."""
    wide = np.asarray(x, np.float64)
    positions = [axis for axis in range(1, wide.ndim) if axis in sample_axes]
    units = [axis for axis in range(1, wide.ndim) if axis not in sample_axes]
    units_last = np.transpose(wide, (0, *positions, *units))
    count = int(np.prod([wide.shape[axis] for axis in positions], dtype=int))
    flat = units_last.reshape(len(wide), count, -1)
    betas = np.broadcast_to(np.asarray(beta, np.float64).ravel(), flat.shape[2])
    terms = [
        unit_loss((part[:n, :, unit], part[n : 2 * n, :, unit]), betas[unit])
        for part in np.split(flat, groups)
        for unit in range(flat.shape[2])
    ]
    return float(np.mean(terms))
