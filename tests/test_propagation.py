"""Propagation against float64 NumPy and closed forms, on devices, and its verdict on networks."""

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import jaxnorm as jn
from tests.devices import mesh
from tests.draws import normal

ROWS, UNITS = 8, 6
#: Three rectifiers are always off, and the pre-activation of the first unit is constant.
PARAMS = {
    "a": {
        "kernel": normal(1, 5, UNITS) * np.array([0, 1, 1, 1, 1, 1]),
        "bias": np.array([1.0, 0.1, -0.2, -99, -99, -99]),
    },
    "b": {"kernel": normal(2, UNITS, 4)},
}
X = normal(3, ROWS, 5)


def mlp(params: Any, x: Any) -> Any:
    return (
        jax.nn.relu(x @ params["a"]["kernel"] + params["a"]["bias"][None]) @ params["b"]["kernel"]
    )


def half_square(output: Any) -> Any:
    return 0.5 * (output**2).sum()


def single(tree: Any) -> Any:
    return jax.tree.map(partial(jnp.asarray, dtype=jnp.float32), tree)


@jax.jit
def measured(params: Any, x: Any) -> Any:
    return jn.propagation(jn.read(mlp, params, x), loss=half_square)


def statistics(z: Any, g: Any) -> dict[str, float]:
    """Statistics of pre-activations and gradients (rows, units), by other formulas."""
    cosines = [
        a @ b / np.linalg.norm(a) / np.linalg.norm(b)
        for i, a in enumerate(z)
        for j, b in enumerate(z)
        if i != j
    ]
    deviation = z - z.mean(0)
    singular = np.linalg.svd(deviation, compute_uv=False)
    fourth = [(d**4).mean() / (d**2).mean() ** 2 if d.any() else 3.0 for d in deviation.T]
    return {
        "variance": z.var(0).mean(),
        "squared_mean": (z.mean(0) ** 2).mean(),
        "cosine": float(np.mean(cosines)),
        "effective_rank": (singular**2).sum() ** 2 / (singular**4).sum(),
        "kurtosis": float(np.mean(fourth)),
        "gradient_variance": g.var(0).mean(),
        "gradient_norm": math.sqrt((np.linalg.norm(g, axis=1) ** 2).mean()),
    }


def test_statistics_against_numpy() -> None:
    """With half the squared output as the loss the last gradient is the output itself."""
    first = X @ PARAMS["a"]["kernel"] + PARAMS["a"]["bias"]
    output = np.maximum(first, 0) @ PARAMS["b"]["kernel"]
    back = output @ PARAMS["b"]["kernel"].T * (first > 0)
    expected = {
        f"{name}/kernel/{key}": value
        for name, z, g in (("a", first, back), ("b", output, output))
        for key, value in statistics(z, g).items()
    }
    found = measured(*single((PARAMS, X)))
    assert found.pop("a/kernel/dormant") == pytest.approx(4 / 6)
    assert found.pop("b/kernel/dormant") == 0
    assert found.keys() == expected.keys()
    for name, value in found.items():
        assert value.shape == ()
        assert value.dtype == jnp.float32
        np.testing.assert_allclose(value, expected[name], rtol=2e-5, err_msg=name)


@pytest.mark.parametrize("size", [1e-16, 1e12])
def test_cosine_rank_and_dormant_units_do_not_depend_on_the_size(size: float) -> None:
    params, x = single((PARAMS, X))
    params["a"]["bias"] = params["a"]["bias"] * size
    found, expected = measured(params, x * size), measured(*single((PARAMS, X)))
    for name in expected:
        if name.endswith(("cosine", "dormant", "effective_rank")):
            np.testing.assert_allclose(found[name], expected[name], rtol=1e-4, err_msg=name)


def test_without_a_loss_dormant_units_are_the_same_and_there_are_no_gradients() -> None:
    found = jax.jit(lambda p, x: jn.propagation(jn.read(mlp, p, x)))(*single((PARAMS, X)))
    assert found["a/kernel/dormant"] == pytest.approx(4 / 6)
    assert len(found) == 12
    assert not any("gradient" in name for name in found)


