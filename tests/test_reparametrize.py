"""`reparametrize` and `effective` of trees, and nodes of a user."""

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
    project,
    reparametrize,
    scale_branches,
)
from jaxnorm._paths import named_leaves
from tests.draws import draw
from tests.tolerances import FLOAT32
from tests.trees import assert_equal


class Squared(Reparametrization):
    """Node of a user, for positive weights: w = root^2."""

    kernel_fields: ClassVar[tuple[str, ...]] = ("root",)
    root: Any
    fan_in_axes: tuple[int, ...]

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


def test_effective_replaces_nodes_and_keeps_other_leaves() -> None:
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


def test_reparametrize_wraps_kernels_and_keeps_their_values() -> None:
    params = {
        "conv": {"kernel": draw(0, 3, 3, 2, 4), "bias": jnp.ones(4)},
        "off": None,
    }
    raw = reparametrize(params, Scaled)
    assert raw["conv"]["kernel"].fan_in_axes == (-4, -3, -2)
    assert raw["conv"]["bias"] is params["conv"]["bias"]
    assert_equal(effective(raw), params)


def test_into_may_decide_for_each_kernel() -> None:
    params = {name: {"kernel": draw(i, 4, 3)} for i, name in enumerate(("body", "head"))}
    calls = []

    def into(path: str, kernel: Any, axes: tuple[int, ...]) -> Any:
        calls.append((path, axes))
        return kernel if path.startswith("head") else Scaled.from_kernel(kernel, axes)

    raw = reparametrize(params, into)
    assert calls == [("body/kernel", (-2,)), ("head/kernel", (-2,))]
    assert isinstance(raw["body"]["kernel"], Scaled)
    assert raw["head"]["kernel"] is params["head"]["kernel"]


def test_a_node_is_wrapped_with_its_own_axes() -> None:
    params = {"qkv": {"kernel": jnp.abs(draw(0, 4, 2, 3))}}
    inner = reparametrize(params, Squared, lambda tree: {"qkv": {"kernel": (-3,)}})
    outer = reparametrize(inner, Scaled)  # flax_layout has (-3, -2) for arrays
    node = outer["qkv"]["kernel"]
    assert (node.fan_in_axes, node.scale.shape) == ((-3,), (2, 3))
    assert flax_layout(outer)["qkv"]["kernel"] == Scaled(Squared((-3,), (-3,)), None, (-3,))
    np.testing.assert_allclose(
        effective(outer)["qkv"]["kernel"], params["qkv"]["kernel"], **FLOAT32
    )


class Branched(Reparametrization):
    """Node of a user with a static field of its own, and one per unit."""

    kernel_fields = ("kernel",)
    static_fields = ("fan_in_axes", "power")
    scale_field = "gain"
    kernel: Any
    gain: Any
    fan_in_axes: tuple[int, ...]
    power: int = 1

    @classmethod
    def from_kernel(cls, kernel: Any, fan_in_axes: Any) -> "Branched":
        return cls(kernel, jnp.ones_like(kernel.sum(fan_in_axes)), fan_in_axes)

    def effective(self) -> Any:
        return self.kernel * jnp.expand_dims(self.gain**self.power, self.fan_in_axes)


def test_a_class_of_the_users_is_a_node_by_itself() -> None:
    """Fields, paths, structures and the frozen dataclass need no decorator."""
    kernel = draw(0, 4, 3)
    node, cubed = Branched.from_kernel(kernel, (-2,)), Branched(kernel, 2 * jnp.ones(3), (-2,), 3)
    assert [str(path) for path, _ in named_leaves({"w": node})] == ["w/kernel", "w/gain"]
    assert jax.tree.structure(node) != jax.tree.structure(cubed)
    np.testing.assert_allclose(jax.jit(effective)(cubed), 8 * kernel, rtol=1e-6)
    with pytest.raises(dataclasses.FrozenInstanceError):
        node.gain = 2  # type: ignore[misc]


def test_a_class_of_the_users_is_scaled_and_projected() -> None:
    params = {"w": {"kernel": Branched.from_kernel(draw(0, 4, 3), (-2,))}}
    halved = scale_branches(params, {"w": {"kernel": 0.5}})
    np.testing.assert_array_equal(halved["w"]["kernel"].gain, 0.5 * np.ones(3))
    projected = effective(project(params))["w"]["kernel"]
    np.testing.assert_allclose(np.square(projected).sum(0), 2, rtol=1e-5)


def test_a_class_without_its_methods_is_abstract() -> None:
    class Half(Reparametrization):
        kernel: Any
        fan_in_axes: tuple[int, ...]

    with pytest.raises(TypeError, match="abstract"):
        Half(draw(0, 4, 3), (-2,))  # type: ignore[abstract]
