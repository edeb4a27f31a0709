"""Kernels and scales that are split over devices have the draws that they have under jit."""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from jaxnorm import (
    Scaled,
    layout_from_rules,
    noise_injection,
    perturb_scales,
    with_scale_noise,
)
from tests.draws import draw
from tests.tolerances import FLOAT32, FLOAT32_STEPS
from tests.trees import assert_close, assert_equal, quick_jit

ROWS, SIGMA = 6, 0.4
KEYS = jax.random.split(jax.random.key(1), ROWS)
MESH = jax.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)


def perceptron(params: Any, x: Any, axis_name: str | None) -> Any:
    """The first kernel is split along its units, the second along its fan-in."""
    x = jnp.tanh(x @ params["up"]["kernel"] + params["up"]["bias"][None])
    product = x @ params["down"]["kernel"]
    total = product if axis_name is None else jax.lax.psum(product, axis_name)
    return total + params["down"]["bias"][None]


def convolution(params: Any, x: Any, axis_name: str | None) -> Any:
    images, numbers = x.reshape(-1, 2, 2, 1), ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(
        images, params["kernel"], (1, 1), "SAME", dimension_numbers=numbers
    )


def experts(params: Any, x: Any, axis_name: str | None) -> Any:
    """Each expert sees every row."""
    return jnp.tanh(jnp.einsum("bd,edf->ebf", x, params["kernel"]))


def layers(params: Any, x: Any, axis_name: str | None) -> Any:
    """A scan over stacked layers, each of which sees the inputs."""
    return jax.lax.scan(lambda _, kernel: (None, jnp.tanh(x @ kernel)), None, params["kernel"])[1]


class Case(NamedTuple):
    """A network whose kernels are split over the axis ``model``.

    Attributes:
        apply: the network; ``axis_name`` is None outside of shard_map.
        params: the whole parameters.
        specs: their PartitionSpecs.
        output: the PartitionSpec of the result.
        typed: True if the types of a checked shard_map say which axes are split.
        fan_in: the fan-in axes of the kernels.
    """

    apply: Callable[..., Any]
    params: Any
    specs: Any
    output: P
    typed: bool
    fan_in: tuple[int, ...] = (-2,)


CASES = {
    "units": Case(
        perceptron,
        {
            "up": {"kernel": draw(0, 4, 8), "bias": draw(1, 8)},
            "down": {"kernel": draw(2, 8, 3), "bias": draw(3, 3)},
        },
        {
            "up": {"kernel": P(None, "model"), "bias": P("model")},
            "down": {"kernel": P("model"), "bias": P()},
        },
        P("data"),
        typed=True,
    ),
    "channels": Case(
        convolution,
        {"kernel": draw(4, 3, 3, 1, 8)},
        {"kernel": P(None, None, None, "model")},
        P("data", None, None, "model"),
        typed=True,
        fan_in=(-4, -3, -2),
    ),
    "experts": Case(
        experts, {"kernel": draw(5, 8, 4, 3)}, P("model"), P("model", "data"), typed=False
    ),
    "layers": Case(
        layers, {"kernel": draw(6, 8, 4, 3)}, P("model"), P("model", "data"), typed=False
    ),
}
X = draw(7, ROWS, 4)


def noisy(case: Case, per: Any, specs: Any, axis_name: str | None = "model") -> Any:
    """``(keys, params, x) -> output`` of the noisy network."""

    def call(keys: Any, params: Any, x: Any) -> Any:
        apply = lambda params, x: case.apply(params, x, axis_name)  # noqa: E731
        layout = layout_from_rules([("kernel$", case.fan_in)])
        model = with_scale_noise(apply, SIGMA, layout=layout, per=per, specs=specs)
        return model(keys[0] if per == "step" else keys, params, x)

    return call


def mapped(case: Case, per: str, specs: Any, check_vma: bool = True) -> Any:
    keys = P() if per == "step" else P("data")
    in_specs, call = (keys, case.specs, P("data")), noisy(case, per, specs)
    return jax.shard_map(
        call, mesh=MESH, in_specs=in_specs, out_specs=case.output, check_vma=check_vma
    )


def output_and_gradient(call: Any, params: Any) -> Any:
    def loss(params: Any) -> Any:
        output = call(KEYS, params, X)
        return jnp.square(output).sum(), output

    return quick_jit(jax.value_and_grad(loss, has_aux=True))(params)


#: ``(check_vma, with_specs)``: shard_map checks its types, and the call has specs.
HOW = {"typed": (True, False), "checked": (True, True), "unchecked": (False, True)}


