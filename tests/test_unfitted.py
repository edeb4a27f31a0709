"""Warnings of the one call: units that cannot be fitted, or are fitted to few values."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxnorm as jn
from jaxnorm._roles import roles_of
from jaxnorm._trace.counts import values_per_unit
from jaxnorm._trace.interpret import trace
from jaxnorm._trace.reading import Reading
from tests.draws import draw

N = 4
SGD = optax.sgd(0.1)


def layer(seed: int, *sizes: int) -> Any:
    return {"w": draw(seed, *sizes), "b": jnp.zeros(sizes[-1])}


def conv(p: Any, x: Any) -> Any:
    numbers = ("NHWC", "HWIO", "NHWC")
    y = jax.lax.conv_general_dilated(x, p["w"], (1, 1), "SAME", dimension_numbers=numbers)
    return jax.nn.relu(y + p["b"][None, None, None])


# Units that are fitted to few values.

POOLED = {
    "stem": layer(1, 3, 3, 3, N),
    "pool": layer(2, 1, 1, N, N),
    "after": layer(3, 1, 1, N, N),
    "mix": layer(4, 1, 1, 2 * N, N),
}


def pooled(x: Any) -> Any:
    return x.mean((1, 2), keepdims=True)


def with_images(branch: Callable[..., Any]) -> Callable[..., Any]:
    """Network of images with a branch beside the stem's features."""

    def apply(p: Any, x: Any) -> Any:
        y = conv(p["stem"], x)
        return conv(p["mix"], jnp.concatenate([y, branch(p, y)], -1))

    return apply


BRANCHES: dict[str, tuple[Callable[..., Any], set[str]]] = {
    "spread after its layer": (
        lambda p, y: jnp.broadcast_to(conv(p["pool"], pooled(y)), y.shape),
        {"pool"},
    ),
    "spread before its layer": (
        lambda p, y: conv(p["pool"], jnp.broadcast_to(pooled(y), y.shape)),
        {"pool"},
    ),
    "interpolated": (
        lambda p, y: conv(
            p["after"], jax.image.resize(conv(p["pool"], pooled(y)), y.shape, "linear")
        ),
        {"pool", "after"},
    ),
    "repeated": (
        lambda p, y: jnp.tile(conv(p["pool"], pooled(y)), (1, *y.shape[1:3], 1)),
        {"pool"},
    ),
    "without a pooling": (lambda p, y: conv(p["pool"], y), set()),
}


@pytest.mark.parametrize("name", BRANCHES)
def test_copies_of_a_value_count_once(name: str) -> None:
    branch, few = BRANCHES[name]
    for rows in (2, 5):
        x = jax.ShapeDtypeStruct((rows, 6, 6, 3), jnp.float32)
        apply = with_images(branch)
        counts = values_per_unit(trace(apply, POOLED, (x,), None, (), nodes=True))
        expected = {f"{path}/w": rows if path in few else 36 * rows for path in POOLED}
        assert {str(path): n for path, n in counts.items()} == {
            path: expected[path] for path in map(str, counts)
        }


def test_a_phase_has_its_own_values() -> None:
    apply = lambda p, x: jax.lax.conv_transpose(x, p["w"], (2, 2), "SAME")  # noqa: E731
    x = jax.ShapeDtypeStruct((3, 5, 5, 2), jnp.float32)
    counts = values_per_unit(trace(apply, {"w": draw(1, 4, 4, 2, N)}, (x,), nodes=True))
    assert [*counts.values()] == [3 * 5 * 5]


def test_units_that_are_fitted_to_few_values_are_named() -> None:
    """Seven rows behind a pooling are too few, and eight are not."""

    def apply(p: Any, x: Any) -> Any:
        return jax.nn.relu(x @ p["a"]["w"] + p["a"]["b"][None]) @ p["head"]["w"]

    params = {"a": layer(1, N, N), "head": layer(2, N, N)}
    with pytest.warns(UserWarning, match=r"kernels a/w are fitted to 7 values.*some hundred rows"):
        jn.normalizer_free(apply, params, SGD, draw(1, 7, N), centered=False)
    jn.normalizer_free(apply, params, SGD, draw(1, 8, N), centered=False)
    jn.normalizer_free(apply, params, SGD, draw(1, 7, N), centered=False, fitted=False)


def test_units_of_a_model_for_one_number_of_rows_are_named() -> None:
    """More rows cannot be tried, and so cannot show that the number of values stays."""

    def apply(p: Any, x: Any) -> Any:
        x = x.reshape(7, N) @ p["a"]["w"] + p["a"]["b"][None]
        return jax.nn.relu(x) @ p["head"]["w"]

    params = {"a": layer(1, N, N), "head": layer(2, N, N)}
    with pytest.warns(UserWarning, match=r"kernels a/w are fitted to 7 values"):
        jn.normalizer_free(apply, params, SGD, draw(1, 7, N), centered=False)


