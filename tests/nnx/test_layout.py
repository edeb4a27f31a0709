"""`jaxnorm.nnx.layout` against the modules: the output that changes with one unit's weights."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxnorm import Scaled, center, flax_layout, read, reparametrize, traced_layout
from jaxnorm.nnx import layout
from tests.draws import float32

# Sums of at most 100 float32 products of order one: 100 roundings of 2^-24, with a margin of 3.
ZERO = {"rtol": 0.0, "atol": 2e-5}


class Case(NamedTuple):
    """A module without biases.

    Attributes:
        make: its constructor.
        shape: shape of its input.
        units: the axes of its output that count the units, in the kernel's order.
        axes: the fan-in axes of its kernel.
        call: runs the module.
        path: path of its kernel.
    """

    make: Callable[[nnx.Rngs], nnx.Module]
    shape: tuple[int, ...]
    units: tuple[int, ...]
    axes: tuple[int, ...]
    call: Callable[..., Any] = lambda model, x: model(x)
    path: tuple[str, ...] = ("kernel",)


def conv(inputs: int, outputs: int, size: Any, **options: Any) -> Callable[..., Any]:
    return lambda rngs: nnx.Conv(
        inputs, outputs, size, padding="VALID", use_bias=False, rngs=rngs, **options
    )


def transposed(size: Any, **options: Any) -> Callable[..., Any]:
    """Circular padding fills every window."""
    return lambda rngs: nnx.ConvTranspose(
        3, 5, size, padding="CIRCULAR", use_bias=False, rngs=rngs, **options
    )


def general(inputs: Any, outputs: Any, **options: Any) -> Callable[..., Any]:
    return lambda rngs: nnx.LinearGeneral(inputs, outputs, use_bias=False, rngs=rngs, **options)


def attention(rngs: nnx.Rngs) -> nnx.Module:
    return nnx.MultiHeadAttention(2, 6, use_bias=False, decode=False, rngs=rngs)


def stacked(rngs: nnx.Rngs) -> nnx.Module:
    make = nnx.vmap(lambda key: nnx.Linear(4, 3, use_bias=False, rngs=nnx.Rngs(key)))
    return make(jax.random.split(rngs(), 5))


def run_stacked(model: nnx.Module, x: Any) -> Any:
    return nnx.vmap(lambda layer, x: layer(x), in_axes=(0, None))(model, x)


CASES = {
    "linear": Case(lambda rngs: nnx.Linear(4, 3, use_bias=False, rngs=rngs), (2, 4), (-1,), (-2,)),
    "conv1d": Case(conv(3, 4, 3), (2, 7, 3), (-1,), (-3, -2)),
    "conv2d": Case(conv(3, 4, (3, 2)), (2, 5, 5, 3), (-1,), (-4, -3, -2)),
    "conv3d": Case(conv(2, 3, (2, 2, 2)), (1, 3, 3, 3, 2), (-1,), (-5, -4, -3, -2)),
    "grouped": Case(conv(4, 6, (3,), feature_group_count=2), (2, 5, 4), (-1,), (-3, -2)),
    "depthwise": Case(conv(4, 4, (3, 3), feature_group_count=4), (2, 4, 4, 4), (-1,), (-4, -3, -2)),
    "transposed": Case(transposed((3, 2)), (2, 4, 4, 3), (-1,), (-4, -3, -2)),
    "transpose_kernel": Case(
        transposed((3, 2), transpose_kernel=True), (2, 4, 4, 3), (-1,), (-4, -3, -1)
    ),
    "general": Case(general(4, (2, 3)), (5, 4), (-2, -1), (-3,)),
    "general_many": Case(general((2, 3), (4, 2), axis=(-2, -1)), (5, 2, 3), (-2, -1), (-4, -3)),
    "general_batch": Case(general(3, 4, batch_axis={0: 2}), (2, 5, 3), (0, -1), (-2,)),
    "einsum": Case(
        lambda rngs: nnx.Einsum("nta,hab->nthb", (2, 4, 3), rngs=rngs), (2, 5, 4), (-2, -1), (-2,)
    ),
    "einsum_ellipsis": Case(
        lambda rngs: nnx.Einsum("... ab, abc -> ... c", (2, 4, 3), rngs=rngs),
        (5, 2, 4),
        (-1,),
        (-3, -2),
    ),
    "einsum_ellipsis_of_the_kernel": Case(
        lambda rngs: nnx.Einsum("nta,ab...->ntb...", (4, 3, 2), rngs=rngs),
        (2, 5, 4),
        (-2, -1),
        (-3,),
    ),
    "query": Case(
        attention, (2, 5, 6), (-2, -1), (-3,), lambda m, x: m.query(x), ("query", "kernel")
    ),
    "out": Case(attention, (2, 5, 2, 3), (-1,), (-3, -2), lambda m, x: m.out(x), ("out", "kernel")),
    "stacked": Case(stacked, (2, 4), (0, -1), (-2,), run_stacked),
}


def kernel_axes_and_run(case: Case) -> tuple[Any, Any, Callable[[Any], Any]]:
    """Kernel, its axes in the layout, and the output as a function of kernel and input."""
    graph, params = nnx.split(case.make(nnx.Rngs(0)))
    tree = nnx.to_pure_dict(params)
    axes = layout(nnx.merge(graph, params))(tree)
    kernel = tree
    for name in case.path:
        kernel, axes = kernel[name], axes[name]

    def run(kernel: Any, x: Any) -> Any:
        changed = jax.tree_util.tree_map_with_path(
            lambda path, leaf: kernel if tuple(k.key for k in path) == case.path else leaf, tree
        )
        return case.call(nnx.merge(graph, changed), x)

    compiled = jax.jit(run)
    x = jax.ShapeDtypeStruct(case.shape, jnp.float32)
    traced = traced_layout(read(lambda tree, x: case.call(nnx.merge(graph, tree), x), tree, x))(
        tree
    )
    for name in case.path:
        traced = traced[name]
    assert traced == axes
    return kernel, axes, lambda kernel, x: np.asarray(compiled(kernel, x), np.float64)


@pytest.mark.kept("query", "transposed")
@pytest.mark.parametrize("name", CASES)
def test_one_unit_s_weights_change_one_output(name: str) -> None:
    case = CASES[name]
    kernel, axes, run = kernel_axes_and_run(case)
    assert axes == case.axes
    draw = np.random.default_rng(1)
    x = float32(draw.normal(size=case.shape))
    before = run(kernel, x)
    sizes = [kernel.shape[a] for a in range(-kernel.ndim, 0) if a not in axes]
    assert sizes == [before.shape[a] for a in case.units]

    unit = tuple(int(draw.integers(size)) for size in sizes)
    indices = iter(unit)
    weights = tuple(slice(None) if a in axes else next(indices) for a in range(-kernel.ndim, 0))
    after = run(kernel.at[weights].multiply(2.0), x)
    changed = np.moveaxis(after != before, case.units, range(len(unit)))
    assert changed[unit].all()
    assert changed.sum() == changed[unit].size

    flat = run(center(kernel, axes), jnp.full(case.shape, 3.0))
    np.testing.assert_allclose(flat, 0, **ZERO)
    assert np.abs(run(kernel, jnp.full(case.shape, 3.0))).max() > 0.1


def test_a_unit_of_an_embedding_is_a_row() -> None:
    model = nnx.Embed(7, 3, rngs=nnx.Rngs(0))
    params = nnx.state(model)
    assert layout(model)(nnx.to_pure_dict(params)) == {"embedding": (-1,)}
    before = model(jnp.arange(7))
    model.embedding[...] = model.embedding[...].at[4, :].multiply(2.0)
    np.testing.assert_array_equal((model(jnp.arange(7)) != before).all(1), np.arange(7) == 4)


class Nested(nnx.Module):
    """Modules in a list, a dict and a Sequential, and one with two paths."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.z = nnx.Linear(2, 2, use_bias=False, rngs=rngs)
        self.a = nnx.Sequential(self.z, nnx.relu, nnx.LayerNorm(2, rngs=rngs))
        self.blocks = nnx.List([nnx.Dict(first=nnx.Conv(2, 3, (3, 3), rngs=rngs))])
        self.kernel = nnx.Param(jnp.ones((2, 2)))


