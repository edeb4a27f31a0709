"""The dynamics of the order parameters: integrals, rates of change, solution and fixed points."""

import math
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Real

#: A number, or an array that broadcasts with the other arguments.
Numbers = Real[ArrayLike, "..."]
Values = Float[Array, "..."]

_T = TypeVar("_T")


class OrderParameters(NamedTuple):
    """The order parameters of a student, or their rates of change.

    Attributes:
        gamma: the length of the normalized student w~ over sqrt(N).
        R: the cosine between student and teacher.
        L: the length of w, before normalization, over sqrt(N).
    """

    gamma: Values
    R: Values
    L: Values


#: Order parameters, a sequence (gamma, R, L), or an array of the three.
State = OrderParameters | tuple[Numbers, Numbers, Numbers] | list[Numbers] | Values


def integrals(Q: Numbers, R: Numbers) -> tuple[Values, Values, Values]:
    """The averages over the inputs that drive the dynamics of a ReLU unit: (I1, I2, I3).

    With s and t the student and the teacher before the rectifier, centered normals of variances Q^2
    and 1 and of correlation R, and delta = 1[s > 0] (relu(t) - relu(s))::

        I1 = E delta s   = Q A - Q^2 / 2
        I2 = E delta^2   = Q^2 / 2 + B - 2 Q A
        I3 = E delta t   = B - Q R / 2
        A = (pi R + 2 sqrt(1 - R^2) + 2 R asin R) / (4 pi)
        B = (pi + 2 R sqrt(1 - R^2) + 2 asin R) / (4 pi)

    Args:
        Q: the length of the student, gamma; not negative.
        R: the cosine between student and teacher. Beyond -1 and 1, where rounding may take it, the
            averages continue as straight lines. Q and R broadcast.

    Returns:
        The three averages, in the type of the arguments. Their derivatives are finite everywhere;
        those by R at R = 1 are Q/2, -Q and -Q/2 (the second derivatives are infinite there).

    Example:
        >>> [f"{value:.5f}" for value in integrals(0.8, 0.6)]
        ['-0.04898', '0.20677', '0.18881']

    Source: Luo et al. 2019, Eqs. 13-15, with inputs of norm 1, a factor of I2. Erratum: the second
    term of Eq. 15 is printed with pi R for pi.
    """
    q, r = arrays(Q, R)
    a, b = _rectified_product(r), _rectified_square(r)
    return q * (a - q / 2), jnp.square(q) / 2 + b - 2 * q * a, b - q * r / 2


@jax.custom_jvp
def _rectified_product(r: Values) -> Values:
    """A: E relu(s) relu(t) at Q = 1."""
    return (r * _active_angle(r) + _sine(r)) / (2 * math.pi)


@_rectified_product.defjvp
def _rectified_product_jvp(primals: Any, tangents: Any) -> Any:
    """Derivative without the terms of autodiff that are infinite at R = 1, which cancel."""
    (r,), (tangent,) = primals, tangents
    return _rectified_product(r), tangent * _active_angle(r) / (2 * math.pi)


@jax.custom_jvp
def _rectified_square(r: Values) -> Values:
    """B: E 1[s > 0] relu(t)^2."""
    return (_active_angle(r) + r * _sine(r)) / (2 * math.pi)


@_rectified_square.defjvp
def _rectified_square_jvp(primals: Any, tangents: Any) -> Any:
    (r,), (tangent,) = primals, tangents
    return _rectified_square(r), tangent * _sine(r) / math.pi


def _active_angle(r: Values) -> Values:
    """The angle, in radians, in which student and teacher are both active."""
    return math.pi / 2 + jnp.arcsin(jnp.clip(r, -1, 1))


def _sine(r: Values) -> Values:
    """sqrt(1 - r^2), without the cancellation near 1."""
    return jnp.sqrt(jnp.maximum((1 - r) * (1 + r), 0))


def order_parameter_flow(
    state: State, learning_rate: Numbers, decay: Numbers = 0.0
) -> OrderParameters:
    """The rates of change of (gamma, R, L) under online SGD, for many inputs N.

    In the time t = samples / N, with I1, I2, I3 from `integrals` at (gamma, R)::

        gamma' = eta (I1 / gamma - zeta gamma)
        R' = eta (gamma I3 - R I1) / L^2 - eta^2 gamma^2 R I2 / (2 L^4)
        L' = eta^2 gamma^2 I2 / (2 L^3)

    It is the limit of SGD on (1/2)(teacher - student)^2 + (zeta/2) gamma^2, with one fresh sample
    per step and the learning rates eta for w and eta / N for gamma.

    Args:
        state: (gamma, R, L), numbers or arrays of one shape; gamma and L are positive.
        learning_rate: eta.
        decay: zeta; 0 is weight normalization.

    Returns:
        The three rates, finite at R = 1 too. If zeta > 0, the point (1 / (2 zeta + 1), 1, L) is at
        rest only up to terms of order eta^2 zeta^2: I2 is (1 - gamma)^2 / 2 there, not 0, and L
        grows.

    Example:
        >>> rates = order_parameter_flow((1.0, 0.5, 1.0), learning_rate=1.0)
        >>> [f"{rate:.4f}" for rate in rates]
        ['-0.1955', '0.1767', '0.1466']

    Source: Luo et al. 2019, Eq. 6. Erratum: it follows from Eq. 5 only if gamma's step there is
    eta / N, not eta.
    """
    gamma, r, length, eta, zeta = arrays(*state, learning_rate, decay)
    i1, i2, i3 = integrals(gamma, r)
    speed = eta / jnp.square(length)
    growth = jnp.square(speed * gamma) * i2 / 2  # of log L
    return OrderParameters(
        eta * (i1 / gamma - zeta * gamma),
        speed * (gamma * i3 - r * i1) - r * growth,
        length * growth,
    )


