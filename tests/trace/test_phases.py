"""Transposed convolutions with a stride: a unit is a phase and a channel."""

import pickle
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen, nnx

import jaxnorm as jn
from jaxnorm._phases import PhasedAxes
from jaxnorm._trace.phases import output_phases
from tests.draws import draw, float32, normal

IMAGES = draw(0, 2, 12, 12, 3)
FORMS = [
    (2, 2, "SAME", False),
    (3, 2, "SAME", True),
    (4, 2, "VALID", False),
    *(
        pytest.param(*form, marks=pytest.mark.slow)
        for form in product((5, 2), (3,), ("VALID",), (True, False))
    ),
]


def network(stride: int, padding: str, turned: bool, **options: Any) -> Any:
    def apply(p: Any, x: Any) -> Any:
        numbers = ("NHWC", "HWIO", "NHWC")
        strides = (stride, stride)
        return jax.lax.conv_transpose(
            x, p["w"], strides, padding, None, numbers, transpose_kernel=turned, **options
        )

    return apply


def kernel(taps: int, turned: bool) -> dict[str, jax.Array]:
    return {"w": draw(1, taps, taps, *((4, 3) if turned else (3, 4)))}


def phases(w: np.ndarray, stride: int, turned: bool) -> list[np.ndarray]:
    """Weights of each phase, (taps and inputs, channels), by strided slices."""
    w = np.float64(np.moveaxis(w, -1, -2) if turned else w)
    parts = [w[i::stride, j::stride] for i in range(stride) for j in range(stride)]
    return [part.reshape(-1, part.shape[-1]) for part in parts if part.size]


def inner(y: Any, taps: int) -> Any:
    return y[:, 2 * taps : -2 * taps, 2 * taps : -2 * taps]


@pytest.mark.kept("4-2-VALID")
@pytest.mark.parametrize(("taps", "stride", "padding", "turned"), FORMS)
def test_a_shift_of_the_inputs_moves_no_output_away_from_the_border(
    taps: int, stride: int, padding: str, turned: bool
) -> None:
    apply, params = network(stride, padding, turned), kernel(taps, turned)
    layout = jn.traced_layout(jn.read(apply, params, IMAGES))
    zero_sums, tx = jn.linearly_constrain(params, optax.sgd(0.1), layout=layout)
    update, _ = tx.update(kernel(taps, turned), tx.init(zero_sums), zero_sums)
    stepped = optax.apply_updates(zero_sums, update)
    nodes = jn.reparametrize(params, jn.LinearlyConstrained, layout)
    on_sphere = jn.effective(jn.constrain(params, optax.sgd(0.1), layout=layout)[0])
    for weights in (zero_sums, stepped, jn.effective(nodes), on_sphere):
        moved = inner(apply(weights, IMAGES + 10) - apply(weights, IMAGES), taps)
        assert moved.size
        np.testing.assert_allclose(moved, 0, atol=5e-5)
    assert jn.parameter_count(nodes) == params["w"].size - 4 * min(taps, stride) ** 2


@pytest.mark.parametrize("dilation", [1, 2])
def test_each_tap_is_seen_at_its_phase(dilation: int) -> None:
    """By a stride of 3, where a phase and its mirror image differ."""

    def apply(p: Any, x: Any) -> Any:
        options: Any = {"lhs_dilation": (3,), "rhs_dilation": (dilation,)}
        numbers = ("NWC", "WIO", "NWC")
        return jax.lax.conv_general_dilated(
            x, p["w"], (1,), [(4, 5)], dimension_numbers=numbers, **options
        )

    x, w = jnp.ones((1, 6, 1)), jnp.zeros((5, 1, 1))
    (layer,) = jn.read(apply, {"w": w}, x).program().layers.values()
    (phase,) = output_phases(layer.equation, layer.product.use)
    seen = [np.flatnonzero(apply({"w": w.at[tap].set(1)}, x)[0, :, 0]) for tap in range(5)]
    assert [{*(places % 3).tolist()} for places in seen] == [{tap} for tap in phase.of_taps]


