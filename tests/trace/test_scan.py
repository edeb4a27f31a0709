"""Layers inside a scan, against the same layers in a Python loop."""

import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import jaxnorm as jn
from jaxnorm import (
    Scaled,
    WeightNormalized,
    collect_preactivations,
    data_dependent_init,
    effective,
    read,
    reparametrize,
    traced_layout,
    variance_preserving_init,
    with_scale_noise,
)
from jaxnorm.nnx import functionalize
from tests.tolerances import FLOAT32
from tests.trace.forms import draw
from tests.trees import quick_jit

LAYERS, ROWS, WIDTH = 4, 8, 3
X, W, B = draw(ROWS, WIDTH), draw(LAYERS, WIDTH, WIDTH), draw(LAYERS, WIDTH)


def dense(h: Any, params: Any) -> tuple[Any, None]:
    return jnp.tanh(h @ params["kernel"] + params["bias"][None]), None


def one_by_one_sample(h: Any, params: Any) -> tuple[Any, None]:
    """Kernels of the form (out, in), as in Equinox."""
    return jnp.tanh(jax.vmap(lambda x: params["kernel"] @ x + params["bias"])(h)), None


def scanned(step: Any = dense, **options: Any) -> Callable[[Any, Any], Any]:
    return lambda p, x: jax.lax.scan(step, x, p, **options)[0]


def pairs(p: Any, x: Any) -> Any:
    """Two scans of two layers each."""
    return jax.lax.scan(lambda h, stack: (scanned()(stack, h), None), x, p)[0]


class Layer(nn.Module):
    @nn.compact
    def __call__(self, x: Any, _: Any) -> Any:
        return jnp.tanh(nn.Dense(WIDTH, name="dense")(x)), None


