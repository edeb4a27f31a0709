"""Shaped activations: deep networks whose C map stays gentle, without normalization."""

import functools
import itertools
import math
import operator
from collections.abc import Callable
from typing import Any, Literal

import jax
import numpy as np
from jaxtyping import Array, Float

from jaxnorm._activations import leaky_moments, leaky_slope
from jaxnorm._depth import Layer, Network
from jaxnorm._kernel_maps import check_continuous, values_at
from jaxnorm._numerics import promote
from jaxnorm._quadrature import Activation, derivative, float64_on_host, gaussian_rule

Values = Float[Array, "..."]

#: The papers' largest C''(1) under TAT and C'(1) under DKS, and C(0) of a leaky ReLU under TAT.
TARGETS, ETA = {"tat": 0.3, "dks": 1.5}, 0.9
SCALARS = ("input_scale", "input_shift", "output_shift", "output_scale")


def shaped(
    activation: Activation,
    depth: int | Network,
    method: Literal["tat", "dks"] = "tat",
    target: float | None = None,
) -> Callable[[Values], Values]:
    """Activation shaped for the depth of a network, so that it trains without normalization.

    g(x) = output_scale (f(input_scale x + input_shift) + output_shift), with four scalars such that
    Q(1) = 1, Q'(1) = 1 (`jaxnorm.theory.q_map`, `jaxnorm.theory.c_map`) and

    - ``"tat"`` (tailored activations): C'(1) = 1, and the network's largest C''(1) is ``target``;
    - ``"dks"`` (deep kernel shaping): C(0) = 0, and the network's largest C'(1) is ``target``.

    Of a rectifier the slope below 0 is chosen in the place of its input scale and shift. Under
    ``"tat"`` C(0) takes the place of its C''(1), which is infinite; C'(1) is 1 by itself.

    Args:
        activation: a smooth elementwise function of JAX operations with scalar parameters, or a
            function that computes ``jax.nn.relu`` or ``jax.nn.leaky_relu``, whose slope is ignored.
            Take TAT on a leaky ReLU or on tanh first.
        depth: the number of activations in a chain of layers; the result of `traced_depth`, also
            for residual networks; or a function ``network(value, layer)`` that applies ``layer`` to
            a value at each activation, mixes values where branches are added (by the shares of
            their mean squares) and returns the largest value of the network and its branches.
        method: the conditions.
        target: the network's largest value; None for the papers' 0.3, for leaky ReLU 0.9, and under
            ``"dks"`` 1.5.

    Returns:
        A function of an array of any shape and floating type, which keeps both: a
        ``functools.partial``, whose ``keywords`` are the scalars. It computes in float32 or wider.

    Raises:
        ValueError: for a depth below 1, for a target that no slope or curvature reaches (with 11
            layers a ReLU's C(0) is below 0.9: name a smaller target), for an activation whose slope
            jumps under ``"tat"`` (elu does not; selu, relu6 and hard_swish do), and if no scalars
            satisfy the conditions.

    The conditions hold for kernels whose units have the squared norm 1, best for `orthogonal_init`,
    biases of zero and inputs of mean square 1 in each row. Elementwise: equal under jit, pmap and
    shard_map; keeps shardings. The scalars are found on the host, in about a second.

    Example:
        >>> import jax.numpy as jnp
        >>> f = shaped(jax.nn.leaky_relu, depth=30)
        >>> f(jnp.array([-1.0, 0.0, 1.0])).round(4).tolist()
        [-0.4096..., 0.0, 1.353...]

    Source: Zhang et al. 2022 (arXiv 2203.08120), sections 4.1 and 4.2, for "tat"; Martens et al.
    2021 (arXiv 2110.01765), section 8, for "dks".
    """
    if method not in TARGETS:
        raise ValueError(f"method is {method!r}; expected 'tat' or 'dks'.")
    length: Any = depth
    if not callable(length) and (not hasattr(length, "__index__") or length < 1):
        raise ValueError(
            f"depth is {depth!r}; wanted the number of activations in a chain, at least 1, or the "
            "result of traced_depth(read(apply, params, *inputs))."
        )
    network = depth if callable(depth) else functools.partial(_chain, depth)
    rectifies = leaky_slope(activation) is not None or _is_rectifier(activation)
    if target is None:
        target = ETA if rectifies and method == "tat" else TARGETS[method]
    if rectifies:
        return functools.partial(transformed, **_leaky_scalars(network, method, target))
    start, compose = (1.0, operator.mul) if method == "dks" else (0.0, operator.add)
    local = _solved(lambda x: network(start, lambda y: compose(y, x)), target, start, 100.0)
    scalars = _smooth_scalars(activation, method, local)
    return functools.partial(transformed, activation=activation, **scalars)


@float64_on_host()
def _is_rectifier(activation: Activation) -> bool:
    """Returns True for max(x, 0) and leaky forms of it, whatever function computes them."""
    nodes, _ = gaussian_rule()
    values = values_at(activation, nodes)
    slope = float(values_at(activation, np.array([-1.0]))[0]) / -1.0
    rectified = np.where(nodes > 0, nodes, slope * nodes)
    return 0 <= slope < 1 and bool(np.allclose(values, rectified, rtol=1e-6, atol=0))