@pytest.mark.kept("2-2-SAME-False")
@pytest.mark.parametrize(("taps", "stride", "padding", "turned"), FORMS)
def test_each_phase_has_zero_sums_and_its_norm(
    taps: int, stride: int, padding: str, turned: bool
) -> None:
    params = kernel(taps, turned)
    layout = jn.traced_layout(jn.read(network(stride, padding, turned), params, IMAGES))
    axes = layout(params)["w"]
    centered = jn.center(params["w"], axes)
    pairs = zip(
        phases(np.asarray(params["w"]), stride, turned),
        phases(np.asarray(centered), stride, turned),
        phases(np.asarray(jn.project_to_sphere(params["w"], axes)), stride, turned),
        strict=True,
    )
    for before, after, projected in pairs:
        deviation = before - before.mean(0)
        np.testing.assert_allclose(after, deviation, atol=1e-6)
        expected = deviation * np.sqrt(2 / (deviation**2).sum(0))
        np.testing.assert_allclose(projected, expected, atol=1e-5)
    drift = jn.constraint_drift({"w": jn.project_to_sphere(params["w"], axes)}, layout=layout)
    assert max(map(float, drift.values())) < 1e-5


@pytest.mark.slow
def test_a_sphere_makes_equal_variances_in_every_phase() -> None:
    apply, params = network(2, "SAME", False), kernel(3, False)
    axes = jn.traced_layout(jn.read(apply, params, IMAGES))(params)["w"]
    w = jn.project_to_sphere(jax.random.normal(jax.random.key(0), (3, 3, 3, 4)), axes)
    y = inner(apply({"w": w}, float32(normal(2, 200, 12, 12, 3))), 3)
    variances = [float(y[:, i::2, j::2].var()) for i in (0, 1) for j in (0, 1)]
    np.testing.assert_allclose(variances, 2, rtol=0.1)


@pytest.mark.slow
def test_scales_stay_one_per_channel() -> None:
    apply, params = network(2, "SAME", False), kernel(3, False)
    layout = jn.traced_layout(jn.read(apply, params, IMAGES))
    raw, _ = jn.constrain(params, optax.sgd(0.1), layout=layout)
    assert raw["w"].scale.shape == (4,)
    for kind in (jn.WeightNormalized, jn.CenteredWeightNormalized, jn.WeightStandardized):
        node = jn.reparametrize(params, kind, layout)["w"]
        plain = params["w"]
        expected = plain if kind is jn.WeightNormalized else jn.center(plain, node.fan_in_axes)
        np.testing.assert_allclose(node.effective(), expected, atol=1e-6)


def test_tangent_steps_and_kept_norms_are_those_of_the_phases() -> None:
    apply, params = network(2, "SAME", False), kernel(3, False)
    layout = jn.traced_layout(jn.read(apply, params, IMAGES))
    tx = jn.sphere_projection(layout=layout, squared_radius=None, tangent=True)
    start = {"w": jn.center(params["w"], layout(params)["w"])}
    update, _ = tx.update({"w": 0.1 * draw(3, 3, 3, 3, 4)}, tx.init(start), start)
    stepped = optax.apply_updates(start, update)
    pairs = [phases(np.asarray(tree["w"]), 2, False) for tree in (start, stepped)]
    for before, after in zip(*pairs, strict=True):
        np.testing.assert_allclose(after.sum(0), 0, atol=1e-5)
        np.testing.assert_allclose((after**2).sum(0), (before**2).sum(0), rtol=1e-5)


def test_a_stride_along_one_axis_and_dilated_taps() -> None:
    """Taps that lie a multiple of the stride apart all meet in one output."""
    params = kernel(3, False)

    def axes(**options: Any) -> Any:
        padding = ((1, 1), (1, 1))
        numbers = ("NHWC", "HWIO", "NHWC")

        def apply(p: Any, x: Any) -> Any:
            return jax.lax.conv_general_dilated(
                x, p["w"], (1, 1), padding, dimension_numbers=numbers, **options
            )

        return jn.traced_layout(jn.read(apply, params, IMAGES))(params)["w"]

    assert axes(lhs_dilation=(1, 1)) == (-4, -3, -2)
    assert axes(lhs_dilation=(2, 1)) == PhasedAxes((-4, -3, -2), (2, 1, 1))
    assert axes(lhs_dilation=(4, 2), rhs_dilation=(2, 2)) == PhasedAxes((-4, -3, -2), (2, 1, 1))


