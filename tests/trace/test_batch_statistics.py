"""A network that still has batch normalization is noticed, whatever it is written with."""

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from flax import linen, nnx

import jaxnorm as jn
from jaxnorm._trace.batch_statistics import normalized_over_samples
from jaxnorm._trace.interpret import trace
from tests.draws import draw
from tests.residual_networks import attend, conv, normed

N = 4
ROWS, TOKENS, IMAGES = draw(0, 6, N), draw(0, 6, 5, N), draw(0, 6, 8, 8, N)
PARAMS = {name: draw(i, N, N) for i, name in enumerate("abcqkv")} | {
    "three": draw(9, 3, 3, N, N),
    "scale": jnp.ones(N),
    "out": draw(8, N, N),
}


def kernels_of(apply: Any, params: Any, *inputs: Any) -> list[str]:
    def traced(inputs: Any) -> Any:
        return trace(apply, params, inputs, nodes=True)

    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        found = normalized_over_samples(traced(inputs), traced, inputs)
    return [str(path) for path in found]


def standardized(x: Any, axes: Any = 0) -> Any:
    return (x - x.mean(axes)) * jax.lax.rsqrt(x.var(axes) + 1e-5)


def by_moments(x: Any) -> Any:
    """One pass, and one multiply-add."""
    mean = x.mean(0)
    factor = jax.lax.rsqrt((x * x).mean(0) - mean**2 + 1e-5)
    return x * factor + (1 - mean * factor)


def by_quotient(x: Any) -> Any:
    mean = jnp.sum(x, 0, keepdims=True) / len(x)
    return (x - mean) / jnp.sqrt(jnp.square(x - mean).mean(0, keepdims=True) + 1e-5)


def by_mean(x: Any) -> Any:
    return x - x.mean(0)


def by_axis_name(x: Any) -> Any:
    mean = jax.lax.pmean(x, "rows")
    return (x - mean) * jax.lax.rsqrt(jax.lax.pmean(jnp.square(x - mean), "rows") + 1e-5)


def scanned(p: Any, x: Any) -> Any:
    def turn(x: Any, _: Any) -> Any:
        return jax.nn.relu(standardized(x @ p["a"])), None

    return jax.lax.scan(turn, x, None, 3)[0]


NORMALIZED: dict[str, tuple[Any, Any, list[str]]] = {
    "dense": (lambda p, x: standardized(x @ p["a"]) @ p["b"], ROWS, ["a"]),
    "images": (lambda p, x: standardized(conv(x, p["three"]), (0, 1, 2)), IMAGES, ["three"]),
    "channels first": (
        lambda p, x: by_quotient(jnp.moveaxis(conv(x, p["three"]), -1, 1)).sum((2, 3)),
        IMAGES,
        ["three"],
    ),
    "moments": (lambda p, x: by_moments(x @ p["a"]), ROWS, ["a"]),
    "a quotient": (lambda p, x: by_quotient(x @ p["a"]), ROWS, ["a"]),
    "after an activation": (lambda p, x: standardized(jax.nn.relu(x @ p["a"])), ROWS, ["a"]),
    "the mean alone": (lambda p, x: by_mean(x @ p["a"]), ROWS, ["a"]),
    "flattened tokens": (
        lambda p, x: standardized((x @ p["a"]).reshape(-1, N)).reshape(x.shape),
        TOKENS,
        ["a"],
    ),
    "two layers": (
        lambda p, x: standardized(jax.nn.relu(standardized(x @ p["a"])) @ p["b"]),
        ROWS,
        ["a", "b"],
    ),
    "a sum of products": (lambda p, x: standardized(x @ p["a"] + x @ p["b"]), ROWS, ["a", "b"]),
    "scanned": (scanned, ROWS, ["a"]),
    "rematerialized": (jax.checkpoint(lambda p, x: standardized(x @ p["a"])), ROWS, ["a"]),
    "mapped over the rows": (
        lambda p, x: jax.vmap(lambda x: by_axis_name(x @ p["a"]), axis_name="rows")(x),
        ROWS,
        ["a"],
    ),
}


def contrastive(p: Any, x: Any) -> Any:
    z = normed(x @ p["a"])
    scores = z @ z.T
    return scores - jax.nn.logsumexp(scores, 0) - jax.nn.logsumexp(scores, 1)[:, None]


def by_capacity(p: Any, x: Any) -> Any:
    """Every expert takes the rows that it likes best; the load is a loss."""
    chosen = jax.nn.softmax(x @ p["a"], 0)
    load = chosen.mean(0) * jax.nn.softmax(x @ p["a"]).mean(0)
    places = jnp.cumsum(chosen > 0.2, 0)
    return jnp.where(places < 3, chosen, 0.0) * (x @ p["b"]) + 0.01 * load.sum()