def solve_order_parameters(
    state: State,
    times: Float[Array, " times"],
    learning_rate: Numbers,
    decay: Numbers = 0.0,
    *,
    rtol: float = 1e-5,
    atol: float = 1e-6,
) -> OrderParameters:
    """The order parameters (gamma, R, L) at given times, from their values at time 0.

    Solves `order_parameter_flow` by Tsitouras' adaptive Runge-Kutta method of order 5.

    Args:
        state: (gamma, R, L) at time 0, three numbers.
        times: increasing and not negative; the unit of time is N samples.
        learning_rate: eta, a number.
        decay: zeta, a number.
        rtol: the relative error per step.
        atol: the absolute error per step; in float64 both may be far smaller.

    Returns:
        The order parameters, each with one value per time.

    Raises:
        ImportError: if diffrax, which the extra `theory` installs, is missing.

    Differentiable in the state, the learning rate and the decay by reverse mode (jax.grad), through
    the solver's steps; vmap over them for families of curves. Under pmap and shard_map each device
    solves its own equation.

    Example:
        >>> path = solve_order_parameters((1.0, 0.1, 1.0), jnp.array([0.0, 20.0]), 0.5, 0.1)
        >>> [f"{value:.3f}" for value in path.R]
        ['0.100', '0.957']

    Source: Luo et al. 2019, Eq. 6.
    """
    try:
        import diffrax
    except ImportError as error:
        raise ImportError(
            "solving the dynamics needs diffrax; install it with pip install 'jaxnorm[theory]'."
        ) from error
    *start, eta, zeta = arrays(*state, learning_rate, decay)
    at = jnp.asarray(times, eta.dtype)
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(lambda _, y, args: order_parameter_flow(y, *args)),
        diffrax.Tsit5(),
        t0=jnp.zeros((), at.dtype),
        t1=at[-1],
        dt0=None,
        y0=OrderParameters(*start),
        args=(eta, zeta),
        saveat=diffrax.SaveAt(ts=at),
        stepsize_controller=diffrax.PIDController(rtol=rtol, atol=atol),
    )
    return OrderParameters(*solution.ys)


def fixed_point(kind: str, decay: Numbers = 0.0, length: Numbers = 1.0) -> OrderParameters:
    """The point (gamma0, R0, L0) to which a ReLU student converges.

    (1 / (2 zeta + 1), 1, any L) for `bn`, (1, 1, any L) for `wn`, (1, 1, 1) for `sgd`. For `bn` the
    learning rate is taken as small: see `order_parameter_flow`.

    Args:
        kind: `bn`, `wn` or `sgd`.
        decay: zeta; only `bn` depends on it.
        length: the L0 to return where any is a fixed point.

    Returns:
        The three order parameters.

    Raises:
        ValueError: for another kind.

    Example:
        >>> gamma, R, _ = fixed_point("bn", decay=0.5)
        >>> float(gamma), float(R)
        (0.5, 1.0)

    Source: Luo et al. 2019, Proposition 1 and Table 1.
    """
    zeta, size = arrays(decay, length)
    one = jnp.ones_like(zeta)
    gamma = of_kind(kind, {"bn": 1 / (2 * zeta + 1), "wn": one, "sgd": one})
    return OrderParameters(gamma, one, jnp.ones_like(size) if kind == "sgd" else size)


def max_learning_rate(kind: str, decay: Numbers = 0.0) -> Values:
    """The effective learning rate below which R = 1 is stable: 2 + 4 zeta for `bn`, else 2.

    It is (d(gamma0 I3 - I1) / (gamma0 dR) - zeta gamma0) / (dI2 / (2 dR)) at the fixed point. The
    effective rate is eta gamma0 / L^2 for `bn`, eta / L^2 for `wn` and eta for `sgd`.

    Args:
        kind: `bn`, `wn` or `sgd`.
        decay: zeta; only `bn` depends on it.

    Returns:
        The bound, of the shape of the decay.

    Raises:
        ValueError: for another kind.

    Example:
        >>> float(max_learning_rate("bn", decay=0.25)), float(max_learning_rate("wn"))
        (3.0, 2.0)

    Source: Luo et al. 2019, Proposition 2 and Table 1. Erratum: Table 1 lacks the 1/2 of dI2/2,
    which halves the rates.
    """
    (zeta,) = arrays(decay)
    two = jnp.full_like(zeta, 2)
    return of_kind(kind, {"bn": 2 + 4 * zeta, "wn": two, "sgd": two})


def arrays(*numbers: Numbers) -> list[Values]:
    """Arrays of one floating type: that of the numbers, or JAX's default for integers."""
    floating = [x for x in numbers if jnp.issubdtype(jnp.result_type(x), jnp.floating)]
    dtype = jnp.result_type(float, *floating)
    return [jnp.asarray(number, dtype) for number in numbers]


def of_kind(kind: str, choices: dict[str, _T]) -> _T:
    """The choice for a kind; raises ValueError for an unknown one."""
    if kind not in choices:
        raise ValueError(f"kind is {kind!r}; expected one of {', '.join(sorted(choices))}.")
    return choices[kind]
