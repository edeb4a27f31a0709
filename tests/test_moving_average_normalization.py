"""Batch normalization's training in a plain network, against batch normalization itself."""

from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from jax.sharding import NamedSharding, PartitionSpec

import jaxnorm as jn
from tests import written_out
from tests.devices import AXIS_TYPES, collectives, mesh
from tests.written_out import (
    EPSILON,
    assert_close,
    batch_normalized,
    cross_entropy,
    drawn,
    folded,
    kept,
    minibatch,
    moved,
    parameters,
    plain,
    without_scales,
)

NETWORKS = {
    name: getattr(written_out, name)
    for name in ("chain", "residual", "bottleneck", "mobilenet", "mbconv", "branching")
}


def called(network: Any, params: Any, x: jax.Array, optimizer: Any = None, **options: Any) -> Any:
    """Returns the model and what the call makes of it."""
    apply = lambda params, x: plain(network, params, x)  # noqa: E731
    optimizer = optax.sgd(0.1) if optimizer is None else optimizer
    return apply, *jn.moving_average_normalization(
        apply, without_scales(params), optimizer, x, **options
    )


def with_averages(raw: Any, params: Any, averages: Any) -> Any:
    """Returns raw parameters with these of batch normalization, and these averages."""
    result = dict(raw)
    for name, average in averages.items():
        kernel, bias, scale = (params[name][part] for part in ("kernel", "bias", "scale"))
        node = raw[name]["kernel"].replaced(direction=kernel, scale=scale)
        node = node.with_averages(average.mean, average.var)
        offset = scale * average.mean / jnp.sqrt(average.var + EPSILON)
        result[name] = {"kernel": node, "bias": bias - offset}
    return result


def of_batch_normalization(gradient: Any) -> Any:
    """Returns a gradient by raw parameters in the tree of batch normalization's."""
    return {
        name: leaf
        if isinstance(leaf["kernel"], jax.Array)
        else {
            "kernel": leaf["kernel"].direction,
            "scale": leaf["kernel"].scale,
            "bias": leaf["bias"],
        }
        for name, leaf in gradient.items()
    }


#: In float64; the larger ones take long to compile.
SLOW = ("bottleneck", "mbconv", "mobilenet")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in NETWORKS],
)
def test_with_the_averages_of_the_step_it_is_batch_normalization(name: str) -> None:
    with jax.enable_x64(True):
        network, (x, y) = NETWORKS[name], minibatch(jnp.float64)
        params = parameters(network, x)
        loss = lambda params: cross_entropy(batch_normalized(network, params, x)[0], y)  # noqa: E731
        wanted = jax.jit(jax.value_and_grad(loss))(params)
        _, apply_in_loss, raw, _ = called(network, params, x)
        raw = with_averages(raw, params, batch_normalized(network, params, x)[1])
        made = jax.jit(jax.value_and_grad(lambda raw: cross_entropy(apply_in_loss(raw, x), y)))(raw)
        assert_close((made[0], of_batch_normalization(made[1])), wanted, 1e-10)


def test_the_loss_sees_the_plain_network_to_the_bit() -> None:
    network, (x, _) = NETWORKS["residual"], minibatch()
    apply, apply_in_loss, raw, _ = called(network, parameters(network, x), x)
    # As single operations: compilers round two programs differently.
    with jax.disable_jit():
        made, wanted = apply_in_loss(raw, x), apply(jn.effective(raw), x)
    np.testing.assert_array_equal(made, wanted)


