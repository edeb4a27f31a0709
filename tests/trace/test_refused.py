"""Uses of kernels that are refused, with the paths of the parameters and the ways out."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from jaxnorm import (
    collect_preactivations,
    data_dependent_init,
    layout_from_rules,
    read,
    traced_layout,
    variance_preserving_init,
    with_scale_noise,
)
from tests.devices import mesh
from tests.tolerances import FLOAT32
from tests.trace.forms import draw, quantized, with_derivative

Apply = Callable[..., Any]

X = draw(2, 5, 8)
SMALL = {"w": draw(8, 6), "v": draw(6, 3), "q": draw(4, 8), "row": draw(1, 6)}


def looped(p: Any, x: Any) -> Any:
    """The kernel is carried, as a while loop's state."""
    return jax.lax.while_loop(
        lambda carry: carry[1].sum() < 9.0,
        lambda carry: (carry[0], jnp.tanh(carry[1] @ carry[0] @ carry[0].mT * 0 + carry[1])),
        (p["w"], x),
    )


def sharded_inside(p: Any, x: Any) -> Any:
    specs = P("data"), P(None, "data")
    return jax.shard_map(
        lambda w, x: jax.lax.psum(x @ w, "data"), mesh=mesh(2), in_specs=specs, out_specs=P()
    )(p["w"], x[0])


def grouped_rows(p: Any, x: Any) -> Any:
    """Each group of rows has its own part of the kernel's outputs."""
    return jax.lax.conv_general_dilated(
        x[..., :6].mT, p["w"][..., None], (1,), "SAME", batch_group_count=2
    )


def summed_by_group(p: Any, x: Any) -> Any:
    """One sum for each group of the rows, of the model's inputs and of a parameter."""
    numbers = jax.lax.RaggedDotDimensionNumbers((((0,), (0,)), ((), ())), (0,), ())
    return jax.lax.ragged_dot_general(x[0].T, p["w"], jnp.array([3, 5]), numbers)


def stacked_again(p: Any, x: Any) -> Any:
    return x @ jax.lax.scan(lambda n, row: (n, row[None]), 0, p["w"])[1][:, 0]


def solved(p: Any, x: Any) -> Any:
    """A primitive that is not known."""
    return jax.lax.linalg.triangular_solve(p["w"][:6], x[0, 0, :6, None], left_side=True)


#: Uses without a fan-in that a layout could contain, by the parameters that the error names.
REFUSED: dict[str, list[Apply]] = {
    "w": [
        lambda p, x: x @ (p["w"] - p["w"].mean(0, keepdims=True)),
        stacked_again,
        lambda p, x: x @ p["w"] @ p["w"].T,
        looped,
        lambda p, x: x[..., :4] @ p["w"][:4],
        lambda p, x: x.reshape(2, 40)[:, :24] @ p["w"].reshape(24, 2),
        lambda p, x: x @ jnp.broadcast_to(p["w"][:1], (8, 6)),
        lambda p, x: x[..., :6] @ p["w"].reshape(6, 8),
        grouped_rows,
        lambda p, x: jax.lax.conv(p["w"][None, None], x[:1, None, :2, :2], (1, 1), "SAME"),
        lambda p, x: x @ (p["w"] * jnp.tri(8, 6)),
        lambda p, x: x @ (p["w"] * jnp.arange(8.0)[:, None]),
        lambda p, x: x @ (2 / p["w"]),
        solved,
        sharded_inside,
        summed_by_group,
        lambda p, x: x @ quantized(p["w"]),
        lambda p, x: x @ (p["w"] + (quantized(p["w"]) - p["w"])),
        lambda p, x: x @ (p["w"] + jax.lax.stop_gradient(p["w"])),
        lambda p, x: x @ p["w"].astype(jnp.int32).astype(jnp.float32),
    ],
    "w v": [lambda p, x: x @ (p["w"] @ p["v"])],
    "q w": [lambda p, x: (p["q"] @ p["w"])[None] @ x[..., :6].mT],
    "v": [lambda p, x: x @ jnp.concatenate([p["v"], jnp.ones((2, 3))])],
    "row": [lambda p, x: x @ jnp.broadcast_to(p["row"], (8, 6))],
}


