"""Layouts: which leaves are kernels, and which axes are fan-in."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxnorm as jn
from jaxnorm import Scaled, exclude, flax_layout, layout_from_rules, torch_layout
from tests import oracles
from tests.draws import draw
from tests.tolerances import FLOAT32


def tree() -> dict[str, Any]:
    return {
        "conv": {"kernel": draw(0, 3, 3, 2, 4), "bias": draw(1, 4)},
        "dense": [{"kernel": draw(2, 4, 3)}, {"kernel": draw(3, 3)}],
        "norm": {"scale": draw(4, 4, 4)},
        "kernel_table": draw(5, 2, 2),
    }


def test_flax_layout_constrains_kernels_of_two_axes_or_more() -> None:
    assert flax_layout(tree()) == {
        "conv": {"kernel": (-4, -3, -2), "bias": None},
        "dense": [{"kernel": (-2,)}, {"kernel": None}],
        "norm": {"scale": None},
        "kernel_table": None,
    }


def test_torch_layout_constrains_weights_of_two_axes_or_more() -> None:
    params = {
        "weight": draw(0, 5, 2, 3),
        "norm": {"weight": draw(1, 5)},
        "kernel": draw(2, 2, 2),
    }
    assert torch_layout(params) == {"weight": (-2, -1), "norm": {"weight": None}, "kernel": None}


def test_the_first_matching_rule_decides() -> None:
    rules = [
        ("dense/1", None),
        (r"dense/\d/kernel$", 1),
        ("^conv/kernel$", [2, -4, 1]),
        ("kernel", -1),
    ]
    assert layout_from_rules(rules)(tree()) == {
        "conv": {"kernel": (-4, -3, -2), "bias": None},
        "dense": [{"kernel": (-1,)}, {"kernel": None}],
        "norm": {"scale": None},
        "kernel_table": (-1,),
    }


def test_a_node_is_one_leaf_with_its_own_axes() -> None:
    inner = Scaled.from_kernel(draw(0, 4, 2, 3), 0)
    params = {"qkv": {"kernel": Scaled.from_kernel(inner, 0), "bias": draw(1, 2, 3)}}
    axes = Scaled(Scaled((-3,), None, (-3,)), None, (-3,))
    constrained = {"qkv": {"kernel": axes, "bias": None}}
    assert flax_layout(params) == constrained
    assert layout_from_rules([("^qkv/kernel$", (-2, -1))])(params) == constrained
    axes = Scaled(Scaled(None, None, (-3,)), None, (-3,))
    free = {"qkv": {"kernel": axes, "bias": None}}
    assert layout_from_rules([("kernel", None)])(params) == free
    assert torch_layout(params) == free


@pytest.mark.parametrize("absent", [None, optax.MaskedNode()])
def test_placeholders_stay_and_updates_accept_them(absent: Any) -> None:
    params = {"dense": {"kernel": absent, "bias": draw(0, 3)}}
    for layout in (flax_layout, layout_from_rules([("dense/kernel", 0)])):
        assert layout(params) == {"dense": {"kernel": absent, "bias": None}}
        updates, _ = jn.sphere_projection(layout=layout).update(params, optax.EmptyState(), params)
        assert updates["dense"]["kernel"] == absent
        np.testing.assert_array_equal(updates["dense"]["bias"], params["dense"]["bias"])


def test_rules_may_name_leaves_that_a_mask_removed() -> None:
    """A mask replaces a whole layer, and the paths below it are not known any more."""
    layout = layout_from_rules([("^a/kernel$", 0), ("^b/kernel$", 0)])
    params = {"a": optax.MaskedNode(), "b": {"kernel": draw(0, 3, 2)}}
    assert layout(params) == {"a": optax.MaskedNode(), "b": {"kernel": (-2,)}}
    with pytest.raises(ValueError, match=r"'\^a/kernel\$' matches no parameter"):
        layout({"b": {"kernel": draw(0, 3, 2)}})


def test_a_rule_for_a_kernel_leaves_the_scale_of_its_node_free() -> None:
    """The unanchored ``scan/kernel`` also matches ``scan/kernel/scale``, which has two axes."""
    layout = layout_from_rules([("scan/kernel", 1)])
    params = jn.reparametrize({"scan": {"kernel": draw(0, 5, 4, 3)}}, Scaled, layout)
    updates = jax.tree.map(lambda x: 0.1 * x + 1, params)
    tx = optax.chain(jn.centered_gradient(layout), jn.sphere_projection(layout=layout))
    edited, _ = tx.update(updates, tx.init(params), params)
    np.testing.assert_array_equal(edited["scan"]["kernel"].scale, updates["scan"]["kernel"].scale)
    params = optax.apply_updates(params, edited)
    projected = jn.project(params, layout=layout)["scan"]["kernel"]
    np.testing.assert_array_equal(projected.scale, jnp.full((5, 3), 2.1))
    sums, norms = oracles.sums_and_squared_norms(params["scan"]["kernel"].kernel, (-2,))
    np.testing.assert_allclose(sums, 0, **FLOAT32)
    np.testing.assert_allclose(norms, 2, **FLOAT32)
    assert jn.effective(params)["scan"]["kernel"].shape == (5, 4, 3)


PARAMS = {
    "body": {"kernel": jnp.ones((4, 3)), "bias": jnp.zeros(3)},
    "head": {"kernel": jnp.ones((3, 2)), "bias": jnp.zeros(2)},
}


@pytest.mark.parametrize("pattern", ["^head/", "head/kernel$", "head", "ead/k"])
def test_excluded_kernels_stay_free_as_nodes(pattern: str) -> None:
    """Unanchored expressions are also searched for in the middle of a path."""
    layout = exclude(pattern)
    plain, nodes = layout(PARAMS), layout(jn.reparametrize(PARAMS, Scaled))
    assert plain["body"]["kernel"] == nodes["body"]["kernel"].kernel == (-2,)
    assert plain["head"] == {"kernel": None, "bias": None}
    assert nodes["head"]["kernel"] == Scaled(None, None, (-2,))


def test_exclude_takes_several_patterns_and_any_layout() -> None:
    layout = exclude("^head/", "^body/", layout=layout_from_rules([("kernel$", 0), ("bias", 0)]))
    assert jax.tree.leaves(layout(PARAMS)) == []
