"""Warnings of the layouts by name: one for each leaf that they read wrongly, and no other."""

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


def linen_params(module: nn.Module, *inputs: Any) -> Any:
    return jax.eval_shape(module.init, KEY, *inputs)["params"]


def nnx_params(make: Any) -> Any:
    return nnx.to_pure_dict(nnx.state(nnx.eval_shape(lambda: make(nnx.Rngs(0))), nnx.Param))


def equinox_params(make: Any, name: str = "layer") -> Any:
    return {name: eqx.filter_eval_shape(lambda: eqx.filter(make(), eqx.is_array))}


def stacked_linear() -> Any:
    return eqx.filter_vmap(lambda k: eqx.nn.Linear(8, 6, key=k))(jax.random.split(KEY, 3))


def stacked_linears(rngs: Any) -> Any:
    make = lambda rngs: nnx.Linear(8, 8, use_bias=False, rngs=rngs)  # noqa: E731
    return nnx.split_rngs(splits=3)(nnx.vmap(make))(rngs)


QKV = {"query/kernel", "key/kernel", "value/kernel"}
HEADS, LAYER = nn.MultiHeadDotProductAttention, "layer/weight"
#: Parameters, and the paths of the leaves with a warning, by name.
FLAX = {
    "attention": (lambda: linen_params(HEADS(2), X), QKV),
    "attention without biases": (lambda: linen_params(HEADS(2, use_bias=False), X), QKV),
    "a projection": (
        lambda: nnx_params(lambda r: nnx.LinearGeneral(8, (2, 3), rngs=r)),
        {"kernel"},
    ),
    "scan": (
        lambda: {"dense": {"kernel": jnp.ones((3, 8, 8)), "bias": jnp.ones((3, 8))}},
        {"dense/kernel"},
    ),
    "scan without biases": (
        lambda: {"ScanLayer_0": {"kernel": jnp.ones((3, 8, 8))}},
        {"ScanLayer_0/kernel"},
    ),
    "vmap without biases": (
        lambda: {"layers": nnx_params(stacked_linears)},
        {"layers/kernel"},
    ),
    "stacked blocks without biases": (
        lambda: {
            "block": {
                "conv": {"kernel": jnp.ones((3, 2, 2, 4, 4))},
                "bn": {"scale": jnp.ones((3, 4))},
            }
        },
        {"block/conv/kernel"},
    ),
    **{
        f"a projection named {name}": (
            lambda name=name: {
                name: {"kernel": jnp.ones((8, 2, 3))},
                "dense": {"kernel": jnp.ones((3, 8))},
            },
            {f"{name}/kernel"},
        )
        for name in ("q_proj", "to_k", "heads")
    },
    "six axes": (lambda: {"kernel": jnp.ones((2, 1, 1, 1, 3, 4))}, {"kernel"}),
    "transposed": (lambda: {"kernel": jnp.ones((3, 3, 6, 8)), "bias": jnp.ones(6)}, {"kernel"}),
    "LoRA": (
        lambda: nnx_params(lambda r: nnx.LoRALinear(8, 6, lora_rank=2, rngs=r)),
        {"lora/lora_a", "lora/lora_b"},
    ),
}
TORCH = {
    "layer norm": (lambda: equinox_params(lambda: eqx.nn.LayerNorm((6, 4, 4))), {LAYER}),
    "layer norm by name": (lambda: {"norm1": {"weight": jnp.ones((6, 4))}}, {"norm1/weight"}),
    "embedding": (lambda: {"wte": {"weight": jnp.ones((10, 4))}}, {"wte/weight"}),
    "gru": (
        lambda: equinox_params(lambda: eqx.nn.GRUCell(4, 3, key=KEY)),
        {"layer/weight_ih", "layer/weight_hh"},
    ),
    "stack": (lambda: equinox_params(stacked_linear), {LAYER}),
    "transposed": (
        lambda: {"layer": {"weight": jnp.ones((8, 6, 3, 3)), "bias": jnp.ones(6)}},
        {LAYER},
    ),
}
DOUBTFUL = {
    f"{layout.__name__}, {name}": (layout, *case)
    for layout, cases in ((flax_layout, FLAX), (torch_layout, TORCH))
    for name, case in cases.items()
}