def transformed(
    x: Values,
    activation: Activation,
    input_scale: float = 1.0,
    input_shift: float = 0.0,
    output_shift: float = 0.0,
    output_scale: float = 1.0,
) -> Values:
    """Returns output_scale (f(input_scale x + input_shift) + output_shift), in the type of x."""
    y: Values = activation(promote(x) * input_scale + input_shift)
    return ((y + output_shift) * output_scale).astype(x.dtype)


def _chain(depth: int, value: float, layer: Layer) -> float:
    return functools.reduce(lambda value, _: layer(value), range(depth), value)


def _solved(function: Layer, target: float, low: float, high: float) -> float:
    """Returns the place where a monotone function has a value, by bisection."""
    ends = function(low), function(high)
    if not min(ends) <= target <= max(ends):
        raise ValueError(
            f"no slope or curvature of the activation gives this network the value {target:.4g}: "
            f"its values are from {min(ends):.4g} to {max(ends):.4g}. Pass a target between them: "
            "a smaller one for a network of few layers, which needs no shaping."
        )
    for _ in range(100):
        middle = (low + high) / 2
        below = (function(middle) < target) == (ends[0] < ends[1])
        low, high = (middle, high) if below else (low, middle)
    return middle


def _leaky_scalars(network: Network, method: str, target: float) -> dict[str, Any]:
    """Returns a leaky ReLU and its scalars."""

    def moments(a: float) -> tuple[float, float, float]:
        mean, std = map(float, leaky_moments(a))
        return mean, std * std, mean * mean + std * std

    def maximum(a: float) -> float:
        if method == "dks":
            _, variance, square = moments(a)
            return network(1.0, lambda y: y * square / variance)
        return network(0.0, lambda c: _leaky_c_map(c, a))

    slope = _solved(maximum, target, 0.0, 1.0)
    mean, variance, square = moments(slope)
    shift, divisor = (0.0, square) if method == "tat" else (-mean, variance)
    activation = functools.partial(jax.nn.leaky_relu, negative_slope=slope)
    return {"activation": activation, "output_shift": shift, "output_scale": divisor**-0.5}


def _leaky_c_map(c: float, a: float) -> float:
    c = min(c, 1.0)
    angle = (math.sqrt(1 - c * c) + (math.pi - math.acos(c)) * c) / math.pi
    return ((1 - a) ** 2 * angle + 2 * a * c) / (1 + a * a)


@float64_on_host()
def _smooth_scalars(activation: Activation, method: str, local: float) -> dict[str, Any]:
    """Returns the scalars of the local C'(1) or C''(1): input scale and shift by a solver.

    The output's follow: under TAT E g'^2 = 1 gives its scale, and E g^2 = 1 two shifts.
    """
    from scipy.optimize import root  # SciPy takes as long to import as JAX

    nodes, _ = gaussian_rule()
    values_at(activation, nodes)
    if method == "tat":
        check_continuous(derivative(activation, 1))
    derivatives = jax.jit(lambda x: [derivative(activation, order)(x) for order in range(3)])
    program = derivatives.lower(jax.ShapeDtypeStruct(nodes.shape, nodes.dtype)).compile()

    def scalars(point: Any, sign: int) -> tuple[Any, list[float], float]:
        a, b = point
        z, weights = gaussian_rule(-b / a)
        f, slope, curvature = (np.asarray(x) * a**n for n, x in enumerate(program(a * z + b)))
        mean, slopes, curvatures = (weights @ x for x in (f, slope**2, curvature**2))
        variance = weights @ (f - mean) ** 2
        shift, square, error = -mean, variance, slopes / variance / local - 1
        if method == "tat":
            shift = sign * np.sqrt(np.maximum(slopes - variance, 0)) - mean
            square, error = slopes, curvatures / slopes / local - 1
        squares = (f + shift) ** 2 / square * weights
        slope_of_q, curvature_of_q = squares @ (z**2 - 1) / 2, squares @ (z**4 - 6 * z**2 + 3) / 4
        return np.array([a, b, shift, square**-0.5]), [slope_of_q - 1, error], abs(curvature_of_q)

    solutions = []
    signs = (-1, 1) if method == "tat" else (1,)
    for b, a, sign in itertools.product((1.0, -1.0, 0.0), (1.0, 0.1), signs):
        with np.errstate(all="ignore"):
            point = root(lambda x, sign: scalars(x, sign)[1], (a, b), sign, tol=1e-12).x
            result, errors, steepness = scalars(point, sign)
        if np.abs(errors).max() < 1e-6 and result[0] > 0:
            solutions.append((round(float(steepness), 6), result.tolist()))
    if solutions:  # Of several the one of the straightest Q map, and of mirrored ones the first.
        return dict(zip(SCALARS, min(solutions, key=lambda x: x[0])[1], strict=True))
    raise ValueError(
        f"no input scale and shift give the activation {activation!r} Q'(1) = 1 and a local value "
        f"of {local:.4g}; expected a smooth activation that is not linear, or a rectifier "
        "(jax.nn.relu, jax.nn.leaky_relu)."
    )
