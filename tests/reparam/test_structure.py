"""A node's kind is part of its tree structure: JAX's caches go by that."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np

from tests.reparam.table import TABLE, random_node


def test_nodes_of_different_kinds_have_different_structures() -> None:
    """Else `jit` may run one kind's program on another's leaves, when two hashes fall together."""
    structures = {row.name: jax.tree.structure(random_node(row, "dense")) for row in TABLE}
    for (name, left), (other, right) in itertools.combinations(structures.items(), 2):
        assert left != right, (name, other)


def test_nodes_of_the_same_kind_and_axes_have_the_same_structure() -> None:
    for row in TABLE:
        dense, half = random_node(row, "dense"), random_node(row, "dense", jnp.bfloat16)
        assert jax.tree.structure(dense) == jax.tree.structure(half)
        assert hash(jax.tree.structure(dense)) == hash(jax.tree.structure(half))
        turned = jax.tree.structure(random_node(row, "dense_out_in"))
        assert turned != jax.tree.structure(dense)


def test_leaves_are_named_by_their_fields() -> None:
    names = {
        row.name: [
            jax.tree_util.keystr(path, simple=True, separator="/")
            for path, _ in jax.tree_util.tree_leaves_with_path(random_node(row, "dense"))
        ]
        for row in TABLE
    }
    assert names == {
        "lcw": ["coordinates"],
        "wn": ["direction", "scale"],
        "cwn": ["direction", "scale"],
        "ws": ["kernel", "gain"],
        "sn": ["kernel"],
        "scaled": ["kernel", "scale"],
        "scaled_lcw": ["kernel/coordinates", "scale"],
    }


def test_a_round_trip_through_leaves_changes_nothing() -> None:
    for row in TABLE:
        node = random_node(row, "conv")
        leaves, structure = jax.tree.flatten(node)
        again = jax.tree.unflatten(structure, leaves)
        assert type(again) is type(node)
        assert again.fan_in_axes == node.fan_in_axes
        np.testing.assert_array_equal(again.effective(), node.effective())
