"""Reparametrized kernels in the bytes of Flax and in programs of ``jax.export``."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp
import pytest
from flax import serialization
from jax import export

import jaxnorm as jn
from jaxnorm._paths import named_leaves
from tests.public import ROOT
from tests.trees import assert_equal

KERNEL = jnp.arange(9.0).reshape(3, 3) + jnp.eye(3)


def nodes() -> Any:
    """Nodes of each kind, one inside another, among plain arrays."""
    constrained = jn.LinearlyConstrained.from_kernel(KERNEL, (-2,))
    kinds = (jn.WeightNormalized, jn.CenteredWeightNormalized, jn.WeightStandardized)
    return {
        "nested": jn.Scaled.from_kernel(constrained, (-2,)),
        "plain": KERNEL,
        "spectral": jn.SpectrallyNormalized.from_kernel(KERNEL, (-2,)),
        **{kind.__name__: kind.from_kernel(KERNEL, (-2,)) for kind in kinds},
    }


def test_bytes_of_flax_restore_nodes() -> None:
    target = jax.tree.map(jnp.zeros_like, nodes())
    restored = serialization.from_bytes(target, serialization.to_bytes(nodes()))
    assert str(jax.tree.structure(restored)) == str(jax.tree.structure(nodes()))
    assert_equal(restored, nodes())
    assert_equal(jn.effective(jax.tree.map(jnp.asarray, restored)), jn.effective(nodes()))


REFUSED: dict[str, tuple[Any, str]] = {
    "kind with the same fields": (jn.WeightNormalized.from_kernel(KERNEL, (-2,)), "WeightNorm"),
    "kind with other fields": (jn.Scaled.from_kernel(KERNEL, (-2,)), "Scaled"),
    "other fan-in axes": (jn.CenteredWeightNormalized.from_kernel(KERNEL, (-1,)), r"\w+\(-1,\)"),
    "plain kernel": (KERNEL, "an array"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bytes_restore_into_their_own_kind_only(name: str) -> None:
    saved, named = REFUSED[name]
    target = {"dense": jn.CenteredWeightNormalized.from_kernel(KERNEL, (-2,))}
    with pytest.raises(ValueError, match=rf"dense is CenteredWeightNorm.*\(-2,\).*is {named}"):
        serialization.from_bytes(target, serialization.to_bytes({"dense": saved}))


def test_orbax_restores_into_their_own_kind_only(tmp_path: Path) -> None:
    """Paths tell the kinds apart, also those whose fields have the same names."""
    kinds = [type(node) for node in nodes().values() if isinstance(node, jn.Reparametrization)]
    paths = {kind: names(kind.from_kernel(KERNEL, (-2,))) for kind in kinds}
    assert len(set(map(frozenset, paths.values()))) == len(kinds) == 5
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "0", {"kernel": jn.WeightNormalized.from_kernel(KERNEL, -2)})
        checkpointer.wait_until_finished()
        other = {"kernel": jn.CenteredWeightNormalized.from_kernel(KERNEL, -2)}
        with pytest.raises(ValueError, match="centered_direction"):
            checkpointer.restore(tmp_path / "0", other)


def names(node: Any) -> set[str]:
    return {str(path) for path, _ in named_leaves(node)}


@pytest.mark.slow
def test_flax_knows_nodes_whatever_was_imported_first() -> None:
    """Flax is imported after jaxnorm, and `jaxnorm.nnx` not at all; a node of before is copied."""
    code = """if True:
        import sys
        import jax, jax.numpy as jnp
        import jaxnorm as jn
        assert not [finder for finder in sys.meta_path if "jaxnorm" in type(finder).__module__]
        raw = {"kernel": jn.Scaled.from_kernel(jnp.ones((3, 2)), (-2,))}
        assert "flax" not in sys.modules
        from flax import serialization
        raw = jax.tree.map(jnp.asarray, raw)
        restored = serialization.from_bytes(raw, serialization.to_bytes(raw))
        assert "jaxnorm.nnx" not in sys.modules
        print(type(restored["kernel"]).__name__)"""
    command = [sys.executable, "-c", code]
    process = subprocess.run(command, cwd=ROOT.parent, capture_output=True, text=True, check=True)
    assert process.stdout.split() == ["Scaled"]


def test_exported_programs_take_nodes() -> None:
    exported = export.export(jax.jit(jn.effective))(nodes())
    program = export.deserialize(exported.serialize())
    assert str(program.in_tree) == str(exported.in_tree)
    assert_equal(program.call(nodes()), jax.jit(jn.effective)(nodes()))


def test_a_class_may_be_defined_twice() -> None:
    """In a notebook a cell runs again; the second class serializes with Flax too."""

    def define() -> Any:
        class Twice(jn.Reparametrization):
            kernel: jax.Array
            fan_in_axes: tuple[int, ...]

            @classmethod
            def from_kernel(cls, kernel: Any, fan_in_axes: Any) -> "Twice":
                return cls(kernel, fan_in_axes)

            def effective(self) -> Any:
                return 2 * self.kernel

        return Twice

    first, second = (define().from_kernel(KERNEL, (-2,)) for _ in range(2))
    for node in (first, second):
        restored = serialization.from_bytes(node, serialization.to_bytes(node))
        assert type(restored) is type(node)
        assert_equal(restored.kernel, KERNEL)