def linen(axis: int = 0) -> Callable[[Any, Any], Any]:
    class Stack(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            layers = nn.scan(
                nn.remat(Layer),
                variable_axes={"params": axis},
                split_rngs={"params": True},
                length=LAYERS,
            )
            return layers(name="stack")(x, None)[0]

    return lambda p, x: Stack().apply({"params": {"stack": {"dense": p}}}, x)


class Stack(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        @nnx.split_rngs(splits=LAYERS)
        @nnx.vmap
        def make(rngs: nnx.Rngs) -> nnx.Module:
            return nnx.Linear(WIDTH, WIDTH, rngs=rngs)

        self.layers = make(rngs)

    def __call__(self, x: Any) -> Any:
        @nnx.scan(in_axes=(0, nnx.Carry), out_axes=nnx.Carry)
        def forward(layer: Any, x: Any) -> Any:
            return jnp.tanh(layer(x))

        return forward(self.layers, x)


def of_nnx() -> Callable[[Any, Any], Any]:
    functional = functionalize(nnx.eval_shape(lambda: Stack(nnx.Rngs(0))))
    state = functional.state
    return lambda p, x: functional.apply({"layers": p}, state, x, train=False)[0]


class Form(NamedTuple):
    """Scan over the layers ``{"kernel": (layers, in, out), "bias": (layers, out)}``.

    Attributes:
        apply: the model of what is stored.
        stored: the stored parameters, from those layers.
        layers: those layers, from the stored parameters.
        axes: the fan-in of the stored kernel.
    """

    apply: Callable[[Any, Any], Any]
    stored: Callable[[Any], Any] = lambda p: p
    layers: Callable[[Any], Any] = lambda p: p
    axes: tuple[int, ...] = (-2,)

    @property
    def layout(self) -> Any:
        return traced_layout(read(self.apply, self.stored(PARAMS), X))


def each(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda p: jax.tree.map(change, p)


def turned(p: Any) -> Any:
    return p | {"kernel": p["kernel"].swapaxes(1, 2)}


PARAMS = {"kernel": W, "bias": B}
FORMS: dict[str, Form] = {
    "by hand": Form(scanned()),
    "unrolled by two": Form(scanned(unroll=2)),
    "remat of each layer": Form(scanned(jax.checkpoint(dense))),
    "in a call": Form(jax.jit(jax.checkpoint(scanned()))),
    "linen": Form(linen()),
    "nnx": Form(of_nnx()),
    "a sample at a time": Form(scanned(one_by_one_sample), turned, turned, (-1,)),
    "a scan of scans": Form(
        pairs,
        each(lambda leaf: leaf.reshape(2, 2, *leaf.shape[1:])),
        each(lambda leaf: leaf.reshape(LAYERS, *leaf.shape[2:])),
    ),
    "from the last layer to the first": Form(
        scanned(reverse=True), each(lambda leaf: leaf[::-1]), each(lambda leaf: leaf[::-1])
    ),
    "layers along the second axis": Form(
        linen(axis=1),
        each(lambda leaf: jnp.moveaxis(leaf, 0, 1)),
        each(lambda leaf: jnp.moveaxis(leaf, 1, 0)),
        (-3,),
    ),
}
EACH = pytest.mark.parametrize("name", FORMS)


def layout(params: Any) -> Any:
    return {name: (-2,) if name == "kernel" else None for name in params}


def one_by_one(p: Any, x: Any) -> tuple[Any, list[Any]]:
    """Output and pre-activations of these layers in a Python loop."""
    products = []
    for kernel, bias in zip(p["kernel"], p["bias"], strict=True):
        products.append(x @ kernel + bias[None])
        x = jnp.tanh(products[-1])
    return x, products


@pytest.mark.kept("by hand")
@EACH
def test_preactivations_and_their_gradients(name: str) -> None:
    form, weights = FORMS[name], draw(ROWS, LAYERS, WIDTH)
    params = form.stored(PARAMS)
    assert jax.tree.leaves(form.layout(params), is_leaf=lambda x: isinstance(x, tuple)) == [
        form.axes
    ]

    def loss(p: Any, collect: Any) -> Any:
        output, layers = collect(p)
        return (weights * layers**2).sum() + jnp.sin(output).sum(), (output, layers)

    def of_scan(p: Any) -> Any:
        output, layers = collect_preactivations(read(form.apply, p, X), layout=form.layout)
        (values,) = layers.values()
        # A layer's place in the entry is its place in the kernel.
        return output, values.reshape(weights.shape)[:, :: -1 if "last" in name else 1]

    def of_loop(p: Any) -> Any:
        output, layers = one_by_one(p, X)
        return output, jnp.stack(layers, 1)

    run = quick_jit(jax.value_and_grad(loss, has_aux=True), static_argnums=1)
    (actual, gradient), expected = run(params, of_scan), run(PARAMS, of_loop)
    actual = actual, form.layers(gradient)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), actual, expected
    )


def fitted(p: Any, x: Any, per_unit: bool) -> tuple[np.ndarray, np.ndarray]:
    """Kernels and biases by hand in float64, a layer at a time."""
    kernels, biases, x = [], [], np.asarray(x, np.float64)
    for kernel, bias in zip(np.float64(p["kernel"]), np.float64(p["bias"]), strict=True):
        product = x @ kernel
        factor = 1 / product.std(0 if per_unit else None)
        kernels.append(kernel * factor)
        biases.append(-product.mean(0) * factor if per_unit else bias)
        x = np.tanh(x @ kernels[-1] + biases[-1])
    return np.stack(kernels), np.stack(biases)


INITS = pytest.mark.parametrize(
    ("init", "per_unit"), [(variance_preserving_init, False), (data_dependent_init, True)]
)


@pytest.mark.kept(
    "by hand-data", "linen-var", "a sample at a time-data", "in a call-var", "a scan of scans-data"
)
@INITS
@EACH
def test_initializers_rescale_one_layer_after_the_other(
    init: Any, per_unit: bool, name: str
) -> None:
    """Stacked along another axis than the first, a kernel has no order of units."""
    form = FORMS[name]
    run = lambda p, x: init(read(form.apply, p, x), layout=form.layout)  # noqa: E731
    if per_unit and "second" in name:
        with pytest.raises(ValueError, match="'kernel'"):
            run(form.stored(PARAMS), X)
        return
    actual = form.layers(quick_jit(run)(form.stored(PARAMS), X))
    kernel, bias = fitted(PARAMS, X, per_unit)
    np.testing.assert_allclose(actual["kernel"], kernel, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(actual["bias"], bias, rtol=1e-4, atol=1e-5)


@pytest.mark.kept("Scaled-data", "WeightNormalized-data")
@INITS
@pytest.mark.parametrize("kind", [Scaled, WeightNormalized])
def test_reparametrized_stacks(init: Any, per_unit: bool, kind: Any) -> None:
    raw = reparametrize(PARAMS, kind, layout)
    actual = init(read(scanned(), raw, X), layout=layout)
    assert jax.tree.structure(actual) == jax.tree.structure(raw)
    kernel, _ = fitted(PARAMS, X, per_unit)
    np.testing.assert_allclose(effective(actual)["kernel"], kernel, rtol=1e-4, atol=1e-5)


def twice(p: Any, x: Any) -> Any:
    return scanned()(p, scanned()(p, x))


def test_a_stack_that_is_used_twice_is_collected_at_its_last_use() -> None:
    _, layers = collect_preactivations(read(twice, PARAMS, X), layout=layout)
    expected = one_by_one(PARAMS, one_by_one(PARAMS, X)[0])[1]
    np.testing.assert_allclose(layers["kernel"], jnp.stack(expected, 1), **FLOAT32)


@INITS
def test_a_stack_that_is_used_twice_is_initialized_by_its_first_use(
    init: Any, per_unit: bool
) -> None:
    """The layers after the second use see what the first one's factors make there."""
    params = {"stack": PARAMS, "head": {"kernel": draw(WIDTH, 2)}}
    axes = lambda p: {"stack": layout(p["stack"]), "head": {"kernel": (-2,)}}  # noqa: E731
    apply = lambda p, x: twice(p["stack"], x) @ p["head"]["kernel"]  # noqa: E731
    actual = init(read(apply, params, X), layout=axes)
    kernel, bias = fitted(PARAMS, X, per_unit)
    np.testing.assert_allclose(actual["stack"]["kernel"], kernel, rtol=1e-4, atol=1e-5)
    x = np.asarray(X, np.float64)
    for layer in [*zip(kernel, bias, strict=True)] * 2:
        x = np.tanh(x @ layer[0] + layer[1])
    variance = (x @ np.asarray(actual["head"]["kernel"])).var(0 if per_unit else None)
    np.testing.assert_allclose(variance, 1, rtol=1e-3)


def drawn(key: Any, path: str, per: str) -> np.ndarray:
    """The normal numbers of each sample, layer and unit, from the keys that are promised."""

    def of(key: Any, layer: int) -> Any:
        for number in (zlib.crc32(path.encode()), 0, layer):
            key = jax.random.fold_in(key, number)
        return jax.random.normal(key, (WIDTH,))

    rows = [key] * ROWS if per == "step" else jax.random.split(key, ROWS)
    return np.asarray([[of(row, layer) for layer in range(LAYERS)] for row in rows], np.float64)


@pytest.mark.kept("by hand")
@pytest.mark.parametrize("per", ["sample", "position", "step"])
@pytest.mark.parametrize("name", ["by hand", "linen", "nnx"])
def test_noise_is_drawn_for_each_layer(name: str, per: Any, key: Any) -> None:
    step_key, sigma = key(), 0.4
    noise = 1 + sigma * drawn(step_key, "kernel", per)

    def loop(p: Any) -> Any:
        x = X
        for layer, (kernel, bias) in enumerate(zip(p["kernel"], p["bias"], strict=True)):
            x = jnp.tanh(jnp.asarray(noise[:, layer], jnp.float32) * (x @ kernel) + bias[None])
        return x

    noisy = with_scale_noise(FORMS[name].apply, sigma, layout=layout, per=per)

    def loss(p: Any, run: Any) -> Any:
        output = run(p)
        return jnp.square(output).sum(), output

    of_both = quick_jit(jax.value_and_grad(loss, has_aux=True), static_argnums=1)
    actual, expected = of_both(PARAMS, lambda p: noisy(step_key, p, X)), of_both(PARAMS, loop)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), actual, expected
    )