@pytest.mark.kept("units-sample-typed", "layers-sample-checked")
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("per", ["sample", "position", "step"])
@pytest.mark.parametrize("name", CASES)
def test_shard_map_draws_as_jit(name: str, per: str, how: str) -> None:
    case, (check_vma, with_specs) = CASES[name], HOW[how]
    call = mapped(case, per, case.specs if with_specs else None, check_vma)
    if not (case.typed or with_specs):
        with pytest.raises(ValueError, match=r"'kernel'.*'model'.*specs="):
            call(KEYS, case.params, X)
        return
    actual, expected = (
        output_and_gradient(each, case.params) for each in (call, noisy(case, per, None, None))
    )
    assert_close(actual, expected, FLOAT32_STEPS)


def test_pmap_draws_as_jit() -> None:
    case = CASES["units"]
    axes = {"up": {"kernel": 1, "bias": 0}, "down": {"kernel": 0, "bias": None}}

    def split(x: Any, axis: int | None) -> Any:
        return jnp.stack([x] * 4 if axis is None else jnp.split(x, 4, axis))

    parts = {
        layer: {name: split(x, axes[layer][name]) for name, x in leaves.items()}
        for layer, leaves in case.params.items()
    }
    call = noisy(case, "sample", case.specs)
    run = jax.pmap(call, "model", in_axes=(None, 0, None), devices=jax.devices()[:4])
    expected = quick_jit(noisy(case, "sample", None, None))(KEYS, case.params, X)
    np.testing.assert_allclose(run(KEYS, parts, X)[0], expected, **FLOAT32)


@pytest.mark.slow
@pytest.mark.parametrize("check_vma", [True, False])
def test_stages_of_a_pipeline_draw_as_one_stack(check_vma: bool) -> None:
    """Rows pass from device to device, each of which has two of eight layers."""
    params = {"kernel": 0.5 * draw(8, 8, 4, 4)}
    stddev = jnp.linspace(0.1, 0.8, 8)

    def stack(params: Any, x: Any) -> Any:
        return jax.lax.scan(lambda x, kernel: (jnp.tanh(x @ kernel), None), x, params["kernel"])[0]

    def pipeline(keys: Any, params: Any, x: Any) -> Any:
        layout = layout_from_rules([("kernel$", -2)])
        stage = with_scale_noise(stack, stddev, layout=layout, specs={"kernel": P("model")})
        x = jax.lax.pcast(x, "model", to="varying") if check_vma else x
        for _ in range(4):
            x = jax.lax.ppermute(
                stage(keys, params, x), "model", [(i, (i + 1) % 4) for i in range(4)]
            )
        return jax.lax.psum(jnp.where(jax.lax.axis_index("model") == 0, x, 0), "model")

    specs = (P("data"), P("model"), P("data"))
    run = jax.shard_map(
        pipeline, mesh=MESH, in_specs=specs, out_specs=P("data"), check_vma=check_vma
    )
    whole = with_scale_noise(stack, stddev, layout=layout_from_rules([("kernel$", -2)]))
    actual, expected = (quick_jit(each)(KEYS, params, X) for each in (run, whole))
    np.testing.assert_allclose(actual, expected, **FLOAT32)


def test_a_sum_that_may_be_split_is_refused_without_specs() -> None:
    """The inputs vary along the mesh axis too, and the model does not sum the product over it."""
    run = lambda specs: jax.shard_map(  # noqa: E731
        lambda params, x: jax.lax.psum(
            with_scale_noise(lambda p, x: x @ p["kernel"], SIGMA, specs=specs)(KEYS, params, x),
            "model",
        ),
        mesh=MESH,
        in_specs=(P("model"), P(None, "model")),
        out_specs=P(),
    )
    params = {"kernel": draw(9, 4, 3)}
    with pytest.raises(ValueError, match=r"'kernel'.*'model'.*specs="):
        run(None)(params, X)
    whole = with_scale_noise(lambda p, x: x @ p["kernel"], SIGMA)(KEYS, params, X)
    np.testing.assert_allclose(quick_jit(run(P("model")))(params, X), whole, **FLOAT32)


@pytest.mark.parametrize("typed", [True, False])
@pytest.mark.parametrize("form", ["transposed", "reshaped"])
def test_units_of_kernels_in_another_form(form: str, typed: bool) -> None:
    """The order of a single axis of units is known; that of two that are merged is not."""
    apply, kernel, axes, spec = {
        "transposed": (lambda p, x: x @ p["kernel"].T, draw(10, 8, 4), -1, P("model")),
        "reshaped": (
            lambda p, x: x @ p["kernel"].reshape(4, -1),
            draw(11, 4, 2, 8),
            -3,
            P(None, None, "model"),
        ),
    }[form]
    layout = layout_from_rules([("kernel$", axes)])
    model = with_scale_noise(apply, SIGMA, layout=layout, specs=None if typed else spec)
    run = jax.shard_map(
        lambda params: model(KEYS, params, X), mesh=MESH, in_specs=spec, out_specs=P(None, "model")
    )
    if form == "reshaped":
        with pytest.raises(ValueError, match="'kernel'"):
            run({"kernel": kernel})
        return
    whole = with_scale_noise(apply, SIGMA, layout=layout)(KEYS, {"kernel": kernel}, X)
    np.testing.assert_allclose(quick_jit(run)({"kernel": kernel}), whole, **FLOAT32)