def test_units_whose_number_of_values_is_fixed_are_not_named() -> None:
    """Learned latents are as many in every minibatch."""

    def apply(p: Any, x: Any) -> Any:
        latents = p["z"] @ p["a"]["w"] + p["a"]["b"][None]
        return jax.nn.softmax(x @ latents.T) @ latents @ p["head"]["w"]

    params = {"z": draw(3, 3, N), "a": layer(1, N, N), "head": layer(2, N, N)}
    jn.normalizer_free(
        jn.read(apply, params, draw(1, 16, N), as_inputs=["^z$"]), SGD, centered=False
    )


# Networks without any unit that can be fitted.


def recurrent(p: Any, x: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        return jnp.tanh(x @ p["a"]["w"] + h @ p["u"]["w"] + p["a"]["b"][None]), None

    return jax.lax.scan(step, jnp.zeros((len(x), N)), jnp.swapaxes(x, 0, 1))[0] @ p["head"]["w"]


def dense(p: Any, x: Any) -> Any:
    x = jnp.tanh(x @ p["a"]["w"] + p["a"]["b"])
    return jnp.tanh(x @ p["u"]["w"] + p["u"]["b"]) @ p["head"]["w"]


def over_devices(p: Any, x: Any) -> Any:
    mesh, spec = jax.sharding.Mesh(jax.devices()[:2], ("d",)), jax.sharding.PartitionSpec
    add = lambda p, x: dense(  # noqa: E731
        p | {key: {"w": p[key]["w"], "b": p[key]["b"][None]} for key in "au"}, x
    )
    split = jax.shard_map(add, mesh=mesh, in_specs=(spec(), spec("d")), out_specs=spec("d"))
    return split(p, x)


UNFITTED: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "recurrent": (recurrent, (16, 5, N)),
    "rows one by one": (lambda p, x: jax.lax.map(lambda row: dense(p, row), x), (16, N)),
    "rows in a scan": (
        lambda p, x: jax.lax.scan(lambda _, row: (None, dense(p, row)), None, x)[1],
        (16, N),
    ),
    "rows of devices": (over_devices, (16, N)),
}


@pytest.mark.parametrize("name", UNFITTED)
def test_a_network_without_units_to_fit_is_made_zero_sum(name: str) -> None:
    apply, sizes = UNFITTED[name]
    params = {"a": layer(1, N, N), "u": layer(2, N, N), "head": layer(3, N, 2)}
    assert not roles_of(Reading(apply, params, (draw(4, *sizes),))).fitted
    with pytest.warns(UserWarning, match=r"a/w.* can be fitted.*jax.vmap.*fitted=False, zero"):
        raw, tx = jn.normalizer_free(apply, params, SGD, draw(4, *sizes))
    np.testing.assert_allclose(raw["u"]["w"].sum(0), 0, atol=1e-6)
    updates, _ = tx.update(params, tx.init(raw), raw)
    np.testing.assert_allclose((raw["u"]["w"] + updates["u"]["w"]).sum(0), 0, atol=1e-6)


def test_branches_of_the_program_are_refused_with_what_the_call_takes() -> None:
    def apply(p: Any, x: Any) -> Any:
        return (
            jax.lax.cond(x.sum() > 0, lambda: jnp.tanh(x @ p["a"]["w"]), lambda: x) @ p["head"]["w"]
        )

    params = {"a": layer(1, N, N), "head": layer(2, N, N)}
    with pytest.raises(ValueError, match=r"a/w.* inside a cond.*quiet=False to normalizer_free"):
        jn.normalizer_free(apply, params, SGD, draw(1, 8, N), fitted=False, quiet=True)
    raw, _ = jn.normalizer_free(apply, params, SGD, draw(1, 8, N), fitted=False, zero_sums=True)
    np.testing.assert_allclose(raw["a"]["w"].sum(0), 0, atol=1e-6)


def test_a_trained_network_keeps_its_parameters_to_the_bit() -> None:
    """One switch is enough: a part of the start that stayed would change the function unsaid."""

    def apply(p: Any, x: Any) -> Any:
        x = x @ p["a"]["w"] + p["a"]["b"][None]
        x = x + jax.nn.relu(x @ p["b"]["w"] + p["b"]["b"][None]) @ p["c"]["w"]
        return jax.nn.relu(x) @ p["head"]["w"]

    params = {name: layer(i, N, N) for i, name in enumerate(("a", "b", "c", "head"))}
    raw, tx = jn.normalizer_free(apply, params, SGD, draw(9, 64, N), fitted=False)
    jax.tree.map(np.testing.assert_array_equal, raw, params)
    assert tx.applied == ()