def test_it_starts_as_batch_normalization() -> None:
    network, (x, _) = NETWORKS["chain"], minibatch()
    params = written_out.zero_sums(drawn(network, jax.random.key(0), x[:1]))
    apply, _, raw, _ = called(network, params, x)
    wanted, moments = batch_normalized(network, params, x)
    np.testing.assert_allclose(apply(jn.effective(raw), x), wanted, rtol=1e-4, atol=1e-5)
    for name, moment in moments.items():
        np.testing.assert_allclose(raw[name]["kernel"].mean, moment.mean, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(raw[name]["kernel"].variance, moment.var, rtol=1e-4)


def test_branches_start_with_the_scales_of_the_call() -> None:
    network, (x, _) = NETWORKS["residual"], minibatch()
    apply, _, raw, _ = called(network, parameters(network, x), x)
    factors = jn.residual_factors(jn.read(apply, jn.effective(raw), x))
    for name in ("block 0/first", "block 1/second"):
        np.testing.assert_allclose(raw[name]["kernel"].scale, factors[name]["kernel"])
        assert not (raw[name]["bias"] + raw[name]["kernel"].offset()).any()


def test_kernels_are_zero_sum_by_default_and_stay_so() -> None:
    apply, params, x = dense()
    in_loss, raw, tx = jn.moving_average_normalization(apply, params, optax.adamw(0.1), x)
    with jax.numpy_dtype_promotion("standard"):
        new = stepped(raw, tx, jax.grad(lambda raw: square(in_loss(raw, x)))(raw))
    assert "zero_sum_projection" in tx.applied
    for first, hidden, _ in (raw, new):
        np.testing.assert_allclose(hidden["kernel"].direction.sum(0), 0, atol=1e-5)
        assert jnp.abs(first["kernel"].direction.sum(0)).max() > 0.1  # It reads the inputs.
    assert jnp.abs(new[-1]["kernel"].sum(0)).max() > 0.01


def test_kernels_that_start_at_zero_are_refused_unless_they_stay_plain() -> None:
    """As in the transformation I + f(x) of a spatial transformer."""
    _, params, x = dense()
    params[1]["kernel"] = jnp.zeros((5, 5))

    def apply(params: Any, x: jax.Array) -> jax.Array:
        first, transform, head = params
        h = jax.nn.relu(x @ first["kernel"] + first["bias"][None])
        moved = x * (1 + h @ transform["kernel"] + transform["bias"][None])
        return moved @ head["kernel"] + head["bias"][None]

    call = partial(jn.moving_average_normalization, apply, params, optax.sgd(0.01), x)
    for fitted in (True, False):
        with pytest.raises(ValueError, match=r"1/kernel.* all zero.*among heads"):
            call(fitted=fitted)
    in_loss, raw, tx = call(heads=["^1/", "^2/"])
    for _ in range(3):
        raw = stepped(raw, tx, jax.grad(lambda raw: square(in_loss(raw, x)))(raw))
    assert square(in_loss(raw, x)) < square(apply(params, x))


def test_unfitted_it_starts_as_the_given_function() -> None:
    network, (x, _) = NETWORKS["residual"], minibatch()
    params = parameters(network, x)
    apply, _, raw, _ = called(network, params, x, fitted=False)
    wanted = apply(without_scales(params), x)
    np.testing.assert_allclose(apply(jn.effective(raw), x), wanted, rtol=1e-4, atol=1e-5)


OPTIMIZERS = {
    "momentum": optax.sgd(0.1, momentum=0.9),
    "adam, clipped": optax.chain(optax.clip_by_global_norm(0.1), optax.adam(0.01)),
    "decay of all": optax.chain(optax.add_decayed_weights(1e-2), optax.sgd(0.1)),
}


@pytest.mark.parametrize(
    ("name", "zero_sums"), [*((name, False) for name in OPTIMIZERS), ("momentum", True)]
)
def test_twenty_updates_are_those_of_the_reference(name: str, zero_sums: bool) -> None:
    """The reference has γ and the averages apart from the kernels, and another folding.

    Its zero sums are computed in the loss.
    """
    shaped = written_out.zero_sums if zero_sums else lambda params: params
    with jax.enable_x64(True):
        network, (x, y) = NETWORKS["residual"], minibatch(jnp.float64)
        params, tx = shaped(parameters(network, x)), OPTIMIZERS[name]
        averages = batch_normalized(network, params, x)[1]
        _, apply_in_loss, raw, ours = called(network, params, x, tx, zero_sums=zero_sums)
        raw = with_averages(raw, params, averages)

        def wanted_step(_: Any, carry: Any) -> Any:
            params, averages, state = carry

            def loss(params: Any) -> Any:
                logits, found = kept(network, shaped(params), averages, x)
                return cross_entropy(logits, y), found

            gradient, found = jax.grad(loss, has_aux=True)(params)
            updates, state = tx.update(gradient, state, params)
            new = optax.apply_updates(params, updates)
            averages = {name: moved(averages[name], found[name]) for name in averages}
            return new, averages, state

        def made_step(_: Any, carry: Any) -> Any:
            raw, state = carry
            gradient = jax.grad(lambda raw: cross_entropy(apply_in_loss(raw, x), y))(raw)
            updates, state = ours.update(gradient, state, raw)
            return optax.apply_updates(raw, updates), state

        with jax.numpy_dtype_promotion("standard"):  # Optax raises a number to an integer.
            start = params, averages, tx.init(params)
            params, averages, _ = jax.jit(partial(jax.lax.fori_loop, 0, 20, wanted_step))(start)
            raw, _ = jax.jit(partial(jax.lax.fori_loop, 0, 20, made_step))((raw, ours.init(raw)))
        assert_close(jn.effective(raw), folded(shaped(params), averages), 1e-7)


def dense(rows: int = 64) -> tuple[Any, Any, jax.Array]:
    """Returns a model of three layers, its parameters and a minibatch."""
    draw = np.random.default_rng(2)

    def apply(params: Any, x: jax.Array) -> jax.Array:
        for layer in params[:-1]:
            x = jax.nn.relu(x @ layer["kernel"] + layer["bias"][None])
        return x @ params[-1]["kernel"] + params[-1]["bias"][None]

    kernel = lambda: jnp.asarray(draw.normal(0, 1, (5, 5)), jnp.float32)  # noqa: E731
    params = [{"kernel": kernel(), "bias": jnp.zeros(5)} for _ in range(3)]
    return apply, params, jnp.asarray(draw.normal(0.5, 1, (rows, 5)), jnp.float32)


def square(values: jax.Array) -> jax.Array:
    return (values**2).mean()


def stepped(raw: Any, tx: Any, gradient: Any) -> Any:
    updates, _ = tx.update(gradient, tx.init(raw), raw)
    return optax.apply_updates(raw, updates)


def averages_of(raw: Any) -> Any:
    return [(layer["kernel"].mean, layer["kernel"].variance) for layer in raw[:-1]]


def test_the_averages_are_those_of_the_examples() -> None:
    """Against NumPy, at one layer: 0.9 of the old average and 0.1 of the step's statistics."""
    apply, params, x = dense()
    apply_in_loss, raw, tx = jn.moving_average_normalization(apply, params, optax.sgd(0.1), x)
    other = 2 * x + 1
    new = stepped(raw, tx, jax.grad(lambda raw: square(apply_in_loss(raw, other)))(raw))
    y = np.asarray(other, np.float64) @ np.asarray(raw[0]["kernel"].direction, np.float64)
    old = raw[0]["kernel"]
    mean, variance = averages_of(new)[0]
    np.testing.assert_allclose(mean, 0.9 * old.mean + 0.1 * y.mean(0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(variance, 0.9 * old.variance + 0.1 * y.var(0), rtol=1e-4)


def halves(in_loss: Any, raw: Any, x: jax.Array) -> jax.Array:
    one, other = (square(in_loss(raw, part)) for part in jnp.split(x, 2))
    return (one + other) / 2


#: Gradients of a loop, as a function of the gradient of the mean loss of some rows.
LOOPS = {
    "loss scaling": lambda grad, x: jax.tree.map(lambda g: g / 1024, grad(x, scale=1024.0)),
    "sums over devices": lambda grad, x: jax.tree.map(jnp.add, *map(grad, jnp.split(x, 2))),
    "means over devices": lambda grad, x: jax.tree.map(
        lambda a, b: (a + b) / 2, *map(grad, jnp.split(x, 2))
    ),
    "two calls in one loss": lambda grad, x: grad(x, loss=halves),
    "float16 on the way": lambda grad, x: jax.tree.map(
        lambda g: g.astype(jnp.bfloat16).astype(g.dtype), grad(x)
    ),
}


@pytest.mark.parametrize("name", LOOPS)
def test_the_averages_do_not_depend_on_how_gradients_are_summed(name: str) -> None:
    apply, params, x = dense()
    apply_in_loss, raw, tx = jn.moving_average_normalization(apply, params, optax.sgd(0.0), x)
    whole = lambda in_loss, raw, x: square(in_loss(raw, x))  # noqa: E731

    def grad(x: jax.Array, scale: float = 1.0, loss: Any = whole) -> Any:
        return jax.grad(lambda raw: scale * loss(apply_in_loss, raw, x))(raw)

    other = 2 * x + 1
    made = averages_of(stepped(raw, tx, LOOPS[name](grad, other)))
    tolerance = 0.01 if "float16" in name else 1e-5
    assert_close(made, averages_of(stepped(raw, tx, grad(other))), tolerance)


def test_micro_batches_make_one_average() -> None:
    apply, params, x = dense()
    apply_in_loss, raw, tx = jn.moving_average_normalization(apply, params, optax.sgd(0.0), x)
    grad = jax.grad(lambda raw, x: square(apply_in_loss(raw, x)))
    wanted = averages_of(stepped(raw, tx, grad(raw, 2 * x)))
    several = optax.MultiSteps(tx, 2)
    state = several.init(raw)
    with jax.numpy_dtype_promotion("standard"):  # Optax multiplies a bool by an integer.
        for part in jnp.split(2 * x, 2):
            updates, state = several.update(grad(raw, part), state, raw)
            raw = optax.apply_updates(raw, updates)
    assert_close(averages_of(raw), wanted, 1e-5)


def test_a_penalty_on_all_parameters_leaves_the_averages() -> None:
    """A loss with a decay of its own would else put the averages into the statistics."""
    apply, params, x = dense()
    in_loss, raw, tx = jn.moving_average_normalization(apply, params, optax.sgd(0.0), x)
    penalty = lambda raw: sum(square(leaf) * leaf.size for leaf in jax.tree.leaves(raw))  # noqa: E731
    made, wanted = (
        averages_of(stepped(raw, tx, jax.grad(loss)(raw)))
        for loss in (
            lambda raw: square(in_loss(raw, 2 * x)) + 0.01 * penalty(raw),
            lambda raw: square(in_loss(raw, 2 * x)),
        )
    )
    assert_close(made, wanted, 1e-3)


def test_the_plain_network_in_the_loss_warns_and_leaves_the_averages() -> None:
    apply, params, x = dense()
    _, raw, tx = jn.moving_average_normalization(apply, params, optax.sgd(0.1), x)
    with pytest.warns(UserWarning, match=r"in the loss call apply_in_loss|In the loss call"):
        gradient = jax.grad(lambda raw: square(apply(jn.effective(raw), x)))(raw)
    assert_close(averages_of(stepped(raw, tx, gradient)), averages_of(raw), 1e-7)
    with pytest.raises(TypeError, match=r"in the loss call apply_in_loss\(raw"):
        apply(raw, x)


@pytest.mark.filterwarnings("ignore:effective.raw.:UserWarning")
def test_a_penalty_on_the_effective_kernels_leaves_the_averages() -> None:
    apply, params, x = dense()
    in_loss, raw, tx = jn.moving_average_normalization(apply, params, optax.sgd(0.0), x)
    penalty = lambda raw: sum(square(leaf) for leaf in jax.tree.leaves(jn.effective(raw)))  # noqa: E731
    made, wanted = (
        averages_of(stepped(raw, tx, jax.grad(loss)(raw)))
        for loss in (
            lambda raw: square(in_loss(raw, 2 * x)) + penalty(raw),
            lambda raw: square(in_loss(raw, 2 * x)),
        )
    )
    assert_close(made, wanted, 1e-5)


def trained(updates: int, jit: Any = jax.jit, between: Any = lambda *state: state) -> Any:
    """Returns all raw parameters of a short training, and the model."""
    apply, params, x = dense()
    in_loss, raw, tx = jn.moving_average_normalization(
        apply, params, optax.sgd(0.1, momentum=0.9), x
    )

    def update(raw: Any, state: Any) -> Any:
        gradient = jax.grad(lambda raw: square(in_loss(raw, x)))(raw)
        updates, state = tx.update(gradient, state, raw)
        return optax.apply_updates(raw, updates), state

    step, several = jit(update), [(raw, tx.init(raw))]
    for _ in range(updates):
        several.append(between(*step(*several[-1])))
    return apply, in_loss, x, several


def test_parameters_and_state_can_be_donated() -> None:
    donating = partial(jax.jit, donate_argnums=(0, 1))
    made, wanted = (trained(3, jit)[-1][-1] for jit in (donating, jax.jit))
    jax.tree.map(np.testing.assert_array_equal, made, wanted)


def test_a_training_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    wanted = trained(3)[-1][-1]
    counted = iter(range(3))

    def saved(*state: Any) -> Any:
        folder = tmp_path / str(next(counted))
        with ocp.StandardCheckpointer() as checkpointer:
            checkpointer.save(folder, state)
            checkpointer.wait_until_finished()
            return checkpointer.restore(folder, jax.tree.map(jnp.zeros_like, state))

    jax.tree.map(np.testing.assert_array_equal, trained(3, between=saved)[-1][-1], wanted)


def test_averages_of_parameters_are_a_network() -> None:
    """Of raw parameters, leaf by leaf, near the average of plain ones."""
    apply, in_loss, x, several = trained(12)
    mean = lambda trees: jax.tree.map(lambda *leaves: sum(leaves) / len(leaves), *trees)  # noqa: E731
    last = [raw for raw, _ in several[-4:]]
    averaged = mean(last)
    np.testing.assert_allclose(
        in_loss(averaged, x), apply(jn.effective(averaged), x), rtol=1e-5, atol=1e-6
    )
    losses = [float(square(apply(jn.effective(raw), x))) for raw in (*last, averaged)]
    of_plain = float(square(apply(mean([jn.effective(raw) for raw in last]), x)))
    assert (
        max(losses[-1], of_plain)
        < max(losses[:-1])
        < 0.5 * square(apply(jn.effective(several[0][0]), x))
    )


def test_the_optimizer_sees_directions_scales_and_shifts() -> None:
    apply, params, x = dense()
    seen = []

    def update(updates: Any, state: Any, params: Any = None) -> Any:
        seen.append((updates, params))
        return jax.tree.map(jnp.zeros_like, updates), state

    tx = optax.GradientTransformation(lambda params: seen.append((params, params)), update)
    apply_in_loss, raw, tx = jn.moving_average_normalization(apply, params, tx, x)
    gradient = jax.grad(lambda raw: square(apply_in_loss(raw, x)))(raw)
    new = stepped(raw, tx, gradient)
    for gradients, params in seen:
        for tree in (gradients, params):
            paths = {jax.tree_util.keystr(path) for path, _ in jax.tree.leaves_with_path(tree)}
            assert paths == {
                "[0]['kernel'].direction", "[0]['kernel'].scale", "[0]['bias']",
                "[1]['kernel'].direction", "[1]['kernel'].scale", "[1]['bias']",
                "[2]['kernel']", "[2]['bias']",
            }  # fmt: skip
    np.testing.assert_allclose(seen[1][1][0]["bias"], 0, atol=1e-6)
    # Nothing was trained, and the averages moved: so did the bias, and the shift did not.
    node = new[0]["kernel"]
    np.testing.assert_allclose(new[0]["bias"] + node.offset(), 0, atol=1e-6)


def test_masks_and_labels_of_the_tree_of_raw_parameters() -> None:
    apply, params, x = dense()
    mask = lambda raw: jax.tree.map(lambda leaf: leaf.ndim > 1, raw)  # noqa: E731
    in_loss, raw, _ = jn.moving_average_normalization(apply, params, optax.sgd(0.1), x)
    gradient = jax.grad(lambda raw: square(in_loss(raw, x)))(raw)
    results = []
    for of_tree in (mask, mask(raw)):
        decayed = optax.chain(optax.add_decayed_weights(0.1, mask=of_tree), optax.sgd(0.1))
        tx = jn.moving_average_normalization(apply, params, decayed, x)[2]
        results.append(stepped(raw, tx, gradient))
    assert_close(*results, 1e-6)
    labels = jax.tree.map(lambda leaf: "kernel" if leaf.ndim > 1 else "other", raw)
    parts = {"kernel": optax.sgd(0.1), "other": optax.set_to_zero()}
    tx = jn.moving_average_normalization(apply, params, optax.multi_transform(parts, labels), x)[2]
    new = stepped(raw, tx, gradient)
    np.testing.assert_array_equal(new[0]["kernel"].scale, raw[0]["kernel"].scale)
    assert (new[0]["kernel"].direction != raw[0]["kernel"].direction).any()


def test_a_gradient_that_is_not_finite_leaves_the_averages() -> None:
    apply, params, x = dense()
    in_loss, raw, tx = jn.moving_average_normalization(apply, params, optax.sgd(0.1), x)
    gradient = jax.grad(lambda raw: square(in_loss(raw, x.at[0].set(jnp.nan))))(raw)
    assert_close(averages_of(stepped(raw, tx, gradient)), averages_of(raw), 1e-6)
    safe = optax.apply_if_finite(tx, 5)
    assert_close(stepped(raw, safe, gradient), raw, 1e-6)


def test_groups_are_minibatches_of_their_own() -> None:
    apply, params, x = dense()
    in_loss, raw, _ = jn.moving_average_normalization(apply, params, optax.sgd(0.1), x, groups=2)
    whole, _, _ = jn.moving_average_normalization(apply, params, optax.sgd(0.1), x, groups=1)
    made = jax.grad(lambda raw: square(in_loss(raw, x)))(raw)
    wanted = jax.grad(partial(halves, whole))(raw, x)
    assert_close(made, wanted, 1e-5)


@pytest.mark.parametrize(("rows", "wanted"), [(16, 1), (63, 1), (64, 2), (100, 2), (101, 1)])
def test_groups_of_32_rows_or_more_by_default(rows: int, wanted: int) -> None:
    apply, params, x = dense(rows)
    grads = []
    for groups in (None, wanted):
        in_loss, raw, _ = jn.moving_average_normalization(
            apply, params, optax.sgd(0.1), x, groups=groups
        )
        grads.append(jax.grad(lambda raw, f=in_loss: square(f(raw, x)))(raw))
    assert_close(*grads, 1e-6)


@pytest.mark.filterwarnings("ignore:effective.raw.:UserWarning")
@AXIS_TYPES
def test_a_sharded_batch_needs_no_collective_but_those_of_the_gradients(axis_type: Any) -> None:
    apply, params, x = dense(128)
    in_loss, raw, tx = jn.moving_average_normalization(apply, params, optax.sgd(0.1), x)
    devices = mesh(4, axis_type)
    rows, whole = (NamedSharding(devices, PartitionSpec(*axes)) for axes in (("data",), ()))
    x, raw = jax.device_put(x, rows), jax.device_put(raw, whole)

    def step(raw: Any, x: jax.Array) -> Any:
        value, gradient = jax.value_and_grad(lambda raw: square(in_loss(raw, x)))(raw)
        return stepped(raw, tx, gradient), value

    def plain_step(raw: Any, x: jax.Array) -> Any:
        loss = lambda raw: square(apply(jn.effective(raw), x))  # noqa: E731
        value, gradient = jax.value_and_grad(loss)(raw)
        return stepped(raw, tx, gradient), value

    assert len(collectives(step, raw, x)) <= len(collectives(plain_step, raw, x)) <= 2


def test_the_devices_of_pmap_are_groups() -> None:
    apply, params, x = dense(128)
    in_loss, raw, tx = jn.moving_average_normalization(apply, params, optax.sgd(0.1), x)
    grad = jax.grad(lambda raw, x: square(in_loss(raw, x)))
    step = lambda raw, x: stepped(raw, tx, jax.lax.pmean(grad(raw, x), "data"))  # noqa: E731
    mapped = jax.pmap(step, "data", in_axes=(None, 0), devices=jax.devices()[:4])
    made = jax.tree.map(lambda leaf: leaf[0], mapped(raw, x.reshape(4, 32, -1)))
    assert_close(made, stepped(raw, tx, jax.jit(grad)(raw, x)), 1e-5)


def test_the_devices_of_shard_map_are_groups() -> None:
    """One function in three kinds of shard_map, after a trace without any."""
    apply, params, x = dense(128)
    in_loss, raw, tx = jn.moving_average_normalization(apply, params, optax.sgd(0.1), x)
    grad = jax.grad(lambda raw, x: square(in_loss(raw, x)))

    def summed(raw: Any, x: jax.Array) -> Any:
        return jax.tree.map(lambda g: g / 4, grad(raw, x))

    def averaged(raw: Any, x: jax.Array) -> Any:
        return jax.lax.pmean(grad(jax.lax.pcast(raw, "data", to="varying"), x), "data")

    def unchecked(raw: Any, x: jax.Array) -> Any:
        return jax.lax.pmean(grad(raw, x), "data")

    wanted = stepped(raw, tx, jax.jit(grad)(raw, x))
    specs = {"in_specs": (PartitionSpec(), PartitionSpec("data")), "out_specs": PartitionSpec()}
    for gradient, checked in ((summed, True), (averaged, True), (unchecked, False)):
        mapped = jax.shard_map(gradient, mesh=mesh(4), check_vma=checked, **specs)
        assert_close(stepped(raw, tx, jax.jit(mapped)(raw, x)), wanted, 1e-5)


def stacked(params: Any, x: jax.Array) -> jax.Array:
    def turn(x: jax.Array, layer: Any) -> Any:
        return jax.nn.relu(x @ layer["kernel"] + layer["bias"][None]), None

    x, _ = jax.lax.scan(turn, x, params["layers"])
    return x @ params["head"]["kernel"] + params["head"]["bias"][None]


def test_a_stack_that_a_scan_slices_is_its_layers() -> None:
    """Behind a stem: a stack whose first layer reads the inputs has zero sums, a layer has not."""
    apply, params, x = dense()
    several = {"layers": jax.tree.map(lambda *a: jnp.stack(a), *params[:-1]), "head": params[-1]}
    results = []
    for model, start in ((apply, params), (stacked, several)):

        def behind(p: Any, x: jax.Array, model: Any = model) -> jax.Array:
            return model(p["model"], x @ p["stem"]["kernel"] + p["stem"]["bias"][None])

        start = {"stem": params[0], "model": start}
        in_loss, raw, tx = jn.moving_average_normalization(behind, start, optax.sgd(0.1), x)
        gradient = jax.grad(lambda raw, f=in_loss: square(f(raw, 2 * x)))(raw)
        results.append(stepped(raw, tx, gradient))
    one, other = map(jn.effective, results)
    *layers, head = one["model"]
    stack = {"layers": jax.tree.map(lambda *a: jnp.stack(a), *layers), "head": head}
    assert_close(other, one | {"model": stack}, 1e-5)


def test_a_kernel_that_is_used_twice_has_one_average() -> None:
    _, params, x = dense()

    def twice(params: Any, x: jax.Array) -> jax.Array:
        layer, head = params[0], params[-1]
        for _ in range(2):
            x = jax.nn.relu(x @ layer["kernel"] + layer["bias"][None])
        return x @ head["kernel"] + head["bias"][None]

    in_loss, raw, tx = jn.moving_average_normalization(twice, params, optax.sgd(0.0), x)
    new = stepped(raw, tx, jax.grad(lambda raw: square(in_loss(raw, x)))(raw))
    layer, V = map(np.asarray, jax.tree.leaves(jn.effective(raw)[0])), raw[0]["kernel"].direction
    bias, kernel = layer
    y = np.concatenate([x @ V, np.maximum(np.asarray(x) @ kernel + bias, 0) @ V])
    mean = 0.9 * raw[0]["kernel"].mean + 0.1 * y.mean(0)
    np.testing.assert_allclose(new[0]["kernel"].mean, mean, rtol=1e-4, atol=1e-5)


def without_bias(params: Any, x: jax.Array) -> jax.Array:
    """Returns the results of a layer whose shift comes after a concatenation, and of another."""
    y = x @ params[0]["kernel"]
    h = jax.nn.relu(jnp.concatenate([x, y], -1) + params[0]["shift"][None])
    h = jax.nn.relu(h @ params[1]["kernel"] + params[1]["bias"][None])
    return h @ params[2]["kernel"]


def without_biases() -> tuple[Any, jax.Array]:
    """Returns parameters in float64, and rows."""
    normal = lambda *shape: jnp.asarray(np.random.default_rng(len(shape)).normal(0.5, 1, shape))  # noqa: E731
    layers = [
        {"kernel": normal(4, 5), "shift": normal(9)},
        {"kernel": normal(9, 6), "bias": normal(6)},
    ]
    return [*layers, {"kernel": normal(6, 3)}], normal(12, 4)


def test_without_a_bias_the_mean_square_is_normalized() -> None:
    with jax.enable_x64(True):
        params, x = without_biases()
        in_loss, raw, _ = jn.moving_average_normalization(
            without_bias, params, optax.sgd(0.1), x, zero_sums=False
        )
        assert raw[0]["kernel"].mean.tolist() == 5 * [0]

        def normalized(params: Any) -> jax.Array:
            y = x @ params[0]["kernel"]
            y = (
                params[0]["scale"][None]
                * y
                / jnp.sqrt(jnp.square(y).mean(0, keepdims=True) + EPSILON)
            )
            h = jax.nn.relu(jnp.concatenate([x, y], -1) + params[0]["shift"][None])
            y = h @ params[1]["kernel"]
            y = (y - y.mean(0, keepdims=True)) / jnp.sqrt(y.var(0, keepdims=True) + EPSILON)
            h = jax.nn.relu(params[1]["scale"][None] * y + params[1]["bias"][None])
            return square(h @ params[2]["kernel"])

        own = [{**layer, "scale": jnp.ones(layer["kernel"].shape[1])} for layer in params[:2]]
        own[1]["bias"] = jnp.zeros(6)
        wanted = jax.value_and_grad(normalized)([*own, params[2]])
        value, gradient = jax.value_and_grad(lambda raw: square(in_loss(raw, x)))(raw)
        made = [
            {**layer, "kernel": layer["kernel"].direction, "scale": layer["kernel"].scale}
            for layer in gradient[:2]
        ]
        assert_close((value, [*made, gradient[2]]), wanted, 1e-10)


def test_without_a_bias_the_average_is_of_the_mean_square() -> None:
    params, x = without_biases()
    in_loss, raw, tx = jn.moving_average_normalization(without_bias, params, optax.sgd(0.1), x)
    new = stepped(raw, tx, jax.grad(lambda raw: square(in_loss(raw, 2 * x)))(raw))
    before, after = raw[0]["kernel"], new[0]["kernel"]
    y = 2 * np.asarray(x) @ np.asarray(before.direction)
    np.testing.assert_allclose(
        after.variance, 0.9 * before.variance + 0.1 * np.square(y).mean(0), rtol=1e-5
    )
    assert not after.mean.any()
    hidden = optax.masked(tx, [{"kernel": True, "shift": False}, True, True])
    assert jax.tree.all(jax.tree.map(jnp.isfinite, hidden.init(raw)))


def test_a_network_without_biases_warns() -> None:
    params, x = without_biases()
    none = lambda params, x: jax.nn.relu(x @ params[0]) @ params[1]  # noqa: E731
    with pytest.warns(UserWarning, match="has a bias of its own"):
        jn.moving_average_normalization(
            none, [params[0]["kernel"], params[1]["kernel"][:5]], optax.sgd(1.0), x
        )


def test_gates_and_heads_stay_plain() -> None:
    network, (x, _) = NETWORKS["mbconv"], minibatch()
    _, _, raw, _ = called(network, parameters(network, x), x)
    plain = {name for name, leaf in raw.items() if isinstance(leaf["kernel"], jax.Array)}
    assert plain == {"classifier"} | {name for name in raw if "gate" in name}


def test_units_without_variance_have_a_value_and_a_gradient() -> None:
    apply, params, x = dense()
    params[0]["kernel"] = params[0]["kernel"].at[:, 0].set(0)
    in_loss, raw, tx = jn.moving_average_normalization(apply, params, optax.sgd(0.1), x)
    raw[1]["kernel"] = raw[1]["kernel"].replaced(scale=raw[1]["kernel"].scale.at[1].set(0))
    gradient = jax.grad(lambda raw: square(in_loss(raw, x)))(raw)
    new = stepped(raw, tx, gradient)
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves((gradient, new)))
    np.testing.assert_array_equal(gradient[1]["kernel"].count[1], 0)
    np.testing.assert_array_equal(new[1]["kernel"].mean[1], raw[1]["kernel"].mean[1])


@pytest.mark.parametrize("rows", [1, 2])
def test_groups_of_one_or_two_values_are_refused(rows: int) -> None:
    apply, params, x = dense()
    in_loss, raw, _ = jn.moving_average_normalization(apply, params, optax.sgd(0.1), x)
    with pytest.raises(ValueError, match=f"{rows} values of a unit of the kernel '0/kernel'"):
        jax.grad(lambda raw: square(in_loss(raw, x[:rows])))(raw)
    assert in_loss(raw, x[:rows]).shape == (rows, 5)


def test_refusals() -> None:
    apply, params, x = dense()
    sgd = optax.sgd(0.1)

    with pytest.raises(ValueError, match="none can be normalized: 0/kernel make results"):
        jn.moving_average_normalization(apply, params[-1:], sgd, x)
    with pytest.raises(TypeError, match="optax transformation"):
        jn.moving_average_normalization(apply, params, 0.1, x)
    with pytest.raises(ValueError, match="groups is 0"):
        jn.moving_average_normalization(apply, params, sgd, x, groups=0)
    with pytest.raises(ValueError, match=r"groups is 2\.5"):
        jn.moving_average_normalization(apply, params, sgd, x, groups=2.5)
    with pytest.raises(ValueError, match="decay"):
        jn.moving_average_normalization(apply, params, sgd, x, decay=1.5)
    with pytest.raises(ValueError, match="infinite or NaN"):
        jn.moving_average_normalization(apply, params, sgd, x * jnp.nan)
    in_loss, raw, tx = jn.moving_average_normalization(apply, params, sgd, x, groups=3)
    with pytest.raises(ValueError, match="groups=3 does not divide the 64 rows"):
        in_loss(raw, x)
    for wrong in (lambda: in_loss(jn.effective(raw), x), lambda: tx.init(params)):
        with pytest.raises(TypeError, match="at '0/kernel'; wanted the tree raw"):
            wrong()
    with pytest.raises(ValueError, match="no params"):
        tx.update(raw, tx.init(raw))
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(lambda raw: in_loss(raw, x[:63]), (raw,), (raw,))


@pytest.mark.filterwarnings("error::UserWarning")
def test_a_fit_to_few_values_warns() -> None:
    apply, params, x = dense()
    with pytest.raises(UserWarning, match="fitted to 1 values"):
        jn.moving_average_normalization(apply, params, optax.sgd(0.1), x[:1])


def test_a_reading_takes_the_place_of_the_model() -> None:
    apply, params, x = dense()
    one = jn.moving_average_normalization(apply, params, optax.sgd(0.1), x)[1]
    other = jn.moving_average_normalization(jn.read(apply, params, x), optax.sgd(0.1))[1]
    jax.tree.map(np.testing.assert_array_equal, one, other)


def test_bfloat16_keeps_its_type_and_float32_averages() -> None:
    apply, params, x = dense()
    low = lambda tree: jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), tree)  # noqa: E731
    results = []
    for start, rows in ((params, x), (low(params), low(x))):
        in_loss, raw, tx = jn.moving_average_normalization(apply, start, optax.sgd(0.1), rows)
        new = stepped(raw, tx, jax.grad(lambda raw, f=in_loss, x=rows: square(f(raw, x)))(raw))
        results.append(new)
    wide, narrow = results
    node = narrow[0]["kernel"]
    assert (node.direction.dtype, node.scale.dtype, node.mean.dtype) == (
        jnp.bfloat16, jnp.bfloat16, jnp.float32,
    )  # fmt: skip
    as_wide = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), narrow)
    assert_close(jn.effective(as_wide), jn.effective(wide), 0.05)


