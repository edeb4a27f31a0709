"""What a method makes the devices send each other in a training step, read off compiled programs.

A small convolutional network, data-parallel over eight devices. Without a method the step has one
collective, an all-reduce of all gradients together; weight-side methods, the variance constancy
loss, normalization propagation and aligned ghost batches have that one too, and not a byte more
than the gradients that they have. Batch normalization over the whole batch has more.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from jax.sharding import PartitionSpec as P

from jaxnorm import (
    CenteredWeightNormalized,
    LinearlyConstrained,
    Scaled,
    WeightNormalized,
    WeightStandardized,
    effective,
    exclude,
    noise_injection,
    reparametrize,
    sphere_projection,
)
from jaxnorm.activations import standardized
from jaxnorm.losses import (
    collect_preactivations,
    initial_betas,
    positive_betas,
    total_variance_constancy,
)
from jaxnorm.nnx import BatchNorm, functionalize
from tests.devices import Traffic, mesh, traffic

SAMPLES, DEVICES, WIDTH, LAYERS = 64, 8, 8, 2
IMAGE = (4, 4, 3)
FLOAT = 4  # bytes


def draw(seed: int, *shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


X, Y = draw(0, SAMPLES, *IMAGE), draw(1, SAMPLES, 2)


class Net(nnx.Module):
    """Convolution and dense layer, each with what ``make_norm`` makes and an activation; a head."""

    def __init__(self, make_norm: Callable[[], Any], activation: Any):
        rngs = nnx.Rngs(0)
        self.conv = nnx.Conv(3, WIDTH, (3, 3), rngs=rngs)
        self.dense = nnx.Linear(16 * WIDTH, WIDTH, rngs=rngs)
        self.head = nnx.Linear(WIDTH, 2, rngs=rngs)
        self.norms = nnx.List([make_norm() for _ in range(LAYERS)])
        self.activation = activation

    def __call__(self, x: Any) -> Any:
        x = self.activation(self.norms[0](self.conv(x)))
        x = self.activation(self.norms[1](self.dense(x.reshape(len(x), -1))))
        return self.head(x)


class Row(NamedTuple):
    """One method, and the collectives of its step under jit and under shard_map.

    Attributes:
        name: the name of its tests.
        norm: ``(axis_name, groups) -> layer``.
        activation: the network's.
        into: what its kernels become.
        projected: what follows SGD.
        noise: of the scales.
        variance_constancy: the weight of the loss.
        under_jit: the number of all-reduces.
        under_shard_map: the number of all-reduces.
    """

    name: str
    norm: Callable[[Any, int], Any] = lambda axis_name, groups: nnx.identity
    activation: Any = jax.nn.relu
    into: Any = None
    projected: optax.GradientTransformation = optax.identity()
    noise: float = 0.0
    variance_constancy: float = 0.0
    under_jit: int = 1
    under_shard_map: int = 1


def one_kind_a_layer(path: str, kernel: Any, fan_in_axes: Any) -> Any:
    kinds = {
        "conv": CenteredWeightNormalized,
        "dense": WeightStandardized,
        "head": WeightNormalized,
    }
    return kinds[path.split("/")[0]].from_kernel(kernel, fan_in_axes)


TABLE = (
    Row("none"),
    Row("cwo", into=Scaled, projected=sphere_projection(), noise=0.1),
    Row("lcw", into=LinearlyConstrained),
    Row("cwn_ws_wn", into=one_kind_a_layer),
    Row(
        "normprop",
        activation=standardized(jax.nn.relu),
        into=WeightNormalized,
        projected=sphere_projection(squared_radius=1.0, centered=False),
    ),
    Row("vcl", variance_constancy=0.01),
    Row("ghost_bn", norm=lambda axis_name, groups: BatchNorm(WIDTH, groups=groups)),
    # Under jit two forward and one backward a layer; with `axis_name` one and one.
    Row(
        "bn",
        norm=lambda axis_name, groups: BatchNorm(WIDTH, axis_name=axis_name),
        under_jit=1 + 3 * LAYERS,
        under_shard_map=1 + 2 * LAYERS,
    ),
)


#: Of what works on kernels alone, in the default run, what has most parts: cwo.
KERNELS = ("lcw", "cwn_ws_wn")
ROWS = [
    pytest.param(row, marks=[pytest.mark.slow] if row.name in KERNELS else [], id=row.name)
    for row in TABLE
]


class Step(NamedTuple):
    call: Callable[..., Any]
    params: Any
    opt_state: Any
    state: Any


def make_step(row: Row, groups: int, axis_name: str | None = None) -> Step:
    """A step of SGD; on a device's own part of the batch its gradients are averaged over all."""
    apply, net, state = functionalize(Net(lambda: row.norm(axis_name, groups), row.activation))
    params = {"net": net if row.into is None else reparametrize(net, row.into)}
    if row.variance_constancy:
        shapes = {"conv": jnp.zeros((SAMPLES, 4, 4, WIDTH)), "dense": jnp.zeros((SAMPLES, WIDTH))}
        params["betas"] = initial_betas({f"{name}/kernel": x for name, x in shapes.items()})
    tx = optax.chain(optax.sgd(0.1), row.projected)
    tx = noise_injection(tx, row.noise, seed=0) if row.noise else tx

    def loss(params: Any, state: Any, x: Any, y: Any) -> Any:
        output, after = apply(effective(params["net"]), state, x, train=True)
        total = jnp.square(output - y).mean()
        if row.variance_constancy:
            shares = x.reshape(groups, len(x) // groups, *IMAGE)[:, :4]
            _, layers = collect_preactivations(
                lambda net, rows: apply(net, state, rows, train=True),
                params["net"],
                shares.reshape(groups * 4, *IMAGE),
                layout=exclude("^head/"),
            )
            betas = positive_betas(params["betas"])
            total += row.variance_constancy * total_variance_constancy(layers, betas, groups=groups)
        return total, after

    def call(params: Any, opt_state: Any, state: Any, x: Any, y: Any) -> Any:
        gradient, state = jax.grad(loss, has_aux=True)(params, state, x, y)
        if axis_name is not None:
            gradient = jax.lax.pmean(gradient, axis_name)
        updates, opt_state = tx.update(gradient, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, state

    return Step(call, params, tx.init(params), state)


def under_jit(row: Row) -> tuple[Traffic, Step]:
    step = make_step(row, groups=DEVICES)
    with jax.set_mesh(mesh(DEVICES)):
        x, y = jax.device_put((X, Y), P("data"))
        return traffic(step.call, *step[1:], x, y), step


def under_shard_map(row: Row) -> tuple[Traffic, Step]:
    step = make_step(row, groups=1, axis_name="data")
    data = P("data")
    with jax.set_mesh(mesh(DEVICES)):
        specs = (P(), P(), P(), data, data)
        mapped = jax.shard_map(step.call, in_specs=specs, out_specs=P(), check_vma=False)
        return traffic(mapped, *step[1:], X, Y), step


def size(tree: Any) -> int:
    return FLOAT * sum(leaf.size for leaf in jax.tree.leaves(tree))


def is_bn(row: Row) -> bool:
    return row.name == "bn"


@pytest.mark.parametrize("row", ROWS)
def test_under_jit(row: Row) -> None:
    """Gradients of plain kernels travel, whatever they are made of: nodes add nothing.

    Ghost batches' running statistics travel along; the whole batch's shift, sums and their
    gradients travel on their own. The variance constancy loss has a pass of its own through the
    hidden layers: XLA for CPUs reduces both gradients, in one go, and those for TPUs and GPUs their
    sum.
    """
    sent, step = under_jit(row)
    assert sent.operations == ["all-reduce"] * row.under_jit
    gradients = size(effective(step.params))
    if is_bn(row):
        assert gradients < sent.bytes <= gradients + 6 * FLOAT * WIDTH * LAYERS
    else:
        layers = [entry for name, entry in step.params["net"].items() if name != "head"]
        again = size(layers) if row.variance_constancy else 0
        assert sent.bytes == gradients + size(step.state) + again


@pytest.mark.parametrize("row", ROWS)
def test_under_shard_map(row: Row) -> None:
    """Gradients of the raw parameters travel, the nodes' scales among them: O(units) bytes more.

    Pooled statistics are a table of three numbers a device and unit, there and back.
    """
    sent, step = under_shard_map(row)
    assert sent.operations == ["all-reduce"] * row.under_shard_map
    table = 3 * FLOAT * DEVICES * WIDTH
    assert sent.bytes == size(step.params) + (2 * table * LAYERS if is_bn(row) else 0)
