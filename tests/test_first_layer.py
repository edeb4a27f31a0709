"""`first_layer`: held against what other parameters change at each kernel's product."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnorm import Scaled, first_layer, reparametrize, traced_layout
from jaxnorm._trees._paths import entries, rebuild_entries
from jaxnorm.losses import collect_preactivations
from tests.models import of_equinox, of_haiku, of_linen, of_nnx
from tests.models.model import Model, values

X = values(0, 5, 4)

MODELS = {
    "linen resnet": of_linen.resnet,
    "equinox convolutional": of_equinox.convolutional,
    "nnx vit": of_nnx.vit,
    "linen transformer": of_linen.transformer,
    "haiku resnet": of_haiku.resnet,
}
QUICK = ("equinox convolutional", "nnx vit")


def seen_first(model: Model) -> dict[str, bool]:
    """Whether a kernel's pre-activations stay where all parameters beside it are changed."""
    apply, inputs = model.one_by_one or (model.apply, model.inputs)
    layout = traced_layout(apply, model.params, *inputs)

    def found(params: Any) -> dict[str, Any]:
        return dict(collect_preactivations(apply, params, *inputs, layout=layout)[1])

    def changed_beside(kernel: str) -> Any:
        layer = kernel.rpartition("/")[0]
        changed = [
            leaf if leaf is None or str(path).startswith(f"{layer}/") else leaf * 1.5 + 0.1
            for path, leaf in entries(model.params)
        ]
        return rebuild_entries(model.params, changed)

    before = found(model.params)
    return {
        kernel: bool(np.allclose(found(changed_beside(kernel))[kernel], output, rtol=1e-5))
        for kernel, output in before.items()
    }


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in MODELS]
)
def test_the_first_layer_is_what_no_other_parameter_changes(name: str) -> None:
    model = MODELS[name]()
    said = {
        str(path): own
        for path, own in entries(first_layer(model.apply, model.params, *model.inputs))
    }
    seen = seen_first(model)
    assert {kernel: said[kernel] for kernel in seen} == seen
    assert not any(own for path, own in said.items() if path not in seen)


W = {name: jnp.ones((4, 4)) for name in "ab"}


def recurrent(p: Any, x: Any) -> Any:
    def turn(h: Any, x: Any) -> Any:
        return jnp.tanh(x @ p["a"] + h @ p["b"]), None

    return jax.lax.scan(turn, jnp.zeros(4), x)[0]


@jax.custom_jvp
def linear(x: Any, w: Any, b: Any) -> Any:
    return x @ w + b[None]


linear.defjvp(lambda given, tangents: (linear(*given), linear(*tangents)))

CASES: dict[str, tuple[Callable[..., Any], dict[str, bool]]] = {
    "standardized": (lambda p, x: (x - x.mean(0)[None]) / x.std() @ p["a"] @ p["b"], {"a": True}),
    "scaled by a parameter": (lambda p, x: (x * p["b"][0, 0]) @ p["a"], {}),
    "a shortcut": (lambda p, x: (x @ p["a"]) @ p["b"] + x @ p["b"], {"a": True}),
    "twice": (lambda p, x: x @ p["a"] @ p["a"] @ p["b"], {}),
    "transposed": (lambda p, x: jnp.tanh(p["a"].T @ x.T).T @ p["b"], {"a": True}),
    "a recurrence": (recurrent, {"a": True}),
    "its own derivative": (
        lambda p, x: linear(linear(x, p["a"], jnp.ones(4)), p["b"], jnp.ones(4)),
        {"a": True},
    ),
    "a branch": (lambda p, x: jax.lax.cond(x[0, 0] > 0, lambda: x @ p["a"], lambda: x), {}),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_multiplied_with_the_inputs_themselves(case: str) -> None:
    apply, first = CASES[case]
    assert first_layer(apply, W, X) == {"a": False, "b": False} | first


def test_of_raw_parameters_it_is_that_of_plain_ones() -> None:
    params = {"a": {"kernel": jnp.ones((4, 3))}, "b": {"kernel": jnp.ones((3, 2))}}

    def apply(p: Any, x: Any) -> Any:
        return x @ p["a"]["kernel"] @ p["b"]["kernel"]

    expected = {"a": {"kernel": True}, "b": {"kernel": False}}
    assert first_layer(apply, reparametrize(params, Scaled), X) == expected