def test_parameters_that_the_loss_casts() -> None:
    """Float32 parameters, computed with in bfloat16: a convolution takes no mixed types."""
    network, (x, _) = NETWORKS["chain"], minibatch()
    _, in_loss, raw, _ = called(network, parameters(network, x), x)
    x = 2 * x + 1

    def cast(entry: Any) -> Any:
        if not isinstance(entry, jn.MovingAverages):
            return entry.astype(jnp.bfloat16)
        parts = {name: getattr(entry, name).astype(jnp.bfloat16) for name in ("direction", "scale")}
        return entry.replaced(**parts)

    def loss(raw: Any) -> jax.Array:
        low = jax.tree.map(cast, raw, is_leaf=lambda x: isinstance(x, jn.MovingAverages))
        return square(in_loss(low, x.astype(jnp.bfloat16))).astype(jnp.float32)

    gradient = jax.grad(loss)(raw)
    assert gradient["first"]["kernel"].direction.dtype == jnp.float32
    wide = jax.grad(lambda raw: square(in_loss(raw, x)))(raw)
    means = (tree["first"]["kernel"].stored_mean for tree in (gradient, wide))
    assert_close(*means, 0.1)


def test_rows_that_share_an_axis_with_positions_are_one_group() -> None:
    _, params, x = dense()

    def tokens(params: Any, x: jax.Array) -> jax.Array:
        h = x.reshape(-1, 5)
        for layer in params[:-1]:
            h = jax.nn.relu(h @ layer["kernel"] + layer["bias"][None])
        return h @ params[-1]["kernel"] + params[-1]["bias"][None]

    x, sgd = x.reshape(16, 4, 5), optax.sgd(0.1)
    grads = []
    for groups in (None, 1):
        in_loss, raw, _ = jn.moving_average_normalization(tokens, params, sgd, x, groups=groups)
        grads.append(jax.grad(lambda raw, f=in_loss: square(f(raw, x)))(raw))
    assert_close(*grads, 1e-6)
    in_loss, raw, _ = jn.moving_average_normalization(tokens, params, sgd, x, groups=4)
    with pytest.raises(ValueError, match="none of whose axes counts the rows"):
        in_loss(raw, x)