def test_axes_with_strides_are_their_own_kind_of_tuple() -> None:
    axes = PhasedAxes((-2, -4), (1, 2))
    assert axes != (-4, -2)
    assert hash(axes) != hash((-4, -2))
    assert axes == PhasedAxes((-4, -2), (2, 1)) == pickle.loads(pickle.dumps(axes))
    assert "2" in repr(axes)


def test_modules_and_programs_agree() -> None:
    module = nnx.ConvTranspose(3, 4, (3, 3), strides=2, rngs=nnx.Rngs(0))
    functional = jn.nnx.functionalize(module)
    apply = lambda p, x: functional.apply(p, functional.state, x, train=False)[0]  # noqa: E731
    params = functional.params
    traced = jn.traced_layout(jn.read(apply, params, IMAGES))(params)
    assert jn.nnx.layout(module)(params) == traced
    assert traced["kernel"] == PhasedAxes((-4, -3, -2), (2, 2, 1))


def test_a_kernel_of_two_strides_is_refused() -> None:
    def apply(p: Any, x: Any) -> Any:
        return network(2, "SAME", False)(p, network(1, "SAME", False)({"w": p["w"]}, x))

    params = {"w": draw(0, 3, 3, 3, 3)}
    with pytest.raises(ValueError, match="strides"):
        jn.traced_layout(jn.read(apply, params, IMAGES))


def test_units_that_would_have_a_single_weight_are_refused() -> None:
    params = {"w": draw(0, 3, 3, 1, 4)}
    layout = jn.traced_layout(jn.read(network(2, "SAME", False), params, IMAGES[..., :1]))
    with pytest.raises(ValueError, match="one weight"):
        jn.linearly_constrain(params, optax.sgd(0.1), layout=layout)


MATRICES: dict[str, Any] = {
    "stiefel": lambda apply, p, layout: jn.project_to_stiefel(p["w"], layout(p)["w"]),
    "spectral": lambda apply, p, layout: jn.reparametrize(p, jn.SpectrallyNormalized, layout),
    "orthogonal": lambda apply, p, layout: jn.orthogonal_init(
        jn.read(apply, p, IMAGES), layout=layout
    ),
}


@pytest.mark.parametrize("call", MATRICES)
def test_matrices_are_refused_with_the_way_out(call: str) -> None:
    apply, params = network(2, "SAME", False), kernel(3, False)
    layout = jn.traced_layout(jn.read(apply, params, IMAGES))
    with pytest.raises(ValueError, match=r"stride.*layout"):
        MATRICES[call](apply, params, layout)


def test_the_table_counts_phases() -> None:
    params = kernel(3, False)
    layout = jn.traced_layout(jn.read(network(2, "SAME", False), params, IMAGES))
    (line,) = [line for line in jn.describe(params, layout).splitlines() if line.startswith("w ")]
    assert line.split()[-2:] == ["3-12", "16"]


@pytest.mark.parametrize("layout", [jn.torch_layout, jn.flax_layout])
def test_layouts_by_names_warn_of_transposed_convolutions(layout: Any) -> None:
    name = "weight" if layout is jn.torch_layout else "kernel"
    shape = (4, 4, 3, 3) if layout is jn.torch_layout else (3, 3, 4, 4)
    with pytest.warns(UserWarning, match="transposed"):
        layout({"ConvTranspose_0": {name: jnp.ones(shape)}})


def test_linen_names_warn() -> None:
    module = linen.ConvTranspose(4, (2, 2), strides=(2, 2))
    variables = linen.Sequential([module]).init(jax.random.key(0), IMAGES)
    apply = lambda p, x: linen.Sequential([module]).apply({"params": p}, x)  # noqa: E731
    axes = jax.tree.leaves(
        jn.traced_layout(jn.read(apply, variables["params"], IMAGES))(variables["params"]),
        is_leaf=lambda x: isinstance(x, tuple),
    )
    assert PhasedAxes((-4, -3, -2), (2, 2, 1)) in axes


