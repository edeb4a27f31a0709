"""Evaluating an activation: in float64 on the host, whatever surrounds the call, or traced."""

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float64

#: An elementwise function.
Activation = Callable[[Any], Any]

_Result = TypeVar("_Result")


def kept(function: Callable[[Activation], _Result]) -> Callable[[Activation], _Result]:
    """Keeps the results for functions of JAX itself, which no later assignment can change."""
    cached = functools.lru_cache(function)

    @functools.wraps(function)
    def call(activation: Activation) -> _Result:
        module = getattr(inspect.unwrap(activation), "__module__", None) or ""
        return (cached if module.startswith("jax.") else function)(activation)

    return call


def traced_parameters(activation: Activation) -> list[Any]:
    """The traced arrays that the activation closes over, as a learned slope inside jit or grad."""
    with _implicit_promotion():
        closed = jax.make_jaxpr(activation)(jax.ShapeDtypeStruct((1, 1), jnp.float32))
    return [const for const in closed.consts if isinstance(const, jax.core.Tracer)]


def on_host(activation: Activation, x: Float64[np.ndarray, " nodes"]) -> Float64[np.ndarray, "..."]:
    """f(x), called inside `float64_on_host`.

    The result has one axis more than ``x`` if the activation has a parameter per channel.
    """
    values = np.asarray(_compiled(activation, len(x))(x[:, None]), np.float64)
    return values[:, 0] if values.shape[1] == 1 else values


@functools.lru_cache(maxsize=4)
def _compiled(activation: Activation, nodes: int) -> Callable[[Any], Any]:
    """The activation's program for so many nodes: a quadrature runs it some thousand times."""
    program = jax.jit(activation).lower(jax.ShapeDtypeStruct((nodes, 1), jnp.float64)).compile()
    return cast("Callable[[Any], Any]", program)


def slope(activation: Activation) -> Activation:
    """The function f'; the derivative along an array of ones, since f is elementwise."""
    return lambda x: jax.jvp(activation, (x,), (jnp.ones_like(x),))[1]


def traced_columns(
    activation: Activation, x: Float[Array, "nodes _"]
) -> Float[Array, "nodes channels"]:
    """f(x) as part of the surrounding trace, with one column a channel; x has as many, or one."""
    with _implicit_promotion():
        values = activation(x)
    return jnp.broadcast_to(values, (x.shape[0], values.shape[1])).astype(x.dtype)


@contextlib.contextmanager
def _implicit_promotion() -> Iterator[None]:
    """Lets float32 parameters meet our float64 nodes, and channels meet a column of nodes."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


@contextlib.contextmanager
def float64_on_host() -> Iterator[None]:
    """Computes at once, also under jit, in the middle of a trace and inside shard_map."""
    with (
        jax.ensure_compile_time_eval(),
        jax.enable_x64(True),
        _implicit_promotion(),
        jax.default_device(_host()),
    ):
        yield


def _host() -> Any:
    """This process's CPU; the default device where JAX was started without one."""
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:
        return None
