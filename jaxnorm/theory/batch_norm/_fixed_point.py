"""Where the dynamics come to rest, and the learning rates at which they do.

The kinds: `bn`, batch normalization as weight normalization with gamma decay; `wn`, weight
normalization; `sgd`, neither.
"""

import jax.numpy as jnp

from jaxnorm.theory.batch_norm._dynamics import OrderParameters
from jaxnorm.theory.batch_norm._numbers import Numbers, Values, as_values, of_kind


def fixed_point(kind: str, decay: Numbers = 0.0, length: Numbers = 1.0) -> OrderParameters:
    """The point (gamma0, R0, L0) that a ReLU student converges to.

    (1 / (2 zeta + 1), 1, any L) for `bn`, (1, 1, any L) for `wn`, (1, 1, 1) for `sgd`.

    Args:
        kind: `bn`, `wn` or `sgd`.
        decay: zeta; only `bn` has one, the others do not depend on it.
        length: the L0 to return where any is a fixed point.

    Returns:
        The three order parameters.

    Raises:
        ValueError: for another kind.

    For `bn` the learning rate is taken as small: see `order_parameter_flow`. Elementwise and
    differentiable; the same under jit, vmap, pmap and shard_map.

    Example:
        >>> gamma, R, _ = fixed_point("bn", decay=0.5)
        >>> float(gamma), float(R)
        (0.5, 1.0)

    Source: Luo et al. 2019, Proposition 1 and Table 1.
    """
    zeta, size = as_values(decay, length)
    one = jnp.ones_like(zeta)
    gamma = of_kind(kind, {"bn": 1 / (2 * zeta + 1), "wn": one, "sgd": one})
    return OrderParameters(gamma, one, jnp.ones_like(size) if kind == "sgd" else size)


def max_learning_rate(kind: str, decay: Numbers = 0.0) -> Values:
    """The effective learning rate below which R = 1 is stable: 2 + 4 zeta for `bn`, else 2.

    It is (d(gamma0 I3 - I1) / (gamma0 dR) - zeta gamma0) / (dI2 / (2 dR)) at the fixed point.

    Args:
        kind: `bn`, `wn` or `sgd`.
        decay: zeta; only `bn` has one, the others do not depend on it.

    Returns:
        The bound on `effective_learning_rate`, of the shape of the decay.

    Raises:
        ValueError: for another kind.

    Elementwise and differentiable; the same under jit, vmap, pmap and shard_map.

    Example:
        >>> float(max_learning_rate("bn", decay=0.25)), float(max_learning_rate("wn"))
        (3.0, 2.0)

    Source: Luo et al. 2019, Proposition 2 and Table 1. Erratum: Table 1 lacks the 1/2 of dI2/2,
    which halves the rates.
    """
    (zeta,) = as_values(decay)
    two = jnp.full_like(zeta, 2)
    return of_kind(kind, {"bn": 2 + 4 * zeta, "wn": two, "sgd": two})


def effective_learning_rate(
    kind: str, learning_rate: Numbers, decay: Numbers = 0.0, length: Numbers = 1.0
) -> Values:
    """The learning rate with which R moves: eta gamma0 / L^2 for `bn`, eta / L^2 for `wn`, eta.

    Args:
        kind: `bn`, `wn` or `sgd`.
        learning_rate: eta.
        decay: zeta; only `bn` has one, the others do not depend on it.
        length: L, which `sgd` does not depend on.

    Returns:
        The effective learning rate, to be compared with `max_learning_rate`.

    Raises:
        ValueError: for another kind.

    Elementwise and differentiable; the same under jit, vmap, pmap and shard_map.

    Example:
        >>> float(effective_learning_rate("bn", 1.0, decay=0.5, length=2.0))
        0.125

    Source: Luo et al. 2019, Table 1.
    """
    eta, zeta, size = as_values(learning_rate, decay, length)
    speed = eta / jnp.square(size)
    gamma = fixed_point("bn", zeta).gamma
    return of_kind(kind, {"bn": speed * gamma, "wn": speed, "sgd": eta})


def stability_eigenvalues(
    kind: str, learning_rate: Numbers, decay: Numbers = 0.0, length: Numbers = 1.0
) -> OrderParameters:
    """The eigenvalues of the dynamics' Jacobian at the fixed point; negative ones are stable.

    ::

        lambda_gamma = -eta (zeta + 1/2)
        lambda_R = -(eta gamma0^2 / (2 L^2)) (eta_max - eta_eff)
        lambda_L = 0

    with zeta = 0 for `wn`. Plain SGD has one length, gamma = L: both have -eta/2.

    Args:
        kind: `bn`, `wn` or `sgd`.
        learning_rate: eta.
        decay: zeta; only `bn` has one, the others do not depend on it.
        length: L at the fixed point, which is 1 for `sgd`.

    Returns:
        One eigenvalue for each order parameter.

    Raises:
        ValueError: for another kind.

    As in the paper, I2 counts as 0 at the fixed point, which leaves out -eta^2 gamma0^2 I2 / (2
    L^4), I2 = (1 - gamma0)^2 / 2, from lambda_R of `bn`. Elementwise and differentiable; the same
    under jit, vmap, pmap and shard_map.

    Example:
        >>> rates = stability_eigenvalues("sgd", learning_rate=3.0)
        >>> float(rates.gamma), float(rates.R)  # the length converges, the direction does not
        (-1.5, 1.5)

    Source: Luo et al. 2019, Proposition 2, whose dI2/dR is -gamma0. Errata: its lambda_Q is printed
    with zeta Q0 for 2 zeta, and as -zeta - 1/2, without eta, in Appendix C.6.
    """
    eta, zeta, size = as_values(learning_rate, decay, length)
    gamma, _, size = fixed_point(kind, zeta if kind == "bn" else jnp.zeros_like(zeta), size)
    margin = max_learning_rate(kind, zeta) - effective_learning_rate(kind, eta, zeta, size)
    of_length = -eta / (2 * gamma)  # 1 / (2 gamma0) is zeta + 1/2.
    of_cosine = -eta * jnp.square(gamma / size) * margin / 2
    return OrderParameters(
        of_length, of_cosine, of_length if kind == "sgd" else jnp.zeros_like(of_cosine)
    )