@pytest.mark.parametrize(
    ("names", "apply"), [(names, apply) for names in REFUSED for apply in REFUSED[names]]
)
def test_a_refused_layout_names_the_parameters_and_both_ways_out(names: str, apply: Any) -> None:
    with pytest.raises(ValueError, match="traced_layout") as error:
        traced_layout(read(apply, SMALL, X))
    message = str(error.value)
    assert {path for path in SMALL if f"'{path}'" in message} == set(names.split())
    assert "layout_from_rules" in message
    assert "as_inputs=" in message


ROWS, MASK = draw(6, 4), jnp.ones((4, 5))
EXPERTS = jnp.array([0, 1, 1, 0, 1, 0])
CHANGEABLE = {"kernel": draw(4, 5), "head": draw(5, 2)}


def dropped(k: Any, key: Any) -> jax.Array:
    return jnp.where(jax.random.bernoulli(key, 0.5, (4, 5)), k / 0.5, 0)


def convolved(x: Any, kernels: Any) -> jax.Array:
    """Each row with its own kernel: `jax.vmap` reshapes them to those of groups."""
    conv = lambda x, w: jax.lax.conv(x[None, :, None], w.T[..., None], (1,), "SAME")[0, :, 0]  # noqa: E731
    return jax.vmap(conv)(x, kernels)


def normalized(kernels: Any) -> jax.Array:
    """Each unit of length 1, as in StyleGAN 2."""
    return kernels / jnp.linalg.norm(kernels, axis=1, keepdims=True)


def in_turns(k: Any, x: Any, mask: Any) -> jax.Array:
    """Two layers of two rows each, masked before they are scanned."""
    stack = (k * mask).reshape(2, 2, 5)
    return jax.lax.scan(lambda h, k: (h + x[:, :2] @ k, None), jnp.zeros((6, 5)), stack)[0]


def adapted(k: Any, x: Any, change: Any) -> jax.Array:
    """Used and changed at each turn, as in MAML, where the change is a gradient."""
    return jax.lax.scan(lambda w, _: (w - 0.1 * change, x @ w), k, length=2)[1][-1]


def of_a_part(k: Any, x: Any, place: Any) -> jax.Array:
    """Each row has its own five units of a kernel beside itself."""
    wide = jnp.concatenate([k, k], 1)
    return jax.vmap(lambda x, i: x @ jax.lax.dynamic_slice(wide, (0, i), (4, 5)))(x, place)


#: Products of the rows with a kernel that another input changes, and that input.
CHANGED: dict[str, tuple[Apply, Any]] = {
    "a mask": (lambda k, x, mask: x @ (k * mask), MASK),
    "its scale": (lambda k, x, scale: x @ (k * scale), jnp.float32(2)),
    "DropConnect": (lambda k, x, key: x @ dropped(k, key), jax.random.key(0)),
    "a draw a row": (
        lambda k, x, key: jax.vmap(lambda x, key: x @ dropped(k, key))(x, jax.random.split(key, 6)),
        jax.random.key(0),
    ),
    "a difference": (lambda k, x, change: x @ (k - 0.1 * change), MASK),
    "a path between two": (
        lambda k, x, time: x @ ((1 - time) * k + time * k[::-1]),
        jnp.float32(0.3),
    ),
    "a path between three for each row": (
        lambda k, x, time: jnp.einsum(
            "bi,bio->bo", x, sum(time[:, i, None, None] * jnp.roll(k, i, 0)[None] for i in range(3))
        ),
        ROWS,
    ),
    "a path between two, in a difference": (
        lambda k, x, time: x @ (k * time - k[:, ::-1] * (1 - time)),
        jnp.float32(0.3),
    ),
    "a convolution's mask": (
        lambda k, x, mask: jax.lax.conv(x[..., None], (k * mask).T[..., None], (1,), "SAME")[
            ..., 0
        ],
        MASK,
    ),
    "a style": (lambda k, x, style: convolved(x, k[None] * style[:, :, None]), ROWS),
    "a style, normalized": (
        lambda k, x, style: convolved(x, normalized(k[None] * style[:, :, None])),
        ROWS,
    ),
    "a stack's mask": (in_turns, MASK),
    "a mask in a branch": (
        lambda k, x, mask: x @ jax.lax.cond(x.sum() > 0, lambda w: w * mask, lambda w: w, k),
        MASK,
    ),
    "a difference in a loop": (adapted, MASK),
    "a choice of one for each row": (
        lambda k, x, i: jnp.einsum("bi,bio->bo", x[:, :2], k.reshape(2, 2, 5)[i]),
        EXPERTS,
    ),
    "a choice of units for each row": (of_a_part, EXPERTS),
}


