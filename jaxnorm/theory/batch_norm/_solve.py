"""The order parameters over time, by diffrax."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxnorm.theory.batch_norm._dynamics import OrderParameters, State, order_parameter_flow
from jaxnorm.theory.batch_norm._numbers import Numbers, as_values


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
