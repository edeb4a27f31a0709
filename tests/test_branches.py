"""`residual_factors` and `scale_branches`: known branches, kinds of parameters, and the purpose."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import jaxnorm as jn
from tests.draws import draw, normal
from tests.models import of_equinox, of_haiku, of_linen
from tests.nnx.models import RESNET
from tests.residual_networks import CASES, MLP, REFUSED, ROWS, Case, mlp, shape
from tests.trees import by_path, is_absent


def factors_of(case: Case) -> dict[str, float]:
    """Factors that are not 1, by path."""
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        tree = jn.residual_factors(jn.read(case.apply, case.params, *case.inputs))
    assert jax.tree.structure(tree) == jax.tree.structure(case.params)
    return {path: x for path, x in by_path(tree).items() if not is_absent(x) and x != 1.0}


@pytest.mark.parametrize("name", CASES)
def test_each_branch_starts_with_one_over_the_root_of_their_number(name: str) -> None:
    expected = {path: factor for path, factor in CASES[name].factors.items() if factor != 1}
    assert factors_of(CASES[name]) == pytest.approx(expected)


@pytest.mark.parametrize("name", REFUSED)
def test_refuses_and_names_the_parameters(name: str) -> None:
    case, paths = REFUSED[name]
    with pytest.raises(ValueError, match="branch") as raised:
        factors_of(case)
    for path in paths:
        assert path in str(raised.value)


def stream(block: Callable[..., Any]) -> Callable[..., Any]:
    def apply(params: Any, x: Any) -> Any:
        for layer in params:
            x = block(layer, x)
        return x

    return apply


def scaled_by_parameter(p: Any, x: Any) -> Any:
    return x + p["scale"][None] * mlp(p, x)


KERNELS = jn.layout_from_rules([(r"(up|down)$", -2)])
DRAWN = {name: draw(i, 4, 4) for i, name in enumerate(MLP)}
#: Models that scale their branches: block, other parameters of it, and the path that is named.
OWN: dict[str, tuple[Callable[..., Any], dict[str, Any], str]] = {
    "a constant": (lambda p, x: x + 0.3 * mlp(p, x), {}, "down"),
    "a quotient": (lambda p, x: x + mlp(p, x) / jnp.sqrt(3.0), {}, "down"),
    "a constant before the bias": (lambda p, x: x + (0.3 * mlp(p, x) + 1), {}, "down"),
    "a zero scale": (scaled_by_parameter, {"scale": jnp.zeros(4)}, "scale"),
    "a small scale": (scaled_by_parameter, {"scale": jnp.full(4, 1e-6)}, "scale"),
    "a zero kernel": (lambda p, x: x + mlp(p, x), {"down": jnp.zeros((4, 4))}, "down"),
    "the stream over sqrt(2)": (lambda p, x: (x + mlp(p, x)) / jnp.sqrt(2.0), {}, "down"),
    "the stream over sqrt(3)": (
        lambda p, x: (x + mlp(p, x) + mlp(p, x * x)) / jnp.sqrt(3.0),
        {},
        "down",
    ),
}


@pytest.mark.parametrize("name", OWN)
def test_leaves_branches_alone_that_the_model_scales(name: str) -> None:
    block, other, path = OWN[name]
    params = 3 * [DRAWN | other]
    with pytest.warns(UserWarning, match=path) as caught:
        factors = jn.residual_factors(jn.read(stream(block), params, ROWS))
    assert len(caught) == 1
    assert set(jax.tree.leaves(factors)) == {1.0}


def test_own_scales_of_one_count_as_any_scale() -> None:
    params = 4 * [DRAWN | {"scale": jnp.ones(4)}]
    factors = jn.residual_factors(jn.read(stream(scaled_by_parameter), params, ROWS))
    assert factors == 4 * [{"up": 1.0, "down": 1.0, "scale": 0.5}]


def test_counts_the_kernels_of_a_layout_only() -> None:
    case = CASES["plain"]
    factors = jn.residual_factors(jn.read(case.apply, case.params, *case.inputs), layout=KERNELS)
    assert factors["blocks"][0] == {"up": 1.0, "down": 0.5}
    early = jn.layout_from_rules([(r"blocks/.*/up$", -2)])
    factors = jn.residual_factors(jn.read(case.apply, case.params, *case.inputs), layout=early)
    assert factors["blocks"][0] == {"up": 0.5, "down": 1.0}


def functional(model: nnx.Module) -> tuple[Callable[..., Any], Any]:
    apply, params, state = jn.nnx.functionalize(model)
    return lambda p, x: apply(p, state, x, train=True)[0], params


@pytest.mark.parametrize("taken_out", [False, True], ids=["with BatchNorm", "replaced"])
def test_a_residual_network_of_nnx(taken_out: bool) -> None:
    model, x = RESNET.model(), RESNET.input()
    for block in model.blocks:  # they start at zero
        block.norm2.scale[...] = jnp.ones_like(block.norm2.scale[...])
    model = jn.nnx.replace_batch_norm(model, x) if taken_out else model
    apply, params = functional(model)
    last = "conv2/kernel" if taken_out else "norm2/scale"
    expected = {f"blocks/{i}/{last}": 2**-0.5 for i in range(2)}
    assert factors_of(Case(apply, params, (x,), {})) == expected
    shapes = jax.eval_shape(lambda p: p, params)
    assert factors_of(Case(apply, shapes, (x,), {})) == expected


@pytest.mark.parametrize(
    ("library", "count", "last"),
    [
        (of_linen, 2, "BatchNorm_1/scale"),
        pytest.param(of_haiku, 4, "batchnorm_1/scale", marks=pytest.mark.slow),
    ],
)
def test_residual_networks_of_other_libraries(library: Any, count: int, last: str) -> None:
    model = library.resnet()
    factors = factors_of(Case(model.apply, model.params, model.inputs, {}))
    assert [path.endswith(last) for path in factors] == count * [True]
    assert set(factors.values()) == {count**-0.5}


def test_of_an_equinox_network_without_residual_sums() -> None:
    model = of_equinox.convolutional()
    assert factors_of(Case(model.apply, model.params, model.inputs, {})) == {}


def test_factors_are_those_of_the_plain_parameters() -> None:
    params = 4 * [DRAWN]
    apply = stream(lambda p, x: x + mlp(p, x))
    raw = jn.reparametrize(params, jn.Scaled, layout=KERNELS)
    assert jn.residual_factors(jn.read(apply, raw, ROWS)) == 4 * [{"up": 1.0, "down": 0.5}]


def test_quiet_scales_beside_reparametrized_kernels_are_left_alone() -> None:
    params = 3 * [DRAWN | {"scale": jnp.full(4, 1e-6)}]
    raw = jn.reparametrize(params, jn.Scaled, layout=KERNELS)
    with pytest.warns(UserWarning, match="scale"):
        factors = jn.residual_factors(jn.read(stream(scaled_by_parameter), raw, ROWS))
    assert set(jax.tree.leaves(factors)) == {1.0}


def clipped(p: Any, x: Any) -> Any:
    """Block with a kernel that is rounded to whole numbers, which no factor passes through."""
    whole = jnp.float32(jnp.int32(p["half"]))
    return x + whole * mlp(p, x)


def test_a_constant_that_is_cast_to_a_whole_number_is_no_factor_of_a_half() -> None:
    factors = jn.residual_factors(
        jn.read(stream(clipped), 4 * [DRAWN | {"half": jnp.float32(1.5)}], ROWS)
    )
    assert {block["down"] for block in factors} == {0.5}


KINDS = (
    jn.Scaled,
    jn.LinearlyConstrained,
    jn.WeightNormalized,
    jn.CenteredWeightNormalized,
    jn.WeightStandardized,
)


@pytest.mark.parametrize("jit", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_scales_the_effective_kernel_of_each_kind(kind: Any, jit: bool) -> None:
    raw, factors = jn.reparametrize(DRAWN, kind, layout=KERNELS), {"up": 1.0, "down": 0.25}
    scale = lambda raw: jn.scale_branches(raw, factors)  # noqa: E731
    scaled = jax.jit(scale)(raw) if jit else scale(raw)
    assert jax.tree.structure(scaled) == jax.tree.structure(raw)
    np.testing.assert_array_equal(jn.effective(scaled)["up"], jn.effective(raw)["up"])
    expected = 0.25 * np.asarray(jn.effective(raw)["down"])
    np.testing.assert_allclose(jn.effective(scaled)["down"], expected, rtol=1e-6, atol=1e-7)
    for field in kind.kernel_fields if kind.stores_weights else ():
        before, after = getattr(raw["down"], field), getattr(scaled["down"], field)
        np.testing.assert_array_equal(after, before)


def test_scales_plain_parameters_and_scales_of_layers() -> None:
    layer = jn.nnx.ScaleAndBias(4, rngs=nnx.Rngs(0))
    params = {
        "norm": nnx.to_pure_dict(nnx.state(layer, nnx.Param)),
        "kernel": jnp.ones((4, 4), "bfloat16"),
    }
    factors = jax.tree.map(lambda _: 1.0, params)
    factors["norm"]["channel_scale"] = factors["kernel"] = 0.5
    scaled = jn.scale_branches(params, factors)
    assert scaled["norm"]["channel_scale"].tolist() == 4 * [0.5]
    assert scaled["norm"]["bias"].tolist() == 4 * [0.0]
    assert scaled["kernel"].dtype == jnp.bfloat16
    assert set(np.ravel(scaled["kernel"]).tolist()) == {0.5}


def test_refuses_a_kernel_that_has_no_scale() -> None:
    """The norm of a spectrally normalized kernel is 1, whatever the factor."""
    raw = jn.reparametrize(DRAWN, jn.SpectrallyNormalized, layout=KERNELS)
    factors = {"up": 1.0, "down": 0.25}
    with pytest.raises(ValueError, match=r"SpectrallyNormalized.*0\.25.*Scaled"):
        jn.scale_branches(raw, factors)
    scaled = jn.scale_branches(jn.reparametrize(raw, jn.Scaled, layout=KERNELS), factors)
    largest = np.linalg.svd(np.asarray(jn.effective(scaled)["down"], np.float64))[1][0]
    np.testing.assert_allclose(largest, 0.25, rtol=1e-5)


def test_refuses_factors_of_another_structure() -> None:
    with pytest.raises(ValueError, match="kernel"):
        jn.scale_branches({"kernel": jnp.ones((2, 2))}, {"weight": 0.5})


@pytest.mark.kept("4")
@pytest.mark.parametrize("depth", [4, 16])
def test_the_variance_of_the_stream_stays_below_e(depth: int) -> None:
    """In float64 and NumPy: 2^L without factors, (1 + 1/L)^L <= e with them."""
    width, rows = 256, normal(0, 512, 256)

    def apply(params: Any, x: Any) -> Any:
        for layer in params:
            x = x + x @ layer["kernel"]
        return x

    kernels = [normal(i + 1, width, width) for i in range(depth)]
    raw, _ = jn.constrain([{"kernel": jnp.asarray(w)} for w in kernels], optax.identity())
    quiet = jn.scale_branches(raw, jn.residual_factors(jn.read(apply, raw, shape(2, width))))

    def growth(raw: Any) -> float:
        x = rows
        for node in raw:
            # Units on the sphere of squared norm 2 make pre-activations of variance 2.
            x = x + x @ (np.float64(jn.effective(node["kernel"])) / math.sqrt(2))
        return float(x.var() / rows.var())

    assert growth(raw) == pytest.approx(2.0**depth, rel=0.15)
    assert growth(quiet) == pytest.approx((1 + 1 / depth) ** depth, rel=0.05)
    assert growth(quiet) < math.e