def test_half_precision_is_measured_in_float32() -> None:
    params, x = jax.tree.map(lambda x: jnp.asarray(x, jnp.bfloat16), (PARAMS, X))
    found, expected = measured(params, x), measured(*single((PARAMS, X)))
    for name in expected:
        assert found[name].dtype == jnp.float32
        np.testing.assert_allclose(found[name], expected[name], rtol=0.05, err_msg=name)


def test_correlation_of_a_wide_rectifier_network_is_that_of_infinite_width() -> None:
    """The arc-cosine kernel of degree 1: c -> (sin t + (pi - t) cos t) / pi with cos t = c."""
    width, cosine = 1024, 0.5
    rows = np.linalg.cholesky(cosine + (1 - cosine) * np.eye(4))
    kernels = [math.sqrt(2 / n) * normal(n + i, n, width) for i, n in enumerate((4, width, width))]

    def apply(params: Any, x: Any) -> Any:
        for kernel in params[:-1]:
            x = jax.nn.relu(x @ kernel)
        return x @ params[-1]

    found = jax.jit(lambda p, x: jn.propagation(jn.read(apply, p, x)))(*single((kernels, rows)))
    for layer in range(3):
        np.testing.assert_allclose(found[f"{layer}/cosine"], cosine, atol=0.03)
        angle = math.acos(cosine)
        cosine = (math.sin(angle) + (math.pi - angle) * cosine) / math.pi


STACK = {"up": normal(4, 3, 5, 7) / 2, "down": normal(5, 3, 7, 5) / 2, "head": normal(6, 5, 2)}


def block(x: Any, layer: Any) -> Any:
    return x + jax.nn.relu(x @ layer["up"]) @ layer["down"], None


def scanned(params: Any, x: Any) -> Any:
    layers = {name: params[name] for name in ("up", "down")}
    return jax.lax.scan(block, x, layers)[0] @ params["head"]


def unrolled(params: Any, x: Any) -> Any:
    for up, down in zip(params["up"], params["down"], strict=True):
        x, _ = block(x, {"up": up, "down": down})
    return x @ params["head"]


@pytest.mark.slow
def test_scanned_layers_are_those_of_the_unrolled_network_in_execution_order() -> None:
    """The unrolled network's rows are on one device, or split over a mesh with explicit axes."""
    params, x = single((STACK, X))
    names: list[str] = []

    def run(params: Any, x: Any) -> Any:
        signal = jn.propagation(jn.read(scanned, params, x), loss=half_square)
        names[:] = signal
        return signal

    found = jax.jit(run)(params, x)
    kernels = list(dict.fromkeys(name.rpartition("/")[0] for name in names))
    assert kernels == [*(f"{name}/{i}" for i in range(3) for name in ("up", "down")), "head"]
    plain = {name: list(params[name]) for name in ("up", "down")} | {"head": params["head"]}
    explicit = mesh(4, AxisType.Explicit)
    whole = jax.device_put(plain, NamedSharding(explicit, PartitionSpec()))
    split = jax.device_put(x, NamedSharding(explicit, PartitionSpec("data")))
    of_unrolled = jax.jit(lambda p, x: jn.propagation(jn.read(unrolled, p, x), loss=half_square))
    for expected in (of_unrolled(plain, x), of_unrolled(whole, split)):
        assert found.keys() == expected.keys()
        for name, value in found.items():
            np.testing.assert_allclose(value, expected[name], rtol=1e-4, atol=1e-6, err_msg=name)


