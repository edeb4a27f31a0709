"""Evaluating an activation: in float64 on the host, whatever surrounds the call, or traced."""

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float64

#: An elementwise function.
Activation = Callable[[Any], Any]


def is_jax_function(activation: Activation) -> bool:
    """Whether it is a function of JAX itself, which no later assignment can change."""
    module = getattr(inspect.unwrap(activation), "__module__", None) or ""
    return module.startswith("jax.")


def traced_parameters(activation: Activation) -> list[Any]:
    """The traced arrays that the activation closes over, as a learned slope inside jit or grad."""
    if not callable(activation):
        raise TypeError(
            f"the activation is {activation!r}; wanted a function of arrays: jax.nn.relu, for "
            "example."
        )
    with _implicit_promotion():
        closed = jax.make_jaxpr(activation)(jax.ShapeDtypeStruct((1, 1), jnp.float32))
    return [const for const in closed.consts if isinstance(const, jax.core.Tracer)]


def on_host(activation: Activation, x: Float64[np.ndarray, " nodes"]) -> Float64[np.ndarray, "..."]:
    """f(x) in float64 on the host, also under jit, in the middle of a trace and inside shard_map.

    The result has one axis more than ``x`` if the activation has a parameter per channel.
    """
    with _float64_on_host():
        values = np.asarray(_compiled(activation, len(x))(x[:, None]))
    if np.iscomplexobj(values):
        raise TypeError(
            f"the activation {activation!r} made complex numbers of real ones; wanted real values."
        )
    values = values.astype(np.float64)
    return np.asarray(_per_node(values, activation))


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
    _check_rank(values, activation)
    return jnp.broadcast_to(values, (x.shape[0], values.shape[1])).astype(x.dtype)


def _per_node(values: Any, activation: Activation) -> Any:
    """One value a node, or one row of channels."""
    _check_rank(values, activation)
    return values[:, 0] if values.shape[1] == 1 else values


def _check_rank(values: Any, activation: Activation) -> None:
    if values.ndim != 2:
        raise ValueError(
            f"the activation {activation!r} turned an array of 2 axes into one of {values.ndim}; "
            "wanted an elementwise function, whose parameters are scalars or one a channel."
        )


@contextlib.contextmanager
def _implicit_promotion() -> Iterator[None]:
    """Lets float32 parameters meet our float64 nodes, and channels meet a column of nodes."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


@contextlib.contextmanager
def _float64_on_host() -> Iterator[None]:
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
