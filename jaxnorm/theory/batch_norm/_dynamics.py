"""The dynamics of the order parameters, and their solution over time by diffrax."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxnorm.theory.batch_norm._integrals import integrals
from jaxnorm.theory.batch_norm._numbers import Numbers, Values, as_values


class OrderParameters(NamedTuple):
    """What determines a student's error, or the rates at which that changes.

    Attributes:
        gamma: the length of the normalized student w~ over sqrt(N).
        R: the cosine between student and teacher.
        L: the length of w, before normalization, over sqrt(N).
    """

    gamma: Values
    R: Values
    L: Values


#: The order parameters, as such or as (gamma, R, L), or as an array of the three.
State = OrderParameters | tuple[Numbers, Numbers, Numbers] | list[Numbers] | Values


def order_parameter_flow(
    state: State, learning_rate: Numbers, decay: Numbers = 0.0
) -> OrderParameters:
    """The rates of change of (gamma, R, L) under online SGD, for many inputs N.

    In the time t = samples / N, with I1, I2, I3 from `integrals` at (gamma, R)::

        gamma' = eta (I1 / gamma - zeta gamma)
        R' = eta (gamma I3 - R I1) / L^2 - eta^2 gamma^2 R I2 / (2 L^4)
        L' = eta^2 gamma^2 I2 / (2 L^3)

    It is the limit of SGD on (1/2)(teacher - student)^2 + (zeta/2) gamma^2, one fresh sample a
    step, with the learning rate eta for w and eta / N for gamma.

    Args:
        state: (gamma, R, L), numbers or arrays of one shape; gamma and L are positive.
        learning_rate: eta.
        decay: zeta; 0 is weight normalization.

    Returns:
        The three rates. At zeta > 0 the point (1 / (2 zeta + 1), 1, L) is one of rest up to terms
        of the order eta^2 zeta^2 only: I2 is (1 - gamma)^2 / 2 there, not 0, and L grows.

    Elementwise and differentiable, R = 1 included; the same under jit, vmap, pmap and shard_map.

    Example:
        >>> rates = order_parameter_flow((1.0, 0.5, 1.0), learning_rate=1.0)
        >>> [f"{rate:.4f}" for rate in rates]
        ['-0.1955', '0.1767', '0.1466']

    Source: Luo et al. 2019, Eq. 6. Erratum: it follows from Eq. 5 only if gamma's step there is
    eta / N, not eta.
    """
    gamma, r, length, eta, zeta = as_values(*state, learning_rate, decay)
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
    """(gamma, R, L) at the given times, from their values at time 0.

    The solution of `order_parameter_flow` by Tsitouras' adaptive Runge-Kutta method of order 5.

    Args:
        state: (gamma, R, L) at time 0, three numbers.
        times: increasing, none negative; a unit of time is N samples.
        learning_rate: eta, a number.
        decay: zeta, a number.
        rtol: the relative error of a step.
        atol: the absolute error of a step; in float64 both may be far smaller.

    Returns:
        The order parameters, each with one value a time.

    Raises:
        ImportError: without diffrax, which the extra `theory` brings.

    Differentiable in the state, the rate and the decay by reverse mode (jax.grad), through the
    solver's steps; vmap over them for families of curves. Under pmap and shard_map each device
    solves its own.

    Example:
        >>> path = solve_order_parameters((1.0, 0.1, 1.0), jnp.array([0.0, 20.0]), 0.5, 0.1)
        >>> [f"{value:.3f}" for value in path.R]
        ['0.100', '0.957']

    Source: Luo et al. 2019, Eq. 6.
    """
    diffrax = _diffrax()
    *start, eta, zeta = as_values(*state, learning_rate, decay)
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


def _diffrax() -> Any:
    """The library, which only this function needs: an extra."""
    try:
        import diffrax
    except ImportError as error:
        raise ImportError(
            "solving the dynamics needs diffrax; install it with pip install 'jaxnorm[theory]'."
        ) from error
    return diffrax