def test_rows_are_found_by_structure_and_positions_are_averaged() -> None:
    """Units or positions may come before the rows, and be as many."""
    x, kernel = single((normal(7, 4, 4, 4), normal(8, 4, 4)))
    last = lambda p, x: jnp.swapaxes(jnp.swapaxes(x, 0, 1) @ p, 0, 1)  # noqa: E731
    first = lambda p, x: jax.vmap(lambda x: p.T @ x.T)(x)  # noqa: E731
    z = np.asarray(x) @ np.asarray(kernel)
    expected = z.var(0).mean(), (z.mean(0) ** 2).mean()
    for apply in (last, first):
        found = jax.jit(partial(jn.propagation, jn.read(apply, kernel, x)))(kernel, x)
        np.testing.assert_allclose(
            [found["/variance"], found["/squared_mean"]], expected, rtol=1e-5
        )


@pytest.mark.slow
def test_devices_and_recompilation() -> None:
    """Sharded jit measures all rows, shard_map and pmap those of each device."""
    params, x = single((PARAMS, X))
    devices, traced = mesh(4), []

    def run(params: Any, x: Any) -> Any:
        traced.append(x.shape)
        return jn.propagation(jn.read(mlp, params, x), loss=half_square)

    jitted = jax.jit(run)
    sharded = jax.device_put(x, NamedSharding(devices, PartitionSpec("data")))
    found, again = jitted(params, sharded), jitted(params, sharded + 1)
    assert len(traced) == 1
    assert again.keys() == found.keys()
    parts = x.reshape(4, 2, 5)
    each = [measured(params, part) for part in parts]
    stacked = lambda p, x: jax.tree.map(lambda y: y[None], run(p, x))  # noqa: E731
    specs = {
        "in_specs": (PartitionSpec(), PartitionSpec("data")),
        "out_specs": PartitionSpec("data"),
    }
    sharded_map = jax.jit(jax.shard_map(stacked, mesh=devices, **specs))(params, x)
    for mapped in (sharded_map, jax.pmap(run, in_axes=(None, 0))(params, parts)):
        for name, values in mapped.items():
            expected = [part[name] for part in each]
            np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-6, err_msg=name)
    for name, value in measured(params, x).items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6, err_msg=name)


def chain(depth: int, activation: Any, gain: float) -> tuple[Any, Any]:
    """Network of layers of 32 units and 4 outputs, whose kernels preserve variances for gain 1."""
    kernels = [math.sqrt(gain / 32) * normal(i, 32, 32) for i in range(depth)]

    def apply(params: Any, x: Any) -> Any:
        for kernel in params[:-1]:
            x = activation(x @ kernel)
        return x @ params[-1]

    return apply, single([*kernels, kernels[0][:, :4] / math.sqrt(gain)])


def orthogonal(depth: int) -> tuple[Any, Any]:
    apply, params = chain(depth, jnp.tanh, 1.0)
    return apply, [*(jnp.linalg.qr(kernel)[0] for kernel in params[:-1]), params[-1]]


def zero_sum(depth: int) -> tuple[Any, Any]:
    apply, params = chain(depth, jax.nn.sigmoid, 1.0)
    layout = jn.layout_from_rules([(f"^{depth}$", None), ("", -2)])
    raw = jn.reparametrize(params, jn.LinearlyConstrained, layout)
    return apply, jn.variance_preserving_init(jn.read(apply, raw, ROWS_OF_32), layout=layout)


def residual(blocks: int, quiet: bool) -> tuple[Any, Any]:
    """Kernels of `constrain`: centered, on the sphere of squared radius 2."""
    _, params = chain(2 * blocks + 1, None, 2.0)
    params = jn.project(
        params, layout=jn.layout_from_rules([(f"^{2 * blocks + 1}$", None), ("", -2)])
    )

    def apply(params: Any, x: Any) -> Any:
        x = x @ params[0]
        for up, down in zip(params[1:-1:2], params[2:-1:2], strict=True):
            x = jax.nn.relu(x + jax.nn.relu(x @ up) @ down)
        return x @ params[-1]

    factors = jn.residual_factors(jn.read(apply, params, ROWS_OF_32))
    return apply, jn.scale_branches(params, factors) if quiet else params


def dead() -> tuple[Any, Any]:
    """Twenty units of the first layer are negative in every row."""
    apply, params = chain(3, jax.nn.relu, 2.0)
    first = params[0].at[:, :20].set(-jnp.abs(params[0][:, :20]))
    return lambda p, x: apply(p, jnp.abs(x)), [first, *params[1:]]