@pytest.mark.parametrize("name", DOUBTFUL)
def test_each_doubtful_leaf_has_one_warning(name: str) -> None:
    layout, make, paths = DOUBTFUL[name]
    params = make()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        axes = layout(params)
    assert {warning.category for warning in caught} == {UserWarning}
    messages = [str(warning.message) for warning in caught]
    assert len(messages) == len(paths)
    for path in paths:
        (message,) = [text for text in messages if f"of the leaf {path!r} of shape (" in text]
        assert "traced_layout" in message
        assert "\n" not in message
    with pytest.warns(UserWarning, match="the leaf"):
        assert layout(params) == axes


#: Layouts and parameters that they read rightly.
RIGHT = {
    "linen convolutions": (
        flax_layout,
        lambda: [
            linen_params(nn.Conv(6, (3, 3)), jnp.ones((1, 5, 5, 8))),
            linen_params(nn.Conv(8, (3,), feature_group_count=4), X),
            linen_params(nn.Conv(8, (3, 3), feature_group_count=8), jnp.ones((1, 5, 5, 8))),
            linen_params(nn.ConvTranspose(6, (3, 3)), jnp.ones((1, 5, 5, 8))),
            linen_params(nn.Conv(6, (3, 3, 3), use_bias=False), jnp.ones((1, 5, 5, 5, 8))),
            linen_params(nn.Embed(5, 4), jnp.ones(2, int)),
            linen_params(nn.GRUCell(4), jnp.ones((2, 4)), jnp.ones((2, 3))),
        ],
    ),
    "without biases": (
        flax_layout,
        lambda: [
            {"conv": {"kernel": jnp.ones((3, 4, 8))}, "bn": {"scale": jnp.ones(8)}},
            {"block": {"conv1": {"kernel": jnp.ones((3, 3, 4, 8))}, "bn": {"scale": jnp.ones(8)}}},
            {"stem": {"kernel": jnp.ones((7, 7, 3, 8))}},
        ],
    ),
    "equinox": (
        torch_layout,
        lambda: [
            equinox_params(lambda: eqx.nn.MLP(3, 2, 4, 2, key=KEY)),
            equinox_params(lambda: eqx.nn.Conv2d(4, 6, 3, groups=2, key=KEY)),
            equinox_params(lambda: eqx.nn.Conv1d(4, 1, 3, key=KEY)),
            equinox_params(lambda: eqx.nn.Conv3d(4, 6, 3, use_bias=False, key=KEY)),
            equinox_params(lambda: eqx.nn.ConvTranspose2d(4, 6, 3, key=KEY)),
            equinox_params(lambda: eqx.nn.MultiheadAttention(2, 8, key=KEY)),
            equinox_params(lambda: eqx.nn.LayerNorm(8)),
            equinox_params(lambda: eqx.nn.Conv2d(3, 6, 2, key=KEY), "patch_embedding"),
            equinox_params(lambda: eqx.nn.Linear(3, 6, key=KEY), "embed"),
        ],
    ),
    "node": (
        flax_layout,
        lambda: [{"query": {"kernel": Scaled.from_kernel(jnp.ones((8, 2, 4)), 0)}}],
    ),
    "rules": (
        layout_from_rules([("query", 0)]),
        lambda: [{"query": {"kernel": jnp.ones((8, 2, 4)), "bias": jnp.ones((2, 4))}}],
    ),
    "excluded": (
        exclude("^query/", layout=exclude("^other/")),
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
def test_other_leaves_have_no_warning(name: str) -> None:
    """A warning is an error in these tests."""
    layout, make = RIGHT[name]
    for params in make():
        layout(params)
