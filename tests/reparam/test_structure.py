"""A node's kind is part of its tree structure: JAX's caches go by that."""

import itertools

import jax

from tests.reparam.table import TABLE, random_node


def test_nodes_of_different_kinds_have_different_structures() -> None:
    """Else `jit` may run one kind's program on another's leaves, when two hashes fall together."""
    cases = itertools.product(TABLE, ("dense", "dense_out_in"))
    structures = {
        (row.name, case): jax.tree.structure(random_node(row, case)) for row, case in cases
    }
    for (name, left), (other, right) in itertools.combinations(structures.items(), 2):
        assert left != right, (name, other)


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