@pytest.mark.parametrize("name", CHANGED)
def test_a_kernel_that_an_input_changes_is_refused(name: str) -> None:
    """Such a kernel is no free scale beside a constrained head."""
    product, other = CHANGED[name]
    apply = lambda p, x, other: jnp.tanh(product(p["kernel"], x, other)) @ p["head"]  # noqa: E731
    with pytest.raises(ValueError, match=r"traced_layout.*'kernel'"):
        traced_layout(read(apply, CHANGEABLE, ROWS, other))
    layout = traced_layout(read(apply, CHANGEABLE, ROWS, other, as_inputs=["kernel"]))
    assert layout(CHANGEABLE) == {"kernel": None, "head": (-2,)}


def test_inputs_that_are_chosen_between_learned_ones_are_no_kernels() -> None:
    """Tokens of a mask, and positions that a time moves, which other inputs meet."""
    params = {"one": draw(4), "other": draw(4), "place": draw(6, 4), "kernel": draw(4, 5)}

    def apply(p: Any, x: Any, time: Any) -> Any:
        token = time * p["one"] + (1 - time) * p["other"]
        x = x * p["one"][None] * time + token[None] + time * p["place"] + (1 - time) * p["place"]
        return (x @ x.T) @ jnp.tanh(x @ p["kernel"])

    axes = traced_layout(read(apply, params, ROWS, jnp.float32(0.3)))(params)
    assert axes == {"one": None, "other": None, "place": None, "kernel": (-2,)}


#: Sizes of h, w and g for which JAX begins with w, and with h times g.
SIZES = {"w first": ((2, 8, 4, 32), (4, 32, 16)), "w last": ((2, 4, 8, 64), (8, 64, 64))}
EINSUMS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "plain": lambda h, w, g: jnp.einsum("btef,efd,bte->btd", h, w, g),
    "jit": jax.jit(lambda h, w, g: jnp.einsum("btef,efd,bte->btd", h, w, g)),
    "vmap": lambda h, w, g: jax.vmap(lambda h, g: jnp.einsum("tef,efd,te->td", h, w, g))(h, g),
    "without a result's indices": lambda h, w, g: jnp.einsum("btef,efd,bte", h, w, g),
    "with a scalar": lambda h, w, g: jnp.einsum(",btef,efd->bted", g.sum(), h, w),
}


def test_the_name_of_its_equations_is_all_that_tells_an_einsum_of_three() -> None:
    """No call is left of it, and the kernel is in its first product, or not, by the sizes."""
    first: dict[str, bool] = {}
    for name, (of_h, of_w) in SIZES.items():
        jaxpr = jax.make_jaxpr(EINSUMS["plain"])(*map(jnp.ones, (of_h, of_w, of_h[:3]))).jaxpr
        assert {x.primitive.name for x in jaxpr.eqns} <= {"dot_general", "transpose"}
        assert {str(x.source_info.name_stack) for x in jaxpr.eqns} == {"btef,efd,bte->btd"}
        first[name] = jaxpr.invars[1] in jaxpr.eqns[0].invars
    assert first == {"w first": True, "w last": False}


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("name", EINSUMS)
def test_an_einsum_of_three_is_refused_whatever_the_sizes(name: str, sizes: str) -> None:
    """JAX picks the order by the sizes: (-2,) for the first, (-3, -2) for the second."""
    of_h, of_w = SIZES[sizes]
    inputs, params = (jnp.ones(of_h), jnp.ones(of_h[:3])), {"kernel": jnp.ones(of_w)}
    apply = lambda p, h, g: EINSUMS[name](h, p["kernel"], g)  # noqa: E731
    for run in (traced_layout, collect_preactivations):
        with pytest.raises(ValueError, match=r"'kernel'.*einsum"):
            run(read(apply, params, *inputs))