def test_what_would_lose_the_offset_is_refused() -> None:
    apply, params, x = dense()
    _, raw, tx = jn.moving_average_normalization(apply, params, optax.sgd(0.1), x)
    with pytest.raises(TypeError, match="a part of the layer's bias"):
        jn.scale_branches(raw, jax.tree.map(lambda _: 0.5, params))
    with pytest.raises(TypeError, match="are reparametrized; wanted plain ones"):
        jn.moving_average_normalization(apply, raw, optax.sgd(0.1), x)
    is_kept = lambda path, _: not jax.tree_util.keystr(path).endswith(".scale")  # noqa: E731
    half = optax.masked(tx, jax.tree.map_with_path(is_kept, raw))
    with pytest.raises(TypeError, match="a whole MovingAverages"):
        half.init(raw)


def test_raw_of_another_form_of_the_network_is_refused() -> None:
    """Averages that the function does not measure would never learn, and not a word said."""
    apply, params, x = dense()
    sgd, heads = optax.sgd(0.1), [f"^{len(params) - 1}/"]
    raw = jn.moving_average_normalization(apply, params, sgd, x, heads=heads)[1]
    other = jn.moving_average_normalization(apply, params, sgd, x, heads=["^0/", *heads])[0]
    with pytest.raises(ValueError, match=r"MovingAverages at 0/kernel, .*of the same call"):
        other(raw, x)