@pytest.mark.kept("4-2")
@pytest.mark.parametrize("kind", [None, jn.LinearlyConstrained])
@pytest.mark.parametrize(("taps", "stride", "padding", "turned"), FORMS)
def test_a_fitted_start_gives_every_phase_its_variance(
    taps: int, stride: int, padding: str, turned: bool, kind: Any
) -> None:
    """And every channel its mean."""
    apply = network(stride, padding, turned)
    layout = jn.traced_layout(jn.read(apply, kernel(taps, turned), IMAGES))
    params = kernel(taps, turned) | {"bias": jnp.ones(4)}
    with_bias = lambda p, x: apply(p, x) + p["bias"][None, None, None]  # noqa: E731
    start = (
        params if kind is None else jn.reparametrize(params, kind, jn.exclude("b", layout=layout))
    )
    fitted = jn.data_dependent_init(jn.read(with_bias, start, IMAGES), layout=layout)
    y = np.float64(with_bias(jn.effective(fitted), IMAGES))
    np.testing.assert_allclose(y.mean((0, 1, 2)), 0, atol=1e-5)
    reads = [i < taps for i in range(stride)]
    read = [(i, j) for i in range(stride) for j in range(stride)]
    variances = np.array([y[:, i::stride, j::stride].var((0, 1, 2)) for i, j in read])
    of_taps = variances[variances.max(1) > 1e-6]
    assert len(of_taps) == sum(reads) ** 2
    np.testing.assert_allclose(of_taps, 1, rtol=1e-4)


@pytest.mark.parametrize("kind", [None, jn.Scaled])
@pytest.mark.parametrize(
    ("taps", "strides", "dilations"),
    [((1, 1), (2, 2), (1, 1)), ((1, 3), (3, 2), (1, 1)), ((1, 1), (2, 1), (2, 3))],
)
def test_outputs_without_a_tap_do_not_count(
    taps: tuple[int, ...], strides: tuple[int, ...], dilations: tuple[int, ...], kind: Any
) -> None:
    """A kernel of one tap writes every stride-th output, and these have the variance."""
    numbers = ("NHWC", "HWIO", "NHWC")

    def apply(p: Any, x: Any) -> Any:
        y = jax.lax.conv_transpose(x, p["w"], strides, "SAME", dilations, numbers)
        return y + p["bias"][None, None, None]

    params = {"w": draw(1, *taps, 3, 4), "bias": jnp.ones(4)}
    layout = jn.traced_layout(jn.read(apply, params, IMAGES))
    start = params if kind is None else jn.reparametrize(params, kind, layout)
    fitted = jn.effective(jn.data_dependent_init(jn.read(apply, start, IMAGES), layout=layout))
    y = np.float64(apply(fitted, IMAGES))
    np.testing.assert_allclose(y.mean((0, 1, 2)), 0, atol=1e-5)
    written = [
        slice(None, None, s) if t == 1 else slice(None) for t, s in zip(taps, strides, strict=True)
    ]
    np.testing.assert_allclose(y[:, written[0], written[1]].var((0, 1, 2)), 1, rtol=1e-2)
    others = y[:, 1::2] if strides[0] == 2 else y[:, 1::3]
    assert others.var((0, 1, 2)).max() < 1e-10


def test_a_fitted_start_keeps_spheres() -> None:
    """A scale is one number per channel."""
    apply, params = network(2, "SAME", False), kernel(3, False)
    layout = jn.traced_layout(jn.read(apply, params, IMAGES))
    raw, _ = jn.constrain(params, optax.sgd(0.1), layout=layout)
    fitted = jn.data_dependent_init(jn.read(apply, raw, IMAGES), layout=layout)
    np.testing.assert_array_equal(fitted["w"].kernel, raw["w"].kernel)
    y = apply(jn.effective(fitted), IMAGES)
    np.testing.assert_allclose(y.var((0, 1, 2)), 1, rtol=1e-4)


def test_stacked_transposed_convolutions_are_fitted_layer_by_layer() -> None:
    def apply(p: Any, x: Any) -> Any:
        turn = lambda x, w: (network(2, "SAME", False)({"w": w}, x)[:, ::2, 1::2], None)  # noqa: E731
        return jax.lax.scan(turn, x, p["w"])[0]

    params = {"w": draw(1, 2, 3, 3, 3, 3)}
    layout = jn.traced_layout(jn.read(apply, params, IMAGES))
    assert layout(params)["w"] == PhasedAxes((-4, -3, -2), (2, 2, 1))
    fitted = jn.data_dependent_init(jn.read(apply, params, IMAGES), layout=layout)
    y = apply(fitted, IMAGES)
    np.testing.assert_allclose(y.var((0, 1, 2)), 1, rtol=1e-3)