@pytest.mark.slow  # nothing is cached while JAX looks for leaks
def test_no_tracer_leaks_from_a_turn() -> None:
    """No tracer of the scan's body is held by what is asked of the layers."""
    key, apply = jax.random.key(0), scanned()

    def all_questions(p: Any, x: Any) -> Any:
        noisy = with_scale_noise(apply, 0.1, layout=layout)(key, p, x)
        _, layers = collect_preactivations(read(apply, p, x), layout=layout)
        fitted = [
            init(read(apply, p, x), layout=layout)
            for init in (variance_preserving_init, data_dependent_init)
        ]
        return noisy, layers, fitted

    with jax.check_tracer_leaks():
        shapes = jax.eval_shape(all_questions, PARAMS, X)
    assert shapes[1]["kernel"].shape == (ROWS, LAYERS, WIDTH)


LOOP = {"w": draw(5, 5)}
STACKED = {"w": draw(3, 5, 5)}
ROWS_OF_5 = draw(6, 5)


def indexed(p: Any, x: Any) -> Any:
    return jax.lax.fori_loop(0, 3, lambda i, x: jnp.tanh(x @ p["w"][i]), x)


#: Loops without one layer per turn, and what the message calls them.
LOOPS: dict[str, tuple[Any, Any, str]] = {
    "recurrent cell": (
        lambda p, x: jax.lax.scan(lambda h, x: (jnp.tanh(h @ p["w"] + x), None), x, x[None])[0],
        LOOP,
        "at every turn of a scan, as in a recurrent cell",
    ),
    "fori_loop": (indexed, STACKED, "at every turn of a scan.*by its index in a stack"),
    "while": (
        lambda p, x: jax.lax.while_loop(lambda x: x.sum() < 0, lambda x: x @ p["w"], x),
        LOOP,
        "inside a while loop",
    ),
    "flipped stack": (
        lambda p, x: jax.lax.scan(lambda x, w: (x @ w, None), x, p["w"][::-1])[0],
        STACKED,
        "by a scan that takes its layers in another order",
    ),
    "branch": (
        lambda p, x: jax.lax.cond(x.sum() > 0, lambda: x @ p["w"], lambda: x),
        LOOP,
        "inside a branch of a cond",
    ),
}


@pytest.mark.parametrize("name", LOOPS)
def test_loops_without_one_layer_per_turn_are_named(name: str) -> None:
    apply, params, words = LOOPS[name]
    with pytest.raises(ValueError, match=f"'w' is used {words}.*one layer per turn"):
        jn.collect_preactivations(jn.read(apply, params, ROWS_OF_5), layout=lambda p: {"w": (-2,)})
