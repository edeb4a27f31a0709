"""The networks of `examples/networks/` as `compare --model` takes them, through the one call."""

import re
from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest
from flax import nnx

import jaxnorm as jn
from experiments.models.from_file import network_from_file
from tests.programs import ROOT

CLASSES = 10

#: Kernels with zero sums (a unit of the first one reads one value of a grey image and has none),
#: and ends of residual branches that start quietly.
FOUND = {
    "resnet18.py:ResNet18": (19, 8),
    "vgg.py:VGG": (8, 0),
    "densenet.py:DenseNet": (20, 0),
    "resnet18_v2.py:ResNet18V2": (19, 8),
    "bottleneck.py:network": (21, 6),
    "wide_resnet.py:WideResNet": (14, 6),
    "mobilenet.py:MobileNetV2": (13, 2),
    "unet.py:UNet": (11, 0),
    "inception.py:network": (28, 0),
}

#: Compiling takes most of the time of these tests.
FAST = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


def network(name: str, shape: tuple[int, ...], norm: str | None = None) -> nnx.Module:
    """Returns a network of the folder as ``compare`` makes it."""
    model = f"{ROOT / 'examples' / 'networks'}/{name}"
    return network_from_file(model, shape, CLASSES, nnx.Rngs(0), norm)


@pytest.mark.slow  # traces and compiles a network
@pytest.mark.usefixtures("standard_promotion", "unchecked")
@pytest.mark.parametrize("name", FOUND)
def test_the_call_starts_near_chance_and_takes_a_step(name: str) -> None:
    x, y = jax.random.normal(jax.random.key(0), (64, 8, 8, 1)), jnp.arange(64) % CLASSES
    apply, params, state = jn.nnx.functionalize(network(name, x.shape[1:]))

    def logits(params: Any, x: jax.Array) -> jax.Array:
        return apply(params, state, x, train=True)[0]

    lines = jn.describe_roles(logits, params, x).splitlines()[1:]
    rows = [line.split() for line in lines]
    free = [kernel for kernel, _, zero_sums, *_ in rows if zero_sums == "no"]
    quiet = [kernel for kernel, *_, start, _ in rows if start not in ("1", "random")]
    assert (len(rows) - len(free), len(quiet)) == FOUND[name]

    raw, tx = jn.normalizer_free(logits, params, optax.sgd(0.1), x)
    others = "|".join(f"^{re.escape(kernel)}$" for kernel in free)
    layout = jn.exclude(others, layout=jn.traced_layout(jn.read(logits, params, x)))

    def step(raw: object) -> tuple[jax.Array, jax.Array]:
        def loss(raw: object) -> jax.Array:
            values = optax.softmax_cross_entropy_with_integer_labels(logits(raw, x), y)
            return values.mean()

        value, gradient = jax.value_and_grad(loss)(raw)
        updates, _ = tx.update(gradient, tx.init(raw), raw)
        drift = jn.constraint_drift(optax.apply_updates(raw, updates), layout=layout)
        return value, drift["sum"]

    compiled = jax.jit(step).lower(raw).compile(compiler_options=FAST)
    value, drift = compiled(raw)
    assert abs(value - jnp.log(CLASSES)) < 1
    assert drift < 1e-5


@pytest.mark.usefixtures("standard_promotion")
@pytest.mark.parametrize("norm", ["bn", "gn", None])
@pytest.mark.parametrize("name", ["mobilenet", "unet"])
def test_the_networks_of_the_table_have_each_normalization(name: str, norm: str | None) -> None:
    made = network(f"small.py:{name}", (16, 16, 3), norm)
    kinds = {type(layer).__name__ for _, layer in nnx.iter_modules(made)}
    assert ("BatchNorm" in kinds, "GroupNorm" in kinds) == (norm == "bn", norm == "gn")