# Passes over the layers, in which each kernel is only multiplied, and is not changed before.
SQUARE = draw(8, 8)
H = draw(8, 8)
PARAMS = {"kernel": SQUARE, "other": draw(8, 8), "bias": draw(8)}
STACK = PARAMS | {"kernel": draw(3, 8, 8)}


def dense(p: Any, x: Any) -> Any:
    return jnp.tanh(x @ p["kernel"] + p["bias"][None])


def scanned(stack: Any, x: Any) -> Any:
    width = stack.shape[1]
    return jax.lax.scan(lambda h, k: (jnp.tanh(h[:, :width] @ k), None), x, stack)[0]


def rows_of(p: Any, x: Any) -> Any:
    """The square kernel as a stack of eight layers of one row."""
    return scanned(p["kernel"][:, None], x)


def beside(more: Apply) -> Apply:
    """A layer, and a second use of its kernel."""
    return lambda p, x: (dense(p, x), more(p, x))


#: Rounding with a straight-through gradient.
rounded = with_derivative(lambda w: jnp.round(w), lambda _, g: (g,))


def in_a_branch(use: Apply) -> Apply:
    return lambda p, x: jax.lax.cond(x.sum() > 0, lambda: use(p, x), lambda: x)


def in_shards(p: Any, x: Any) -> Any:
    rows = P("data")
    return jax.shard_map(lambda k, x: x @ k, mesh=mesh(2), in_specs=(P(), rows), out_specs=rows)(
        p["kernel"], x
    )


def at_every_turn(p: Any, x: Any) -> Any:
    return jax.lax.scan(lambda h, _: (h @ p["kernel"], None), x, length=3)[0]


def while_it_is_small(p: Any, x: Any) -> Any:
    return jax.lax.while_loop(lambda h: h.sum() < 0, lambda h: h @ p["kernel"], x)


def of_the_branch_taken(p: Any, x: Any) -> Any:
    return x @ jax.lax.cond(x.sum() > 0, lambda: p["kernel"], lambda: p["other"])


def squared_in_a_loop(p: Any, x: Any) -> Any:
    return jax.lax.scan(lambda h, _: (h + x @ p["kernel"] ** 2, None), x, length=2)[0]


#: Models of a square kernel.
PASSED: dict[str, Apply] = {
    "the same layer at every turn": at_every_turn,
    "a while loop": while_it_is_small,
    "a branch": in_a_branch(lambda p, x: x @ p["kernel"]),
    "different kernels of two branches": of_the_branch_taken,
    "shards": in_shards,
    "a stack along a part of an axis": lambda p, x: scanned(p["kernel"].reshape(4, 2, 8), x),
    "the same kernel stacked": lambda p, x: scanned(jnp.broadcast_to(p["kernel"], (8, 8, 8)), x),
    "a reversed stack": lambda p, x: scanned(jax.lax.rev(p["kernel"], (0,))[:, None], x),
    "a stack for each part of the batch": lambda p, x: jax.lax.map(
        lambda part: rows_of(p, part), x.reshape(4, 2, 8)
    ),
    "a product, and a stack": lambda p, x: rows_of(p, x @ p["kernel"]),
    "a stack in a branch": in_a_branch(rows_of),
    "no product at all": lambda p, x: x + p["bias"][None],
    "a part of its units too": beside(lambda p, x: x @ p["kernel"][:, :2]),
    "one of its units too": beside(lambda p, x: x @ p["kernel"][:, 0]),
    "a part of its inputs too": beside(lambda p, x: x[:, :2] @ p["kernel"][:2]),
    "side by side too": beside(lambda p, x: x @ jnp.concatenate([p["kernel"], p["kernel"]], 1)),
    "its square too": beside(lambda p, x: x**2 @ p["kernel"] ** 2),
    "rounded too": beside(lambda p, x: x @ rounded(p["kernel"])),
    "masked too": beside(lambda p, x: x @ jnp.where(p["kernel"] > 0, p["kernel"], 0)),
    "masked by an input too": beside(lambda p, x: x @ (p["kernel"] * jnp.sign(x))),
    "its square in a loop too": beside(squared_in_a_loop),
}


