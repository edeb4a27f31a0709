"""The same layout without some leaves, whether kernels are plain or nodes."""

import jax
import jax.numpy as jnp
import pytest

from jaxnorm import Scaled, exclude, flax_layout, layout_from_rules, reparametrize

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
