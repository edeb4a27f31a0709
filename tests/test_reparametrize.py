"""`reparametrize`, `effective` and `Scaled`: what nodes compute, and how trees carry them."""

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnorm import (
    LinearlyConstrained,
    Reparametrization,
    Scaled,
    effective,
    flax_layout,
    reparametrize,
)
from tests.draws import draw
from tests.tolerances import FLOAT32
from tests.trees import assert_equal


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Squared(Reparametrization):
    """A user's own node, of positive weights: w = root^2."""

    kernel_fields: ClassVar[tuple[str, ...]] = ("root",)
    root: Any
    fan_in_axes: tuple[int, ...] = dataclasses.field(metadata={"static": True})

    @classmethod
    def from_kernel(cls, kernel: Any, fan_in_axes: Any) -> "Squared":
        return cls(jnp.sqrt(kernel), fan_in_axes)

    def effective(self) -> Any:
        return self.root**2


def mixed() -> dict[str, Any]:
    kernel = jnp.abs(draw(0, 4, 3))
    return {
        "scaled": {"kernel": Scaled(kernel, draw(1, 3), (-2,)), "bias": jnp.ones(3)},
        "nested": [Scaled(Squared(kernel, (-2,)), 2 * jnp.ones(3), (-2,)), None],
        "constrained": LinearlyConstrained.from_kernel(kernel, -2),
        "plain": {"kernel": kernel},
    }


def test_effective_maps_every_node_and_leaves_the_rest_alone() -> None:
    tree, kernel = mixed(), np.abs(np.float64(draw(0, 4, 3)))
    result = effective(tree)
    np.testing.assert_allclose(
        result["scaled"]["kernel"], kernel * np.float64(draw(1, 3)), **FLOAT32
    )
    np.testing.assert_allclose(result["nested"][0], 2 * kernel**2, **FLOAT32)
    np.testing.assert_allclose(result["constrained"], kernel - kernel.mean(0), **FLOAT32)
    assert result["nested"][1] is None
    assert result["plain"]["kernel"] is tree["plain"]["kernel"]
    assert result["scaled"]["bias"] is tree["scaled"]["bias"]
    assert all(
        a is b for a, b in zip(*map(jax.tree.leaves, (result, effective(result))), strict=True)
    )


def test_reparametrize_wraps_kernels_alone_and_keeps_the_function() -> None:
    params = {
        "conv": {"kernel": draw(0, 3, 3, 2, 4), "bias": jnp.ones(4)},
        "off": None,
    }
    raw = reparametrize(params, Scaled)
    assert raw["conv"]["kernel"].fan_in_axes == (-4, -3, -2)
    assert raw["conv"]["bias"] is params["conv"]["bias"]
    assert_equal(effective(raw), params)


def test_into_decides_kernel_by_kernel() -> None:
    params = {name: {"kernel": draw(i, 4, 3)} for i, name in enumerate(("body", "head"))}
    seen = []

    def into(path: str, kernel: Any, axes: tuple[int, ...]) -> Any:
        seen.append((path, axes))
        return kernel if path.startswith("head") else Scaled.from_kernel(kernel, axes)

    raw = reparametrize(params, into)
    assert seen == [("body/kernel", (-2,)), ("head/kernel", (-2,))]
    assert isinstance(raw["body"]["kernel"], Scaled)
    assert raw["head"]["kernel"] is params["head"]["kernel"]


def test_a_node_is_wrapped_as_one() -> None:
    params = {"qkv": {"kernel": jnp.abs(draw(0, 4, 2, 3))}}
    inner = reparametrize(params, Squared, lambda tree: {"qkv": {"kernel": (-3,)}})
    outer = reparametrize(inner, Scaled)  # flax_layout would say (-3, -2): the node's axes hold
    node = outer["qkv"]["kernel"]
    assert (node.fan_in_axes, node.scale.shape) == ((-3,), (2, 3))
    assert flax_layout(outer)["qkv"]["kernel"] == Scaled(Squared((-3,), (-3,)), None, (-3,))
    np.testing.assert_allclose(
        effective(outer)["qkv"]["kernel"], params["qkv"]["kernel"], **FLOAT32
    )


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
