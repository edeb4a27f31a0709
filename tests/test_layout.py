"""Layouts: which leaves are kernels, which axes are fan-in, and no silent no-op."""

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxnorm import (
    Scaled,
    centered_gradient,
    effective,
    exclude,
    flax_layout,
    layout_from_rules,
    project,
    reparametrize,
    sphere_projection,
    torch_layout,
)
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


def test_flax_layout_takes_kernels_of_two_axes_or_more() -> None:
    assert flax_layout(tree()) == {
        "conv": {"kernel": (-4, -3, -2), "bias": None},
        "dense": [{"kernel": (-2,)}, {"kernel": None}],
        "norm": {"scale": None},
        "kernel_table": None,
    }


def test_torch_layout_takes_weights_of_two_axes_or_more() -> None:
    params = {
        "weight": draw(0, 5, 2, 3),
        "norm": {"weight": draw(1, 5)},
        "kernel": draw(2, 2, 2),
    }
    assert torch_layout(params) == {"weight": (-2, -1), "norm": {"weight": None}, "kernel": None}


def test_the_first_rule_that_matches_wins() -> None:
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


def test_a_rule_that_matches_nothing_names_the_paths() -> None:
    paths = "conv/bias, conv/kernel, dense/0/kernel, dense/1/kernel, kernel_table, norm/scale"
    message = f"rule 'attention' matches no parameter. The paths are: {paths}. Mend"
    with pytest.raises(ValueError, match=re.escape(message)):
        layout_from_rules([("kernel", -1), ("attention", None)])(tree())


@pytest.mark.parametrize("axes", [2, (-3,), (0, -2), ()])
def test_axes_that_a_leaf_lacks_name_the_leaf(axes: Any) -> None:
    message = r"leaf 'dense/0/kernel' of shape \(4, 3\) has 2 axes.*from -2 to -1 \(or 0 to 1\)"
    with pytest.raises(ValueError, match=message):
        layout_from_rules([("dense/0", axes)])(tree())


def test_a_node_is_one_leaf_whose_own_axes_hold() -> None:
    params = {"qkv": {"kernel": Scaled.from_kernel(draw(0, 4, 2, 3), 0), "bias": draw(1, 2, 3)}}
    own = {"qkv": {"kernel": Scaled((-3,), None, (-3,)), "bias": None}}
    assert flax_layout(params) == own
    assert layout_from_rules([("^qkv/kernel$", (-2, -1))])(params) == own
    nothing = {"qkv": {"kernel": Scaled(None, None, (-3,)), "bias": None}}
    assert layout_from_rules([("kernel", None)])(params) == nothing
    assert torch_layout(params) == nothing


@pytest.mark.parametrize("absent", [None, optax.MaskedNode()])
def test_absent_leaves_stay_what_they_are(absent: Any) -> None:
    """A mask may have taken the kernels away: an update is no place to raise."""
    params = {"dense": {"kernel": absent, "bias": draw(0, 3)}}
    for layout in (flax_layout, layout_from_rules([("dense/kernel", 0)])):
        assert layout(params) == {"dense": {"kernel": absent, "bias": None}}
        updates, _ = sphere_projection(layout=layout).update(params, optax.EmptyState(), params)
        assert updates["dense"]["kernel"] == absent
        np.testing.assert_array_equal(updates["dense"]["bias"], params["dense"]["bias"])


def test_a_rule_for_a_kernel_never_touches_its_scale() -> None:
    """Unanchored, `scan/kernel` is found in `scan/kernel/scale` too, which has two axes."""
    layout = layout_from_rules([("scan/kernel", 1)])
    params = reparametrize({"scan": {"kernel": draw(0, 5, 4, 3)}}, Scaled, layout)
    updates = jax.tree.map(lambda x: 0.1 * x + 1, params)
    tx = optax.chain(centered_gradient(layout), sphere_projection(layout=layout))
    landed, _ = tx.update(updates, tx.init(params), params)
    np.testing.assert_array_equal(landed["scan"]["kernel"].scale, updates["scan"]["kernel"].scale)
    stepped = optax.apply_updates(params, landed)
    np.testing.assert_array_equal(
        project(stepped, layout=layout)["scan"]["kernel"].scale, jnp.full((5, 3), 2.1)
    )
    sums, norms = oracles.sums_and_squared_norms(stepped["scan"]["kernel"].kernel, (-2,))
    np.testing.assert_allclose(sums, 0, **FLOAT32)
    np.testing.assert_allclose(norms, 2, **FLOAT32)
    assert effective(stepped)["scan"]["kernel"].shape == (5, 4, 3)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ({"w": (-2,)}, "another structure.*'b'"),
        ({"b": None, "w": {"x": (-3,)}}, "'w'"),
        ({"b": None, "w": (-3,)}, r"leaf 'w' of shape \(4, 3\) has 2 axes"),
        ({"b": None, "w": -2}, "'w'"),
        ({"b": None, "w": [-2]}, "'w'"),
        ({"b": None, "w": (np.int64(-2),)}, "'w'"),
    ],
)
def test_a_layout_of_a_wrong_form_raises(result: Any, message: str) -> None:
    params = {"w": draw(0, 4, 3), "b": draw(1, 3)}
    with pytest.raises((ValueError, TypeError), match=message):
        project(params, layout=lambda tree: result)


PARAMS = {
    "body": {"kernel": jnp.ones((4, 3)), "bias": jnp.zeros(3)},
    "head": {"kernel": jnp.ones((3, 2)), "bias": jnp.zeros(2)},
}


@pytest.mark.parametrize("pattern", ["^head/", "head/kernel$", "head", "ead/k"])
def test_what_is_left_out_stays_out_when_kernels_become_nodes(pattern: str) -> None:
    """An expression that is not anchored is searched for in the middle of a path too."""
    layout = exclude(pattern)
    plain, nodes = layout(PARAMS), layout(reparametrize(PARAMS, Scaled))
    assert plain["body"]["kernel"] == nodes["body"]["kernel"].kernel == (-2,)
    assert plain["head"] == {"kernel": None, "bias": None}
    assert nodes["head"]["kernel"] == Scaled(None, None, (-2,))


def test_several_patterns_and_another_layout() -> None:
    layout = exclude("^head/", "^body/", layout=layout_from_rules([("kernel$", 0), ("bias", 0)]))
    assert jax.tree.leaves(layout(PARAMS)) == []


def test_a_pattern_that_matches_nothing_raises() -> None:
    with pytest.raises(ValueError, match=r"'tail' matches no parameter.*head/kernel"):
        exclude("tail", layout=flax_layout)(PARAMS)
