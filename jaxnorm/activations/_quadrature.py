"""Integrals over the normal density in float64 NumPy: adaptive, so that kinks are seen."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float64

#: Values of one or more functions at the nodes: ``(nodes,) -> (nodes, *functions)``.
Integrand = Callable[[Float64[np.ndarray, " nodes"]], Float64[np.ndarray, "nodes ..."]]

#: Beyond the first the density is below 1e-56. Up to the second the square of the fastest function
#: that has moments is finite in float64: for those that grow nearly as fast as the density falls.
LIMITS = (16.0, 38.0)
WIDTH = 0.5
#: So many panels are evaluated at once.
PANELS = 64
NODES = 15
#: The error a panel may have, relative to the integral of the absolute value over all panels.
TOLERANCE = 1e-14
#: A panel that was halved so often is as narrow as two float64 numbers.
HALVINGS = 52
#: In a panel that is so many roundings of its place wide nodes begin to coincide. Rules agree there
#: whatever the function is, so all that the panel holds is in doubt; it is not halved again.
ROUNDINGS = 16
#: What may be left over where halving did not help, on the same scale.
UNRESOLVED = 1e-11
#: What may lie beyond the second limit, on the same scale.
BEYOND = 5e-11

#: Panels are moved by this, so that a singularity at a round number is inside of one.
SHIFT = WIDTH / 7

#: So many panels at once are halved again at most: an activation that rounds its values to 11 bits
#: needs 2^15 of them, to the 24 of float32 more than can be waited for.
MOST = 2**18

_WANTED = "wanted a function whose square has a finite mean under N(0, 1)."
_ROUNDED = (
    f"the activation bends or jumps at more than {MOST} places, as one does whose values are "
    "rounded to float32; wanted one that computes in the type of its input: leave out "
    "astype(jnp.float32)."
)
_DIVERGES = f"the Gaussian moments of this activation do not converge; {_WANTED}"


def gaussian_expectation(integrand: Integrand) -> Float64[np.ndarray, "..."]:
    """E f(Z), Z ~ N(0, 1), to about 1e-13 of E |f(Z)|: Gauss-Lobatto panels, halved where needed.

    A panel is halved until its own rule and the rules of its two halves agree, so the panels close
    in on kinks and jumps wherever they are: also where only an end of a panel is beyond them, which
    Gauss-Legendre nodes would not see. Panels reach as far as f needs.

    Args:
        integrand: f, at a whole array of nodes at once; it may have values of any shape a node.

    Returns:
        The expectation, of the shape of one value.

    Raises:
        ValueError: for values that are not finite, for more kinks and jumps than can be closed in
            on, and for an integral that does not converge: at a pole, or because f grows as the
            density falls. Of functions that grow nearly so, those are refused that hold more than
            5e-11 of E |f(Z)| beyond 38.
    """
    for limit in LIMITS:
        edges = SHIFT + np.linspace(-limit, limit, round(2 * limit / WIDTH) + 1)
        coarse = _panels(integrand, edges[:-1], edges[1:])
        scale = np.asarray(np.abs(coarse).sum(0) + np.finfo(np.float64).tiny)
        beyond = _beyond(np.abs(coarse)) / scale
        if (beyond < TOLERANCE).all():
            break
    if (beyond > BEYOND).any():
        raise ValueError(_DIVERGES)
    return _refined(integrand, edges[:-1], edges[1:], coarse, scale)


def _beyond(sizes: Float64[np.ndarray, "panels ..."]) -> Float64[np.ndarray, "..."]:
    """What lies beyond the outermost panels, as the sum of a geometric series; inf if they grow."""
    last, before = sizes[[0, -1]], sizes[[1, -2]]
    falls = last < before
    rest = last * (last / np.where(falls, before - last, 1))
    return np.asarray(np.where(falls | (last == 0), rest, np.inf).sum(0))


def _refined(
    integrand: Integrand,
    left: Float64[np.ndarray, " panels"],
    right: Float64[np.ndarray, " panels"],
    coarse: Float64[np.ndarray, "panels ..."],
    scale: Float64[np.ndarray, "..."],
) -> Float64[np.ndarray, "..."]:
    """The sum of ``coarse`` over all panels, with panels halved as long as it changes."""
    total, in_doubt = np.zeros_like(scale), np.zeros_like(scale)
    for _ in range(HALVINGS):
        if len(left) > MOST:
            raise ValueError(_ROUNDED)
        middle = (left + right) / 2
        halves = _halves(integrand, left, middle, right)
        fine = halves.sum(1)
        # A spike may be seen only now: of the whole with it the rest need not be so exact.
        scale = np.maximum(scale, np.abs(total) + np.abs(fine).sum(0))
        error, narrow = np.abs(fine - coarse), _narrow(left, right)
        in_doubt = in_doubt + np.abs(fine[narrow]).sum(0)
        again = _any_function(error > TOLERANCE * scale) & ~narrow
        total = total + fine[~again].sum(0)
        if not again.any():
            break
        left, right = (
            np.stack([left, middle], 1)[again].ravel(),
            np.stack([middle, right], 1)[again].ravel(),
        )
        coarse = halves[again].reshape(-1, *scale.shape)
    if (in_doubt + error[again].sum(0) > UNRESOLVED * scale).any():
        raise ValueError(_DIVERGES)
    return np.asarray(total + (coarse.sum(0) if again.any() else 0))


def _narrow(
    left: Float64[np.ndarray, " panels"], right: Float64[np.ndarray, " panels"]
) -> Bool[np.ndarray, " panels"]:
    """Whether each panel is as narrow as float64 numbers at its place allow."""
    place = np.maximum(np.abs(left), np.abs(right))
    return np.asarray(right - left < ROUNDINGS * np.finfo(np.float64).eps * place)


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
        parts.append(_integrals(integrand, *full)[: len(a)])
    return np.concatenate(parts)


def _integrals(
    integrand: Integrand,
    left: Float64[np.ndarray, " panels"],
    right: Float64[np.ndarray, " panels"],
) -> Float64[np.ndarray, "panels ..."]:
    half = ((right - left) / 2)[:, None]
    nodes = (left[:, None] + half * (1 + _NODES)).ravel()
    weights = (half * _WEIGHTS).ravel() / np.sqrt(2 * np.pi)
    with np.errstate(over="ignore"):  # which is told below
        values = integrand(nodes)
    if not np.isfinite(values).all():
        where = nodes[~np.isfinite(values.reshape(len(nodes), -1)).all(1)][0]
        raise ValueError(
            f"the activation or its square is not finite at {where:.6g} in float64; {_WANTED}"
        )
    column = (-1, *[1] * (values.ndim - 1))
    # The root of the density, twice: far out the density itself is too small for float64.
    root = np.exp(-(nodes**2) / 4).reshape(column)
    weighted = weights.reshape(column) * root * values * root
    return np.asarray(weighted.reshape(PANELS, NODES, *values.shape[1:]).sum(1))


def _lobatto(count: int) -> tuple[Float64[np.ndarray, " nodes"], Float64[np.ndarray, " nodes"]]:
    """Nodes and weights on [-1, 1], both ends included; exact to the degree 2 count - 3."""
    series = np.eye(count)[count - 1]
    # All roots are real; newer releases of NumPy give any roots as complex numbers.
    inner = np.real(np.polynomial.legendre.legroots(np.polynomial.legendre.legder(series)))
    nodes = np.concatenate([[-1.0], inner, [1.0]])
    at_nodes = np.polynomial.legendre.legval(nodes, series)
    return nodes, 2 / (count * (count - 1) * np.square(at_nodes))


_NODES, _WEIGHTS = _lobatto(NODES)
