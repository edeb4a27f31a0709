"""Integrals over the normal density in float64 NumPy: adaptive, so that kinks are seen."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float64

#: Values of one or more functions at the nodes: ``(nodes,) -> (nodes, *functions)``.
Integrand = Callable[[Float64[np.ndarray, " nodes"]], Float64[np.ndarray, "nodes ..."]]

#: Beyond it the density is below 1e-56.
LIMIT = 16.0
PANELS = 64
NODES = 15
#: The error a panel may have, relative to the integral of the absolute value over all panels.
TOLERANCE = 1e-14
#: A panel that was halved so often is as narrow as two float64 numbers.
HALVINGS = 52
#: What may be left over where halving did not help, on the same scale.
UNRESOLVED = 1e-11

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(NODES)


def gaussian_expectation(integrand: Integrand) -> Float64[np.ndarray, "..."]:
    """E f(Z), Z ~ N(0, 1), to about 1e-13 of E |f(Z)|: Gauss-Legendre panels, halved where needed.

    A panel is halved until its own rule and the rules of its two halves agree, so the panels close
    in on kinks and jumps wherever they are.

    Args:
        integrand: f, at a whole array of nodes at once; it may have values of any shape a node.

    Returns:
        The expectation, of the shape of one value.

    Raises:
        ValueError: for values that are not finite, and for an integral that does not converge.
    """
    edges = np.linspace(-LIMIT, LIMIT, PANELS + 1)
    left, right = edges[:-1], edges[1:]
    coarse = _panels(integrand, left, right)
    scale = np.abs(coarse).sum(0) + np.finfo(np.float64).tiny
    total = np.zeros_like(scale)
    for _ in range(HALVINGS):
        middle = (left + right) / 2
        halves = _halves(integrand, left, middle, right)
        fine = halves.sum(1)
        error = np.abs(fine - coarse)
        again = _any_function(error > TOLERANCE * scale)
        total = total + fine[~again].sum(0)
        if not again.any():
            return np.asarray(total)
        left, right = (
            np.stack([left, middle], 1)[again].ravel(),
            np.stack([middle, right], 1)[again].ravel(),
        )
        coarse = halves[again].reshape(-1, *scale.shape)
    if (error[again].sum(0) > UNRESOLVED * scale).any():
        raise ValueError(
            "the Gaussian moments of this activation do not converge; wanted a function whose "
            "square has a finite mean under N(0, 1)."
        )
    return np.asarray(total + coarse.sum(0))


def _any_function(flags: Bool[np.ndarray, "panels ..."]) -> Bool[np.ndarray, " panels"]:
    return np.asarray(flags.reshape(len(flags), -1).any(1))


def _halves(
    integrand: Integrand,
    left: Float64[np.ndarray, " panels"],
    middle: Float64[np.ndarray, " panels"],
    right: Float64[np.ndarray, " panels"],
) -> Float64[np.ndarray, "panels 2 ..."]:
    """The integrals over the two halves of each panel."""
    first, second = _panels(integrand, left, middle), _panels(integrand, middle, right)
    return np.stack([first, second], 1)


def _panels(
    integrand: Integrand,
    left: Float64[np.ndarray, " panels"],
    right: Float64[np.ndarray, " panels"],
) -> Float64[np.ndarray, "panels ..."]:
    """The integral over each panel, ``PANELS`` at a time: always the same number of nodes."""
    parts = []
    for start in range(0, len(left), PANELS):
        a, b = left[start : start + PANELS], right[start : start + PANELS]
        # Repetitions fill up the last part, so that the integrand is compiled only once.
        fill = (0, PANELS - len(a))
        full = (np.pad(edge, fill, mode="edge") for edge in (a, b))
        parts.append(_gauss(integrand, *full)[: len(a)])
    return np.concatenate(parts)


def _gauss(
    integrand: Integrand,
    left: Float64[np.ndarray, " panels"],
    right: Float64[np.ndarray, " panels"],
) -> Float64[np.ndarray, "panels ..."]:
    half = ((right - left) / 2)[:, None]
    nodes = (left[:, None] + half * (1 + _NODES)).ravel()
    weights = (half * _WEIGHTS).ravel() * np.exp(-(nodes**2) / 2) / np.sqrt(2 * np.pi)
    values = integrand(nodes)
    if not np.isfinite(values).all():
        where = nodes[~np.isfinite(values.reshape(len(nodes), -1)).all(1)][0]
        raise ValueError(f"the activation is not finite at {where:.6g}, so it has no moments.")
    weighted = weights.reshape(-1, *[1] * (values.ndim - 1)) * values
    return np.asarray(weighted.reshape(PANELS, NODES, *values.shape[1:]).sum(1))
