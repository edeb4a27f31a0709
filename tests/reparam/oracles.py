"""Reparametrizations in float64 NumPy, one row per unit: dense bases, dense Jacobians, an SVD."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.oracles import Array


def householder_basis(size: int) -> Array:
    """The m x (m - 1) orthonormal basis of zero-sum vectors that LCW documents, in full.

    H = I - 2 u u' / u'u with u = e_0 - 1/sqrt(m) swaps e_0 and 1/sqrt(m); its other columns.
    """
    first = np.eye(size)[0]
    u = first - np.full(size, size**-0.5)
    return (np.eye(size) - 2 * np.outer(u, u) / (u @ u))[:, 1:]


def without_mean(v: Array) -> Array:
    return v @ _projector(v.shape[1], centers=True)


def constrained(v: Array, s: Any) -> Array:
    del s
    return v[:, 1:] @ householder_basis(v.shape[1]).T


def constrained_pullback(v: Array, s: Any, c: Array) -> tuple[Array, Any]:
    del s
    free = c @ householder_basis(v.shape[1])
    return np.concatenate([np.zeros((len(v), 1)), free], axis=1), None


def scaled(v: Array, s: Array) -> Array:
    return np.diag(s) @ v


def scaled_pullback(v: Array, s: Array, c: Array) -> tuple[Array, Array]:
    return np.diag(s) @ c, np.diag(c @ v.T)


def scaled_constrained(v: Array, s: Array) -> Array:
    return scaled(constrained(v, None), s)


def scaled_constrained_pullback(v: Array, s: Array, c: Array) -> tuple[Array, Array]:
    inner, outer = scaled_pullback(constrained(v, None), s, c)
    return constrained_pullback(v, None, inner)[0], outer


def spectral(v: Array, s: Any) -> Array:
    del s
    return v / np.linalg.svd(v, compute_uv=False)[0]


def spectral_pullback(v: Array, s: Any, c: Array) -> tuple[Array, Any]:
    """d sigma = u' dV v, so the gradient is (C - <C, W> u v') / sigma."""
    del s
    left, singular, right = np.linalg.svd(v)
    sigma = singular[0]
    return (c - (c * v / sigma).sum() * np.outer(left[:, 0], right[0])) / sigma, None


def normalized(centers: bool, standardizes: bool) -> Callable[[Array, Array], Array]:
    """s v / ||v||, or s (v - mean v) / ||v - mean v||, or with the deviation for the norm."""

    def value(v: Array, s: Array) -> Array:
        rows = []
        for unit, length in zip(v, s, strict=True):
            deviation = unit - unit.mean() if centers else unit
            divisor = unit.std() if standardizes else np.linalg.norm(deviation)
            rows.append(length * deviation / divisor)
        return np.stack(rows)

    return value


def normalized_pullback(
    centers: bool, standardizes: bool
) -> Callable[[Array, Array, Array], tuple[Array, Array]]:
    """The transposed dense Jacobian r s / ||u|| (I - u u' / u'u) P of each unit; u = P v."""

    def pullback(v: Array, s: Array, c: Array) -> tuple[Array, Array]:
        size = v.shape[1]
        radius, projector = np.sqrt(size) if standardizes else 1.0, _projector(size, centers)
        of_v, of_s = [], []
        for unit, length, cotangent in zip(v, s, c, strict=True):
            u = projector @ unit
            tangent = np.eye(size) - np.outer(u, u) / (u @ u)
            jacobian = radius * length / np.linalg.norm(u) * tangent @ projector
            of_v.append(jacobian.T @ cotangent)
            of_s.append(radius * u @ cotangent / np.linalg.norm(u))
        return np.stack(of_v), np.stack(of_s)

    return pullback


def _projector(size: int, centers: bool) -> Array:
    return np.eye(size) - (np.ones((size, size)) / size if centers else 0.0)