AXES = {
    "a": {"layers": {0: {"kernel": (-2,)}, 2: {"bias": None, "scale": None}}},
    "blocks": {0: {"first": {"bias": None, "kernel": (-4, -3, -2)}}},
    "kernel": None,
}


@pytest.mark.parametrize("build", [nnx.eval_shape, lambda make: make()])
def test_modules_in_any_container_are_read(build: Any) -> None:
    """A parameter of the model's own class is free, whatever its name."""
    model = build(lambda: Nested(nnx.Rngs(0)))
    state = nnx.state(model, nnx.Param)
    assert layout(model)(nnx.to_pure_dict(state)) == AXES
    assert nnx.to_pure_dict(layout(model)(state)) == AXES


def test_nodes_count_at_the_kernel_s_path() -> None:
    model = attention(nnx.Rngs(0))
    params = nnx.to_pure_dict(nnx.state(model, nnx.Param))
    raw = reparametrize(params, Scaled, layout(model))
    assert raw["query"]["kernel"].scale.shape == (2, 3)
    assert layout(model)(raw)["query"]["kernel"] == Scaled((-3,), None, (-3,))
    with pytest.warns(UserWarning, match="attention"):  # by name it is wrong
        assert flax_layout(params)["query"]["kernel"] == (-3, -2)
