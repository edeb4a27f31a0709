"""Networks that are added to their own inputs: roles and factors are those without the sum."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest

import jaxnorm as jn
from jaxnorm._roles import Roles, roles_of
from jaxnorm._trace.reading import Reading
from tests.draws import draw
from tests.residual_networks import conv, lstm, shape

N = 4
DENSE = {name: {"w": shape(N, N), "b": shape(N)} for name in "abcdef"}
IMAGE = {name: {"w": shape(3, 3, N, N), "b": shape(N)} for name in "abc"}
ROWS, IMAGES, NOISE = shape(16, N), shape(3, 8, 8, N), shape(16, 1)

Apply = Callable[..., Any]


def layer(p: Any, x: Any) -> Any:
    product = x @ p["w"] if p["w"].ndim == 2 else conv(x, p["w"])
    return product + p["b"].reshape((1,) * (product.ndim - 1) + (-1,))


def chain(p: Any, x: Any, names: str = "abc") -> Any:
    first, *others = names
    x = layer(p[first], x)
    for name in others:
        x = layer(p[name], jnp.tanh(x))
    return x


def residual(p: Any, x: Any) -> Any:
    """Stream of two blocks that begins with a kernel and ends with one."""
    x = layer(p["a"], x)
    for names in ("bc", "de"):
        x = x + chain(p, x, names)
    return layer(p["f"], x)


def resized(x: Any) -> Any:
    rows, height, width, units = x.shape
    return jax.image.resize(x, (rows, 2 * height, 2 * width, units), "linear")


def read(apply: Apply, params: Any, *inputs: Any) -> tuple[Roles, Any]:
    factors = jn.residual_factors(jn.read(apply, params, *inputs))
    return roles_of(Reading(apply, params, inputs)), factors


#: ``(network, network added to its inputs, parameters, inputs)``.
PAIRS: dict[str, tuple[Apply, Apply, Any, tuple[Any, ...]]] = {
    "a sum": (chain, lambda p, x: x + chain(p, x), DENSE, (ROWS,)),
    "a difference": (chain, lambda p, x: x - chain(p, x), DENSE, (ROWS,)),
    "a scatter": (chain, lambda p, x: x.at[:].add(chain(p, x)), DENSE, (ROWS,)),
    "a part of the branch's size": (chain, lambda p, x: x + 0.1 * chain(p, x), DENSE, (ROWS,)),
    "a scaled skip": (
        lambda p, x, s: s * chain(p, x / jnp.sqrt(1 + s * s)),
        lambda p, x, s: x / (1 + s * s) + s * chain(p, x / jnp.sqrt(1 + s * s)),
        DENSE,
        (ROWS, NOISE),
    ),
    "standardized inputs": (
        lambda p, x: chain(p, (x - x.mean(1, keepdims=True)) / 2),
        lambda p, x: x + chain(p, (x - x.mean(1, keepdims=True)) / 2),
        DENSE,
        (ROWS,),
    ),
    "a crop": (
        lambda p, x: chain(p, x)[:, 2:-2],
        lambda p, x: x[:, 2:-2] + chain(p, x)[:, 2:-2],
        IMAGE,
        (IMAGES,),
    ),
    "an upsampling": (
        lambda p, x: chain(p, resized(x)),
        lambda p, x: resized(x) + chain(p, resized(x)),
        IMAGE,
        (IMAGES,),
    ),
    "flat images": (
        lambda p, x: chain(p, x).reshape(3, -1),
        lambda p, x: x.reshape(3, -1) + chain(p, x).reshape(3, -1),
        IMAGE,
        (IMAGES,),
    ),
    "a residual network": (residual, lambda p, x: x + residual(p, x), DENSE, (ROWS,)),
    "a gated end": (
        lambda p, x: chain(p, x, "abc") * jax.nn.sigmoid(chain(p, x, "def")),
        lambda p, x: x + chain(p, x, "abc") * jax.nn.sigmoid(chain(p, x, "def")),
        DENSE,
        (ROWS,),
    ),
    "a recurrent layer": (
        lstm,
        lambda p, x: x + lstm(p, x),
        {"w": shape(N, 4 * N), "u": shape(N, 4 * N)},
        (shape(2, 5, N),),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_network_added_to_its_inputs_has_its_own_roles_and_factors(name: str) -> None:
    one, other, params, inputs = PAIRS[name]
    assert read(other, params, *inputs) == read(one, params, *inputs)


def test_a_stream_of_inputs_has_the_last_kernel_for_a_head() -> None:
    """And quiet branches, as every stream."""

    def apply(p: Any, x: Any) -> Any:
        for names in ("ab", "cd", "ef"):
            x = x + chain(p, x, names)
        return x

    roles, factors = read(apply, DENSE, ROWS)
    assert {str(path) for path in roles.heads} == {"f/w"}
    assert {name: round(x["w"] ** -2) for name, x in factors.items() if x["w"] != 1} == {
        "b": 3,
        "d": 3,
        "f": 3,
    }


#: Streams that begin with a kernel, a table or latents, and end in a sum.
WITHOUT_HEADS: dict[str, tuple[Apply, Any, Any, tuple[str, ...]]] = {
    "a kernel": (lambda p, x: (y := layer(p["a"], x)) + chain(p, y, "bc"), DENSE, ROWS, ()),
    "a kernel and the inputs": (
        lambda p, x: x + ((y := layer(p["a"], x)) + chain(p, y, "bc")),
        DENSE,
        ROWS,
        (),
    ),
    "a table": (
        lambda p, x: (y := p["table"][x]) + chain(p, y),
        DENSE | {"table": shape(7, N)},
        jax.ShapeDtypeStruct((16,), jnp.int32),
        (),
    ),
    "latents": (
        lambda p, x: p["z"] + layer(p["b"], jax.nn.softmax(p["z"] @ x.T) @ layer(p["a"], x)),
        DENSE | {"z": shape(3, N)},
        ROWS,
        ("^z$",),
    ),
    "turns of a scan": (
        lambda p, x: jax.lax.scan(lambda x, w: (x + jnp.tanh(x) @ w, None), x, p["w"])[0],
        {"w": shape(5, N, N)},
        ROWS,
        (),
    ),
}


@pytest.mark.parametrize("name", WITHOUT_HEADS)
def test_a_stream_with_a_beginning_of_its_own_has_no_head(name: str) -> None:
    apply, params, x, free = WITHOUT_HEADS[name]
    assert not roles_of(Reading(apply, params, (x,), free)).heads


def test_a_network_without_a_head_is_warned_of() -> None:
    """Unless the user says that its results are features."""
    apply = WITHOUT_HEADS["a kernel"][0]
    params = {
        name: {"w": draw(i, N, N), "b": jnp.zeros(N)} for i, name in enumerate("abc", start=1)
    }
    off: dict[str, Any] = dict.fromkeys(("fitted", "quiet", "centered"), False)
    call = lambda **heads: jn.normalizer_free(apply, params, optax.sgd(0.1), x, **heads, **off)  # noqa: E731
    x = draw(9, 16, N)
    with pytest.warns(UserWarning, match=r"a/w, b/w, c/w makes a result.*heads=\[regex\].*heads="):
        call()
    call(heads=())
    call(heads=["c/w"])


@pytest.mark.slow
def test_a_network_added_to_its_inputs_starts_as_without_them() -> None:
    params = {
        name: {"w": draw(i, N, N), "b": jnp.zeros(N)} for i, name in enumerate("abc", start=1)
    }
    with jax.numpy_dtype_promotion("standard"):
        starts = [
            jn.normalizer_free(apply, params, optax.sgd(0.1), draw(9, 16, N))[0]
            for apply in (chain, lambda p, x: x + chain(p, x))
        ]
    for one, other in zip(*map(jax.tree.leaves, starts), strict=True):
        assert (one == other).all()
