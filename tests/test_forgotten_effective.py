"""A node where an array is wanted: one sentence that says what to call."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnorm import Scaled

X = jnp.ones((2, 3))
SENTENCE = r"was asked of a Scaled, which holds .*; call jaxnorm\.effective\(params\) at the top"

USES = {
    "x @ node": lambda node: X @ node,
    "node @ x": lambda node: node @ X.T,
    "x + node": lambda node: X.T[:, :1] + node,
    "np.asarray": np.asarray,
    "jnp.asarray": jnp.asarray,
    "shape": lambda node: node.shape,
    "dtype": lambda node: node.dtype,
    "transposed": lambda node: node.T,
    "jit": lambda node: jax.jit(lambda k: X @ k)(node),
}


@pytest.mark.parametrize("use", USES)
def test_a_node_is_no_array(use: str) -> None:
    node = Scaled.from_kernel(jnp.ones((3, 2)), -2)
    with pytest.raises((TypeError, AttributeError), match=SENTENCE) as error:
        USES[use](node)
    assert "\n" not in str(error.value)


def test_other_attributes_are_missing_as_anywhere() -> None:
    node = Scaled.from_kernel(jnp.ones((3, 2)), -2)
    assert not hasattr(node, "shape")
    with pytest.raises(AttributeError, match=r"'Scaled' object has no attribute 'gamma'"):
        _ = node.gamma