NODE = Scaled(draw(12, 4, 8), draw(13, 8), (-2,))
RAW = {
    "dense": {"kernel": NODE},
    "heads": {"kernel": Scaled(draw(14, 4, 2, 8), draw(15, 2, 8), (-3,))},
}
RAW_SPECS = {
    "dense": {"kernel": Scaled(P(None, "model"), P("model"), (-2,))},
    "heads": {"kernel": Scaled(P(None, None, "model"), P(None, "model"), (-3,))},
}


def split_scales(f: Any, name: str, check_vma: bool = True) -> Any:
    specs = RAW_SPECS[name]
    return jax.shard_map(f, mesh=MESH, in_specs=(specs,), out_specs=specs, check_vma=check_vma)


@pytest.mark.kept("dense-typed")
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", RAW)
def test_split_scales_have_the_draws_of_whole_ones(name: str, how: str) -> None:
    """`perturb_scales`, two steps of `noise_injection`, and nodes in `with_scale_noise`."""
    check_vma, with_specs = HOW[how]
    params, key = RAW[name], jax.random.key(2)
    stddev = jnp.linspace(0.1, 0.8, 8) if name == "dense" else 0.5

    def perturb(specs: Any) -> Any:
        return lambda params: perturb_scales(params, stddev, key, specs=specs)

    def train(specs: Any) -> Any:
        tx = noise_injection(optax.sgd(0.1), stddev, seed=3, specs=specs)

        def run(params: Any) -> Any:
            state = tx.init(params)
            for _ in range(2):
                updates, state = tx.update(jax.tree.map(jnp.ones_like, params), state, params)
                params = optax.apply_updates(params, updates)
            return params

        return run

    for of in (perturb, train):
        call = split_scales(of(RAW_SPECS[name] if with_specs else None), name, check_vma)
        if name == "heads" and not with_specs:
            with pytest.raises(ValueError, match=r"'kernel/scale'.*'model'.*specs="):
                call(params)
            continue
        assert_close(quick_jit(call)(params), quick_jit(of(None))(params))


def test_scales_that_were_cast_to_varying_are_whole_by_their_spec() -> None:
    key, params = jax.random.key(2), RAW["dense"]

    def cast(specs: Any) -> Any:
        def perturb(params: Any) -> Any:
            varying = jax.lax.pcast(params, "model", to="varying")
            scales = perturb_scales(varying, 0.5, key, specs=specs)["kernel"].scale
            return jax.lax.all_gather(scales, "model")

        run = jax.shard_map(perturb, mesh=MESH, in_specs=P(), out_specs=P("model"))
        return quick_jit(run)(params)

    expected = perturb_scales(params, 0.5, key)["kernel"].scale
    assert_equal(cast(P())[:1], expected[None])


def test_specs_at_nodes_are_those_of_their_kernels() -> None:
    params = {"kernel": NODE}
    model = lambda specs: with_scale_noise(lambda p, x: x @ p["kernel"], SIGMA, specs=specs)  # noqa: E731
    run = jax.shard_map(
        lambda params: model(RAW_SPECS["dense"])(KEYS, params, X),
        mesh=MESH,
        in_specs=(RAW_SPECS["dense"],),
        out_specs=P(None, "model"),
        check_vma=False,
    )
    np.testing.assert_allclose(quick_jit(run)(params), model(None)(KEYS, params, X), **FLOAT32)


def test_noise_adds_no_collective() -> None:
    """Sums of another type than those of the other gradients are reduced by themselves."""

    def apply(params: Any, x: Any) -> Any:
        params, x = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), (params, x))
        return jnp.tanh(x @ params["kernel"] + params["bias"][None]) @ params["kernel"].T

    def sums(model: Any) -> set[str]:
        gradient = jax.jit(jax.grad(lambda params: model(params, X).astype(jnp.float32).sum()))
        text = gradient.lower(CASES["units"].params["up"]).as_text()
        return set(re.findall(r"stablehlo\.reduce\(.*-> tensor<[^>]*x(\w+)>", text))

    layout = layout_from_rules([("kernel$", -2)])
    noisy = lambda params, x: with_scale_noise(apply, SIGMA, layout=layout)(KEYS, params, x)  # noqa: E731
    assert sums(noisy) == sums(apply) == {"bf16"}
