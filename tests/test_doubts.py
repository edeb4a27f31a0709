"""Layouts by name say where they are known to be wrong, once a leaf, and nowhere else."""

import warnings
from typing import Any

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest
from flax import nnx

from jaxnorm import Scaled, exclude, flax_layout, layout_from_rules, torch_layout

KEY = jax.random.key(0)
X = jnp.ones((2, 5, 8))


def linen(module: nn.Module, *inputs: Any) -> Any:
    return jax.eval_shape(module.init, KEY, *inputs)["params"]


def of_nnx(make: Any) -> Any:
    return nnx.to_pure_dict(nnx.state(nnx.eval_shape(lambda: make(nnx.Rngs(0))), nnx.Param))


def of_equinox(make: Any) -> Any:
    return {"layer": eqx.filter_eval_shape(lambda: eqx.filter(make(), eqx.is_array))}


def named_equinox(name: str, make: Any) -> Any:
    return {name: of_equinox(make)["layer"]}


def stacked_linear() -> Any:
    return eqx.filter_vmap(lambda k: eqx.nn.Linear(8, 6, key=k))(jax.random.split(KEY, 3))


QKV = {"query/kernel", "key/kernel", "value/kernel"}
HEADS, LAYER = nn.MultiHeadDotProductAttention, "layer/weight"
#: The parameters, and the leaves that are named: of Flax, and of Equinox and PyTorch.
OF_FLAX = {
    "attention": (lambda: linen(HEADS(2), X), QKV),
    "attention without biases": (lambda: linen(HEADS(2, use_bias=False), X), QKV),
    "a projection": (lambda: of_nnx(lambda r: nnx.LinearGeneral(8, (2, 3), rngs=r)), {"kernel"}),
    "scan": (
        lambda: {"dense": {"kernel": jnp.ones((3, 8, 8)), "bias": jnp.ones((3, 8))}},
        {"dense/kernel"},
    ),
    "scan without biases": (
        lambda: {"ScanLayer_0": {"kernel": jnp.ones((3, 8, 8))}},
        {"ScanLayer_0/kernel"},
    ),
    "six axes": (lambda: {"kernel": jnp.ones((2, 1, 1, 1, 3, 4))}, {"kernel"}),
    "transposed": (lambda: {"kernel": jnp.ones((3, 3, 6, 8)), "bias": jnp.ones(6)}, {"kernel"}),
    "LoRA": (
        lambda: of_nnx(lambda r: nnx.LoRALinear(8, 6, lora_rank=2, rngs=r)),
        {"lora/lora_a", "lora/lora_b"},
    ),
}
OF_TORCH = {
    "layer norm": (lambda: of_equinox(lambda: eqx.nn.LayerNorm((6, 4, 4))), {LAYER}),
    "layer norm by name": (lambda: {"norm1": {"weight": jnp.ones((6, 4))}}, {"norm1/weight"}),
    "embedding": (lambda: {"wte": {"weight": jnp.ones((10, 4))}}, {"wte/weight"}),
    "gru": (
        lambda: of_equinox(lambda: eqx.nn.GRUCell(4, 3, key=KEY)),
        {"layer/weight_ih", "layer/weight_hh"},
    ),
    "stack": (lambda: of_equinox(stacked_linear), {LAYER}),
    "transposed": (
        lambda: {"layer": {"weight": jnp.ones((8, 6, 3, 3)), "bias": jnp.ones(6)}},
        {LAYER},
    ),
}
DOUBTED = {
    f"{layout.__name__}, {name}": (layout, *case)
    for layout, cases in ((flax_layout, OF_FLAX), (torch_layout, OF_TORCH))
    for name, case in cases.items()
}


@pytest.mark.parametrize("name", DOUBTED)
def test_what_is_known_to_be_wrong_is_named_once_a_leaf(name: str) -> None:
    layout, make, wanted = DOUBTED[name]
    params = make()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        axes = layout(params)
    texts = [str(warning.message) for warning in caught]
    assert {warning.category for warning in caught} == {UserWarning}
    assert len(texts) == len(wanted)
    for path in wanted:
        (own,) = [text for text in texts if text.startswith(f"the leaf {path!r} of shape (")]
        assert "traced_layout" in own
        assert "\n" not in own
    with pytest.warns(UserWarning, match="the leaf"):  # a doubt changes nothing
        assert layout(params) == axes


def without(pattern: str, layout: Any) -> Any:
    return exclude(pattern, layout=exclude("^other/", layout=layout))


RIGHT = {
    "linen convolutions": (
        flax_layout,
        lambda: [
            linen(nn.Conv(6, (3, 3)), jnp.ones((1, 5, 5, 8))),
            linen(nn.Conv(8, (3,), feature_group_count=4), X),
            linen(nn.Conv(8, (3, 3), feature_group_count=8), jnp.ones((1, 5, 5, 8))),
            linen(nn.ConvTranspose(6, (3, 3)), jnp.ones((1, 5, 5, 8))),
            linen(nn.Conv(6, (3, 3, 3), use_bias=False), jnp.ones((1, 5, 5, 5, 8))),
            linen(nn.Embed(5, 4), jnp.ones(2, int)),
            linen(nn.GRUCell(4), jnp.ones((2, 4)), jnp.ones((2, 3))),
        ],
    ),
    "equinox": (
        torch_layout,
        lambda: [
            of_equinox(lambda: eqx.nn.MLP(3, 2, 4, 2, key=KEY)),
            of_equinox(lambda: eqx.nn.Conv2d(4, 6, 3, groups=2, key=KEY)),
            of_equinox(lambda: eqx.nn.Conv1d(4, 1, 3, key=KEY)),
            of_equinox(lambda: eqx.nn.Conv3d(4, 6, 3, use_bias=False, key=KEY)),
            of_equinox(lambda: eqx.nn.ConvTranspose2d(4, 6, 3, key=KEY)),
            of_equinox(lambda: eqx.nn.MultiheadAttention(2, 8, key=KEY)),
            of_equinox(lambda: eqx.nn.LayerNorm(8)),
            named_equinox("patch_embedding", lambda: eqx.nn.Conv2d(3, 6, 2, key=KEY)),
            named_equinox("embed", lambda: eqx.nn.Linear(3, 6, key=KEY)),
        ],
    ),
    "nodes, whose own axes hold": (
        flax_layout,
        lambda: [{"query": {"kernel": Scaled.from_kernel(jnp.ones((8, 2, 4)), 0)}}],
    ),
    "rules": (
        layout_from_rules([("query", 0)]),
        lambda: [{"query": {"kernel": jnp.ones((8, 2, 4)), "bias": jnp.ones((2, 4))}}],
    ),
    "left out": (
        without("^query/", flax_layout),
        lambda: [
            {
                "query": {"kernel": jnp.ones((8, 2, 4)), "bias": jnp.ones((2, 4))},
                "other": {"lora_a": jnp.ones((8, 2)), "kernel": jnp.ones((8, 2))},
                "dense": {"kernel": jnp.ones((8, 2)), "bias": jnp.ones(2)},
            }
        ],
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_is_not_doubted(name: str) -> None:
    """Warnings are errors in tests."""
    layout, make = RIGHT[name]
    for params in make():
        layout(params)