def along_two_axes(p: Any, x: Any) -> Any:
    part = p["kernel"][:, :3, :3]
    return scanned(part, scanned(part.swapaxes(0, 1), x[:, :3]))


def all_at_once_too(p: Any, x: Any) -> Any:
    return jnp.einsum("bi,lio->blo", scanned(p["kernel"], x), p["kernel"])


def of_experts(p: Any, x: Any) -> Any:
    return jax.lax.ragged_dot(x, p["kernel"], jnp.array([5, 1, 2], jnp.int32))


#: Models of a stack of three.
STACKED: dict[str, Apply] = {
    "a stack along two of its axes": along_two_axes,
    "a stack, and all of it at once": all_at_once_too,
    "a ragged product": of_experts,
}


def of_kernels(params: Any) -> Any:
    return {name: (-2,) if name == "kernel" else None for name in params}


@pytest.mark.parametrize("name", PASSED | STACKED)
def test_a_pass_over_the_layers_names_the_refused_kernel(name: str) -> None:
    """Noise, a factor or a penalty would reach only a part of its uses."""
    apply, params = (PASSED | STACKED)[name], STACK if name in STACKED else PARAMS
    noisy = lambda net, layout: with_scale_noise(net, 0.1, layout=layout)(  # noqa: E731
        jax.random.key(0), params, H
    )
    runs = (collect_preactivations, variance_preserving_init, data_dependent_init, noisy)
    for run in runs:
        with pytest.raises(ValueError, match=r"\bkernel\b.*layout"):
            run(read(apply, params, H), layout=of_kernels)


#: Further uses of a kernel that are no products with the inputs.
NO_PRODUCTS: dict[str, Apply] = {
    "rows that are looked up": lambda p, x: p["kernel"][x[:, 0].astype(jnp.int32) % 4],
    "a penalty": lambda p, x: (p["kernel"].T @ p["kernel"] - jnp.eye(8)).sum(keepdims=True),
    "a norm": lambda p, x: x.mean() * jnp.square(p["kernel"]).sum(keepdims=True),
}


@pytest.mark.kept("a norm")
@pytest.mark.parametrize("name", NO_PRODUCTS)
def test_a_kernel_that_is_tied_to_a_table_is_collected_but_not_initialized(name: str) -> None:
    """A factor would also scale the rows that are looked up."""
    apply = lambda p, x: dense(p, x) + NO_PRODUCTS[name](p, x)  # noqa: E731
    output, layers = collect_preactivations(read(apply, PARAMS, H), layout=of_kernels)
    expected = np.float64(H) @ np.float64(SQUARE) + np.float64(PARAMS["bias"])
    np.testing.assert_allclose(layers["kernel"], expected, **FLOAT32)
    np.testing.assert_allclose(output, apply(PARAMS, H), **FLOAT32)
    for init in (variance_preserving_init, data_dependent_init):
        with pytest.raises(ValueError, match=r"\bkernel\b.*layout"):
            init(read(apply, PARAMS, H), layout=of_kernels)


def test_a_layout_without_the_kernel_of_the_loop_is_a_way_out() -> None:
    apply = lambda p, x: jnp.tanh(at_every_turn(p, x)) @ p["other"]  # noqa: E731
    layout, params = layout_from_rules([("other", (-2,))]), {"kernel": SQUARE, "other": SQUARE}
    for init, axes in ((variance_preserving_init, None), (data_dependent_init, 0)):
        fitted = init(read(apply, params, H), layout=layout)
        np.testing.assert_array_equal(fitted["kernel"], SQUARE)
        np.testing.assert_allclose(np.float64(apply(fitted, H)).var(axes), 1, rtol=1e-5)
