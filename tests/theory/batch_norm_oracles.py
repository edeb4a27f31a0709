"""The teacher-student integrals by quadrature, and the dynamics that follow, in float64."""

import numpy as np

NODES, WEIGHTS = np.polynomial.legendre.leggauss(20)


def angular(function, correlation):
    """E f(u, v) over standard normals of a correlation, for f homogeneous of degree 2.

    In polar coordinates E radius^2 = 2 is a factor; over the angle, between the kinks at u = 0 and
    at v = 0, f is a trigonometric polynomial, for which 20 nodes are exact to rounding.
    """
    angle = np.arccos(correlation)
    start = -np.pi / 2  # the first kink of u; the integral covers one period
    ends = start + np.sort([0, angle, np.pi, np.pi + angle, 2 * np.pi])
    middles, halves = (ends[1:] + ends[:-1])[:, None] / 2, (ends[1:] - ends[:-1])[:, None] / 2
    x = middles + halves * NODES
    return (halves * WEIGHTS * function(np.cos(x), np.cos(x - angle))).sum() / np.pi


def integrals(q, r):
    """I1, I2 and I3 by their definitions."""

    def error(u, v):
        return (u > 0) * (np.maximum(v, 0) - q * u)

    return (
        angular(lambda u, v: error(u, v) * q * u, r),
        angular(lambda u, v: error(u, v) ** 2, r),
        angular(lambda u, v: error(u, v) * v, r),
    )


def normalized_flow(state, rate, decay):
    """Eq. 10, from the rates of Q^2, RL and L^2 (Eq. 9) by the chain rule."""
    q, r, length = state
    i1, i2, i3 = integrals(q, r)
    square, product = 2 * rate * i1 - 2 * rate * decay * q**2, rate / length * (q * i3 - r * i1)
    growth = rate**2 * q**2 / length**2 * i2 / (2 * length)
    return np.array([square / (2 * q), (product - r * growth) / length, growth])


def plain_flow(state, rate):
    """Rates of (Q, R) under plain SGD, w += rate delta x, from those of Q^2 and QR."""
    q, r = state
    i1, i2, i3 = integrals(q, r)
    growth = (2 * rate * i1 + rate**2 * i2) / (2 * q)
    return np.array([growth, (rate * i3 - r * growth) / q])


def derivative(function, point, axis, step=1e-6):
    """A central difference; one-sided at R = 1, where the domain of R ends."""
    move = np.zeros(len(point))
    move[axis] = step
    ahead = point if axis == 1 and point[1] == 1 else point + move
    behind = point - move
    return (function(ahead) - function(behind)) / (ahead - behind)[axis]