def graph(p: Any, x: Any, edges: Any) -> Any:
    degrees = edges.sum(1, keepdims=True)
    x = jax.nn.relu(edges @ (x @ p["a"]) / jnp.sqrt(degrees * degrees.T + 1).sum(1, keepdims=True))
    return x @ p["b"] + x.mean(0)


OTHERS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "layer normalization": (lambda p, x: normed(x @ p["a"], p["scale"]), (ROWS,)),
    "as many features as rows": (lambda p, x: normed(x @ p["a"]) @ p["b"], (draw(0, N, N),)),
    "instance normalization": (
        lambda p, x: (y := conv(x, p["three"])) - y.mean((1, 2), keepdims=True),
        (IMAGES,),
    ),
    "inputs": (lambda p, x: standardized(x) @ p["a"], (ROWS,)),
    "a readout": (lambda p, x: (x @ p["a"]).mean(0), (ROWS,)),
    "a contrastive loss": (contrastive, (ROWS,)),
    "a capacity": (by_capacity, (ROWS,)),
    "a graph": (graph, (ROWS, draw(1, 6, 6))),
    "attention": (lambda p, x: x + attend(p, normed(x), x), (TOKENS,)),
    "a statistic that is not used": (
        lambda p, x: (standardized(x @ p["a"]), x @ p["b"])[1],
        (ROWS,),
    ),
}


@pytest.mark.parametrize("name", NORMALIZED)
def test_names_the_kernels_before_statistics_over_rows(name: str) -> None:
    apply, x, kernels = NORMALIZED[name]
    assert kernels_of(apply, PARAMS, x) == kernels


@pytest.mark.parametrize("name", OTHERS)
def test_other_means_are_no_batch_normalization(name: str) -> None:
    apply, inputs = OTHERS[name]
    assert kernels_of(apply, PARAMS, *inputs) == []


def linen_network(train: bool) -> tuple[Any, Any]:
    class Network(linen.Module):
        @linen.compact
        def __call__(self, x: Any) -> Any:
            x = linen.Conv(N, (3, 3), use_bias=False)(x)
            return linen.Dense(3)(linen.BatchNorm(use_running_average=not train)(x).mean((1, 2)))

    network = Network()
    variables = network.init(jax.random.key(0), IMAGES)
    params, stored = variables["params"], {"batch_stats": variables["batch_stats"]}

    def apply(p: Any, x: Any) -> Any:
        output = network.apply({"params": p, **stored}, x, mutable=["batch_stats"])
        return output[0]

    return apply, params


@pytest.mark.usefixtures("standard_promotion", "unchecked")
def test_networks_of_linen() -> None:
    assert kernels_of(*linen_network(True), IMAGES) == ["Conv_0/kernel"]
    assert kernels_of(*linen_network(False), IMAGES) == []


def test_networks_of_nnx() -> None:
    class Network(nnx.Module):
        def __init__(self, rngs: Any) -> None:
            self.conv = nnx.Conv(N, N, (3, 3), rngs=rngs)
            self.norm = nnx.BatchNorm(N, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            return jax.nn.relu(self.norm(self.conv(x)))

    functional = jn.nnx.functionalize(Network(nnx.Rngs(0)))

    def apply(p: Any, x: Any) -> Any:
        return functional.apply(p, functional.state, x, train=True)[0]

    assert kernels_of(apply, functional.params, IMAGES) == ["conv/kernel"]


CALLS: dict[str, Any] = {
    "traced_layout": lambda apply, p, x: jn.traced_layout(jn.read(apply, p, x)),
    "variance_preserving_init": lambda apply, p, x: jn.variance_preserving_init(
        jn.read(apply, p, x), layout=jn.layout_from_rules([("^a$", -2)])
    ),
    "data_dependent_init": lambda apply, p, x: jn.data_dependent_init(
        jn.read(apply, p, x), layout=jn.layout_from_rules([("^a$", -2)])
    ),
}


@pytest.mark.kept("data_dependent_init")
@pytest.mark.parametrize("call", CALLS)
def test_calls_that_see_the_model_warn_with_the_way_out(call: str) -> None:
    params = {"a": draw(0, N, N), "b": draw(1, N, N)}
    with jax.numpy_rank_promotion("allow"):
        with pytest.warns(
            UserWarning, match=r"batch normalization.* kernels a\..*replace_batch_norm"
        ):
            CALLS[call](lambda p, x: standardized(x @ p["a"]) @ p["b"], params, ROWS)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            CALLS[call](lambda p, x: normed(x @ p["a"]) @ p["b"], params, ROWS)
