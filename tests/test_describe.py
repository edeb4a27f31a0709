"""Table of a layout against lines counted by hand."""

import jax
import jax.numpy as jnp
import optax

from jaxnorm import Scaled, describe, exclude, layout_from_rules, reparametrize


def params():
    return {
        "attention": {"query": {"kernel": jnp.ones((8, 2, 4)), "bias": jnp.ones((2, 4))}},
        "conv": {"kernel": jnp.ones((3, 3, 4, 16)), "bias": jnp.ones(16)},
        "head": {"kernel": jnp.ones((16, 10))},
    }


LAYOUT = layout_from_rules([("query/kernel$", 0), ("conv/kernel$", (0, 1, 2))])


def decayed(tree):
    return jax.tree.map_with_path(lambda path, _: "kernel" in jax.tree_util.keystr(path), tree)


def test_each_leaf_has_a_line_and_each_kind_a_count():
    assert describe(params(), LAYOUT, decayed=decayed).splitlines() == [
        "leaf                    shape          fan-in axes   fan-in  units  decayed",
        "attention/query/bias    (2, 4)         none                         no",
        "attention/query/kernel  (8, 2, 4)      (-3,)         8       8      yes",
        "conv/bias               (16,)          none                         no",
        "conv/kernel             (3, 3, 4, 16)  (-4, -3, -2)  36      16     yes",
        "head/kernel             (16, 10)       none                         yes",
        "constrained: 2 leaves, 640 weights in 24 units; unconstrained: 3 leaves, 184 weights; "
        "decayed: 3 leaves.",
    ]


def test_shapes_suffice_and_the_mask_may_be_a_prefix():
    shapes = jax.eval_shape(params)
    mask = {"attention": False, "conv": True, "head": True}
    lines = describe(shapes, LAYOUT, decayed=mask).splitlines()
    assert [line.split()[-1] for line in lines[1:-1]] == ["no", "no", "yes", "yes", "yes"]
    assert describe(shapes, LAYOUT) == describe(params(), LAYOUT)


def test_a_node_has_a_constrained_kernel_and_a_scale_that_is_not():
    raw = reparametrize(params(), Scaled, LAYOUT)
    text = describe(raw, exclude("query", layout=LAYOUT))
    assert "decayed" not in text
    lines = {line.split()[0]: line.split("  ") for line in text.splitlines()[1:-1]}
    assert "(-4, -3, -2)" in lines["conv/kernel/kernel"]
    assert {"none"} <= set(lines["conv/kernel/scale"]) & set(lines["attention/query/kernel/kernel"])


def test_a_layout_may_constrain_nothing():
    text = describe({"w": jnp.ones((3, 2)), "b": None}, decayed=True)
    assert text.splitlines()[1].split() == ["w", "(3,", "2)", "none", "yes"]
    assert text.endswith(
        "constrained: 0 leaves, 0 weights in 0 units; unconstrained: 1 leaf, 6 weights; "
        "decayed: 1 leaf."
    )


def test_a_mask_by_rank_marks_the_leaves_that_optax_decays():
    """The mask spares the scale of a node, which has one axis."""
    raw = reparametrize(params(), Scaled, LAYOUT)
    by_rank = lambda tree: jax.tree.map(lambda leaf: leaf.ndim > 1, tree)  # noqa: E731
    tx = optax.add_decayed_weights(0.1, mask=by_rank)
    updates, _ = tx.update(jax.tree.map(jnp.zeros_like, raw), tx.init(raw), raw)
    moves = [bool(update.any()) for update in jax.tree.leaves(updates)]
    lines = describe(raw, LAYOUT, decayed=by_rank).splitlines()[1:-1]
    assert [line.split()[-1] == "yes" for line in lines] == moves
    assert {True, False} == set(moves)