def zero_head() -> tuple[Any, Any]:
    apply, params = chain(3, jax.nn.relu, 2.0)
    return apply, [*params[:-1], jnp.zeros_like(params[-1])]


ROWS_OF_32 = single(normal(50, 64, 32))
GROW, ALIKE = "pre-activations grow", "rows become alike from"
NETWORKS: dict[str, tuple[Any, str]] = {
    "shallow rectifiers": (lambda: chain(3, jax.nn.relu, 2.0), ""),
    "orthogonal tanh": (lambda: orthogonal(20), ""),
    "zero-sum sigmoid": (lambda: zero_sum(20), ""),
    "quiet branches": (lambda: residual(8, quiet=True), ""),
    "full branches": (lambda: residual(8, quiet=False), "per block|residual_factors"),
    "deep rectifiers": (lambda: chain(30, jax.nn.relu, 2.0), f"{ALIKE}|linearly_constrain"),
    "deep sigmoid": (lambda: chain(30, jax.nn.sigmoid, 1.0), f"{ALIKE} 2 on"),
    "growing": (lambda: chain(8, jax.nn.relu, 6.0), f"{GROW}|per layer|variance_preserving_init"),
    "shrinking": (lambda: chain(12, jnp.tanh, 0.25), "pre-activations shrink 0.4"),
    "chaotic": (lambda: chain(20, jnp.tanh, 9.0), "gradients grow|: shaped"),
    "dead": (dead, "% of the units of 0 are dormant: data_dependent_init"),
    "zero head": (zero_head, ""),
}


@pytest.mark.kept("zero head")
@pytest.mark.parametrize("name", NETWORKS)
def test_verdict(name: str) -> None:
    make, expected = NETWORKS[name]
    apply, params = make()
    loss = lambda output: (output * single(normal(51, 64, 4))).mean()  # noqa: E731
    *table, verdict = jn.describe_propagation(apply, params, ROWS_OF_32, loss=loss).splitlines()
    assert len(table) == 1 + len(params)
    assert verdict.startswith("Off: " if expected else "Nothing is off.")
    assert all(words in verdict for words in expected.split("|"))


@pytest.mark.parametrize("scale", [0.0, 1.0])
def test_a_branch_behind_a_scale_of_zeros_is_no_fault_and_a_dead_one_is(scale: float) -> None:
    """Both make all units of the branch's first kernel dormant; a bias of zeros is no scale."""
    drawn = {name: single(normal(63 + i, 32, 32)) / 6 for i, name in enumerate("sah")}
    params = drawn | {"scale": jnp.full(32, scale), "bias": jnp.zeros(32)}

    def apply(params: Any, x: Any) -> Any:
        x = x @ params["s"]
        z = x @ params["a"] + params["bias"][None]
        branch = jax.nn.relu(-jnp.abs(z) if scale else z)  # always off, or cut off
        branch = branch * params["scale"][None]
        return (x + branch) @ params["h"]

    found = jn.propagation_findings(jn.read(apply, params, ROWS_OF_32))
    assert [finding.kind for finding in found] == (["dormant"] if scale else [])


def test_branches_of_a_stream_of_learned_latents_are_looked_at() -> None:
    drawn = {name: single(normal(60 + i, 32, 32)) / 8 for i, name in enumerate("vh")}
    params = drawn | {"z": single(normal(62, 3, 32)), "p": [drawn["h"], 5 * drawn["h"]]}

    def apply(params: Any, x: Any) -> Any:
        z, context = params["z"][None], (x @ params["v"])[:, None]
        for kernel in params["p"]:
            z = z + jax.nn.relu((z + context) @ params["h"]) @ kernel
        return z.mean(1) @ params["v"]

    (finding, *_) = jn.propagation_findings(jn.read(apply, params, ROWS_OF_32, as_inputs=["^z$"]))
    assert finding.kind == "branches"


