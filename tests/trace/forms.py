"""Forms of one dense layer: each idiom is a row of the table, and every test runs on all rows."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tests.draws import float32
from tests.tolerances import FLOAT32

RNG = np.random.default_rng(0)
ROWS, INPUTS, UNITS = 24, 8, 6


def draw(*shape: int) -> jax.Array:
    return float32(RNG.normal(size=shape))


X, KERNEL, BIAS, GAINS = draw(ROWS, INPUTS), draw(INPUTS, UNITS), draw(UNITS), draw(UNITS)
PARAMS = {"kernel": KERNEL, "bias": BIAS}

#: Inputs and kernel have 8 significant bits.
BFLOAT16 = {"rtol": 3e-2, "atol": 3e-2}


class Form(NamedTuple):
    """Model of ``{"kernel": ..., "bias": ...}`` whose output is w'x + b, (rows, units).

    Attributes:
        apply: the model.
        axes: the fan-in axes of the kernel as it is stored.
        stored: the stored kernel, from one of shape (inputs, units).
        product: w'x of the stored kernel and the inputs, in NumPy.
        units: True if the product has the units in the order of the stored kernel.
        fits_bias: True if the model adds the bias unchanged, and makes nothing else of it.
        tolerance: of the product.
    """

    apply: Callable[[Any, Any], Any]
    axes: tuple[int, ...] = (-2,)
    stored: Callable[[Any], Any] = lambda k: k
    product: Callable[[Any, Any], Any] = lambda k, x: x @ k
    units: bool = True
    fits_bias: bool = True
    tolerance: dict[str, float] = FLOAT32

    def params(self) -> dict[str, Any]:
        return PARAMS | {"kernel": self.stored(KERNEL)}


def of_kernel(change: Callable[[Any], Any], **options: Any) -> Form:
    """Returns the form that applies ``change`` to the kernel."""
    return Form(lambda p, x: x @ change(p["kernel"]) + p["bias"][None], **options)


def of_product(multiply: Callable[[Any, Any], Any], **options: Any) -> Form:
    return Form(lambda p, x: multiply(x, p["kernel"]) + p["bias"][None], **options)


def of_sum(add: Callable[[Any, Any], Any], **options: Any) -> Form:
    return Form(lambda p, x: add(x @ p["kernel"], p["bias"]), **options)


#: Stored as (units, inputs), as in PyTorch and Equinox.
TURNED: dict[str, Any] = {"axes": (-1,), "stored": lambda k: k.T, "product": lambda k, x: x @ k.T}


def with_derivative(
    function: Callable[..., Any], backward: Callable[..., Any]
) -> Callable[..., Any]:
    """Gives a function another derivative, ``backward(operands, cotangent)``."""
    wrapped = jax.custom_vjp(function)
    wrapped.defvjp(lambda *operands: (function(*operands), operands), backward)
    return wrapped


halved = with_derivative(lambda x: x, lambda _, g: (g / 2,))
shifted = with_derivative(lambda h, b: h + b, lambda _, g: (g / 2, g.sum(0, keepdims=True) / 2))
#: Feedback alignment: the error goes back through other weights.
aligned = with_derivative(
    lambda x, w: x @ w, lambda operands, g: (0 * operands[0], operands[0].T @ g / 3)
)


def through_a_branch(p: Any, x: Any) -> Any:
    """Both branches return the kernel; one of them computes something else as well."""
    kernel, shift = jax.lax.cond(
        x.sum() > 0, lambda w: (w, jnp.float32(0)), lambda w: (w, x.sum()), p["kernel"]
    )
    return x @ kernel + p["bias"][None] + 0 * shift


def carried(p: Any, x: Any) -> Any:
    """A loop carries the kernel, and leaves it as it is."""
    kernel, shift = jax.lax.scan(lambda c, row: (c, row.sum()), p["kernel"], x)
    return x @ kernel + p["bias"][None] + 0 * shift[:, None]


def convolved(p: Any, x: Any) -> Any:
    """Channels first, as in PyTorch."""
    return (jax.lax.conv(x[..., None], p["kernel"], (1,), "SAME") + p["bias"][None, :, None])[
        ..., 0
    ]


def spread(x: Any, k: Any) -> Any:
    return jnp.einsum("bi,bio->bo", x, jnp.broadcast_to(k, (len(x), *k.shape)))


def quantized(kernel: Any, np: Any = jnp) -> Any:
    """Eight levels per unit."""
    largest = np.abs(kernel).max(0, keepdims=True)
    return np.round(4 * kernel / largest) * largest / 4


def straight_through(k: Any) -> Any:
    return k + jax.lax.stop_gradient(quantized(k) - k)


def halves(x: Any, k: Any) -> Any:
    return (x.astype(jnp.bfloat16) @ k.astype(jnp.bfloat16)).astype(jnp.float32)


FORMS: dict[str, Form] = {
    "plain": of_product(lambda x, k: x @ k),
    "jit": of_product(jax.jit(lambda x, k: x @ k)),
    "jit of a closure": of_product(lambda x, k: jax.jit(lambda x: x @ k)(x)),
    "remat of a jit": of_product(jax.checkpoint(jax.jit(lambda x, k: x @ k))),
    "a layer in a call": Form(
        jax.checkpoint(jax.jit(lambda p, x: x @ p["kernel"] + p["bias"][None]))
    ),
    "einsum": of_product(lambda x, k: jnp.einsum("io,ni->no", k, x)),
    "cast": of_product(halves, tolerance=BFLOAT16),
    "barrier": of_product(lambda x, k: x @ jax.lax.optimization_barrier((k, x))[0]),
    "through a branch": Form(through_a_branch),
    "carried by a loop": Form(carried),
    "spread over the rows": of_product(spread),
    "as a matrix on the left": of_product(lambda x, k: (k.T @ x.T).T),
    "split units": of_product(
        lambda x, k: jnp.einsum("bi,ihd->bhd", x, k.reshape(8, 2, 3)).reshape(-1, 6)
    ),
    "split inputs": of_product(
        lambda x, k: jnp.einsum("bij,ijo->bo", x.reshape(-1, 4, 2), k.reshape(4, 2, 6)),
    ),
    "column by column": of_product(
        lambda x, k: x @ k.reshape(8, 6, order="F"),
        axes=(-3, -2),
        stored=lambda k: k.reshape(2, 4, 6),
        product=lambda k, x: x @ k.reshape(8, 6, order="F"),
    ),
    "reversed units": of_kernel(
        lambda k: jax.lax.rev(k, (1,)), product=lambda k, x: x @ k[:, ::-1], units=False
    ),
    "a sample at a time": Form(
        lambda p, x: jax.vmap(lambda row: p["kernel"] @ row + p["bias"])(x), **TURNED
    ),
    "columns": Form(lambda p, x: (p["kernel"] @ x.T + p["bias"][:, None]).T, **TURNED),
    "turned before": of_kernel(lambda k: k.T, **TURNED),
    "channels first": Form(
        convolved, (-2, -1), lambda k: k.T[..., None], lambda k, x: x @ k[..., 0].T
    ),
    "divided": of_kernel(lambda k: k / 4, product=lambda k, x: x @ k / 4),
    "with a sign": of_kernel(lambda k: -k, product=lambda k, x: -x @ k),
    "times a number": of_kernel(
        lambda k: (np.float32(0.3) * k).T.reshape(UNITS, INPUTS).T,
        product=lambda k, x: 0.3 * x @ k,
    ),
    "times a constant a unit": of_kernel(
        lambda k: -(GAINS[None] * k) / 2, product=lambda k, x: x @ k * np.asarray(GAINS) / -2
    ),
    "times a constant a unit, turned": of_kernel(
        lambda k: (GAINS[:, None] * k).T,
        **TURNED | {"product": lambda k, x: x @ k.T * np.asarray(GAINS)},
    ),
    "frozen": of_kernel(jax.lax.stop_gradient),
    "straight through": of_kernel(straight_through, product=lambda k, x: x @ quantized(k, np)),
    "straight through, from the right": of_kernel(
        lambda k: jax.lax.stop_gradient(quantized(k) - k) + k,
        product=lambda k, x: x @ quantized(k, np),
    ),
    "straight through a difference": of_kernel(
        lambda k: k - jax.lax.stop_gradient(k - quantized(k)),
        product=lambda k, x: x @ quantized(k, np),
    ),
    "on a device": of_kernel(jax.device_put),
    "on a device with others": of_product(lambda x, k: x @ jax.device_put((x, k.T))[1].T),
    "a bias that is spread": of_sum(lambda h, b: h + jnp.broadcast_to(b, h.shape)),
    "a bias in a call": of_sum(lambda h, b: jax.jit(lambda h: h + b[None])(h)),
    "a bias before a reshape": of_sum(lambda h, b: (h[:, None] + b[None, None])[:, 0]),
    "a bias that is scaled": of_sum(lambda h, b: h + (0.5 * b + 0.5 * b)[None], fits_bias=False),
    "a derivative on the kernel": of_kernel(halved),
    "a derivative on the product": of_sum(lambda h, b: halved(h) + b[None]),
    "a derivative on the sum": of_sum(lambda h, b: halved(h + b[None])),
    "a derivative on the bias": of_sum(lambda h, b: h + halved(b)[None]),
    "a derivative of the sum": of_sum(lambda h, b: shifted(h, b[None])),
    "a derivative of the product": of_product(aligned),
    "a derivative of the product, jitted": Form(
        jax.jit(lambda p, x: aligned(x, p["kernel"]) + p["bias"][None])
    ),
}