def test_the_growth_of_gradients_is_named_per_layer() -> None:
    """Layers of sin with weights of variance 16 / n: squares grow by 16 E[cos^2] = 8."""
    apply, params = chain(4, jnp.sin, 16.0)
    loss = lambda output: (output * single(normal(51, 64, 4))).mean()  # noqa: E731
    (finding,) = jn.propagation_findings(jn.read(apply, params, ROWS_OF_32), loss=loss)
    assert finding.kind == "gradients"
    assert finding.values["backward"] == pytest.approx(8**0.5, rel=0.2)


def test_numbers_that_are_not_finite_are_named() -> None:
    apply, params = chain(3, jax.nn.relu, 2.0)
    params[1] = params[1].at[0, 0].set(jnp.inf)
    text = jn.describe_propagation(apply, params, ROWS_OF_32)
    assert "Off: 1 is not finite" in text


def gains(sizes: list[float]) -> tuple[Any, Any]:
    """Chain of rectifiers whose pre-activations grow by these factors."""
    apply, params = chain(len(sizes), jax.nn.relu, 2.0)
    return apply, [*(w * size for w, size in zip(params, sizes, strict=False)), params[-1]]


def hourglass(gain: float) -> tuple[Any, Any]:
    """Seven layers down, and four whose inputs earlier layers join, as in a U-Net."""
    _, params = chain(11, None, gain)
    params = [*params[:7], *(jnp.concatenate([w, w]) / 2**0.5 for w in params[7:-1]), params[-1]]

    def apply(params: Any, x: Any) -> Any:
        before = []
        for kernel in params[:7]:
            x = jax.nn.relu(x @ kernel)
            before.append(x)
        for kernel, skip in zip(params[7:-1], before[3::-1], strict=True):
            x = jax.nn.relu(jnp.concatenate([x, skip], -1) @ kernel)
        return x @ params[-1]

    return apply, params


def scaled_shortcuts(scale: float) -> tuple[Any, Any]:
    _, params = chain(13, None, 2.0)

    def apply(params: Any, x: Any) -> Any:
        x = x @ params[0]
        for up, down in zip(params[1:-1:2], params[2:-1:2], strict=True):
            x = scale * (x + 0.1 * (jax.nn.relu(x @ up) @ down))
        return x @ params[-1]

    return apply, params


STEP = 0.15
#: Networks whose signal fades at the layer of that name, or nowhere.
FADING: dict[str, tuple[Any, str]] = {
    "a step in a chain": (lambda: gains([*11 * [1.1], STEP, 1.1, 1.1]), "11 12 13"),
    "a step, and back": (lambda: gains([1, 1, 1, STEP, 1, 1, 1, 1, 1 / STEP, 1, 1]), "3 4 5 6 7"),
    "an hourglass": (lambda: hourglass(0.9), "5 6 7"),
    "scaled shortcuts": (lambda: scaled_shortcuts(0.68), "7 8 9 10 11 12"),
    "a preserved hourglass": (lambda: hourglass(2.0), ""),
    "whole shortcuts": (lambda: scaled_shortcuts(1.0), ""),
    "one quiet layer": (lambda: gains([1, 1, 1, 1, 0.01, 100, 1, 1, 1, 1, 1]), ""),
    "a loud first layer": (lambda: gains([8, 1 / 8, *9 * [1.0]]), ""),
}


@pytest.mark.kept("one quiet layer")
@pytest.mark.parametrize("name", FADING)
def test_a_fading_signal_is_found_where_it_is(name: str) -> None:
    make, expected = FADING[name]
    apply, params = make()
    findings = jn.propagation_findings(jn.read(apply, params, ROWS_OF_32))
    assert [finding.kind for finding in findings] == (["fading"] if expected else [])
    for finding in findings:
        assert finding.layer in expected.split()
        assert finding.values["last"] < finding.values["first"] / 20
        assert f"in {finding.layer}" in jn.describe_propagation(apply, params, ROWS_OF_32)
