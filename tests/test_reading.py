"""A reading takes the place of model, parameters and inputs, and costs one trace."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxnorm as jn
from tests.draws import draw

N = 4
X, OTHER = draw(0, 8, N), draw(1, 8, N)
PARAMS = {name: {"kernel": draw(i, N, N), "bias": draw(i + 10, N)} for i, name in enumerate("abcd")}


def assert_same(made: Any, wanted: Any) -> None:
    jax.tree.map(np.testing.assert_array_equal, made, wanted)


class Counted:
    """A residual network that counts how often it is called."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, params: Any, x: Any) -> Any:
        self.calls += 1
        dense = lambda name, x: x @ params[name]["kernel"] + params[name]["bias"][None]  # noqa: E731
        x = dense("a", x)
        x = x + dense("c", jnp.tanh(dense("b", x)))
        return dense("d", jnp.tanh(x))


def call(*arguments: Any) -> Any:
    net, *rest = arguments
    if isinstance(net, jn.Reading):
        raw, tx = jn.normalizer_free(net, optax.sgd(0.1, momentum=0.9))
    else:
        raw, tx = jn.normalizer_free(net, rest[0], optax.sgd(0.1, momentum=0.9), *rest[1:])
    gradient = jax.grad(lambda raw: jnp.square(Counted()(raw, X)).sum())(raw)
    return raw, tx.update(gradient, tx.init(raw), raw)


def centered(net: jn.Reading) -> Any:
    tx = jn.centered_inputs(net, optax.sgd(0.1))
    return tx.update(PARAMS, tx.init(PARAMS), PARAMS)


#: Functions of a reading, or also of ``(apply, params, *inputs)``, and how often they may trace.
FUNCTIONS: dict[str, tuple[Callable[..., Any], int]] = {
    "normalizer_free": (call, 2),
    "describe_roles": (jn.describe_roles, 1),
    "describe_propagation": (jn.describe_propagation, 2),
    "traced_layout": (lambda net: jn.traced_layout(net)(PARAMS), 1),
    "first_layer": (jn.first_layer, 1),
    "residual_factors": (jn.residual_factors, 1),
    "data_dependent_init": (jn.data_dependent_init, 1),
    "variance_preserving_init": (jn.variance_preserving_init, 1),
    "orthogonal_init": (jn.orthogonal_init, 1),
    "input_means": (jn.input_means, 1),
    "centered_inputs": (centered, 1),
    "collect_preactivations": (jn.collect_preactivations, 1),
    "linear_stddev": (lambda net: jn.linear_stddev(net, 0.1), 1),
    "propagation": (jn.propagation, 2),
    "traced_depth": (lambda net: jn.shaping.traced_depth(net)(0.0, lambda value: value + 1), 1),
}
#: Functions that also take ``(apply, params, *inputs)``, as a convenience.
OF_MODELS = ("normalizer_free", "describe_roles", "describe_propagation")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_reading_gives_the_same_with_no_more_traces(name: str) -> None:
    function, budget = FUNCTIONS[name]
    apply = Counted()
    of_model = function if name in OF_MODELS else lambda *model: function(jn.read(*model))
    wanted = of_model(apply, PARAMS, X)
    assert apply.calls <= budget
    net = jn.read(apply, PARAMS, X)
    apply.calls = 0
    made = function(net)
    assert apply.calls <= budget - 1
    assert_same(made, wanted)


def test_all_questions_together_cost_two_traces() -> None:
    apply = Counted()
    net = jn.read(apply, PARAMS, X)
    for function, _ in FUNCTIONS.values():
        function(net)
    assert apply.calls == 2


@pytest.mark.parametrize("function", [jn.input_means, jn.data_dependent_init, jn.propagation])
def test_a_reading_runs_at_other_values(function: Callable[..., Any]) -> None:
    apply = Counted()
    net = jn.read(apply, PARAMS, X)
    other = jax.tree.map(lambda p: p + 0.1, PARAMS)
    made = function(net, other, OTHER)
    assert_same(made, function(jn.read(Counted(), other, OTHER)))
    assert_same(function(net), function(jn.read(Counted(), PARAMS, X)))


def test_under_jit_a_reading_measures_the_values_of_the_step() -> None:
    apply = Counted()
    net = jn.read(apply, PARAMS, X)
    made = jax.jit(lambda params, x: jn.input_means(net, params, x))(PARAMS, OTHER)
    assert apply.calls == 1
    np.testing.assert_allclose(made["a"]["kernel"][:, 0], OTHER.mean(0), rtol=1e-6)


def test_readings_of_shapes_alone_have_layouts_roles_and_factors() -> None:
    shapes = jax.eval_shape(lambda: (PARAMS, X))
    net = jn.read(Counted(), *shapes)
    assert jn.describe_roles(net) == jn.describe_roles(Counted(), PARAMS, X)
    assert_same(jn.residual_factors(net), jn.residual_factors(jn.read(Counted(), PARAMS, X)))


def test_parameters_that_count_as_inputs_are_named_once() -> None:
    params = PARAMS | {"query": draw(7, 1, N)}
    apply = lambda p, x: Counted()(p, x + p["query"] @ p["a"]["kernel"])  # noqa: E731
    net = jn.read(apply, params, X, as_inputs=["query"])
    assert jn.traced_layout(net)(params)["query"] is None
    assert "query" not in jn.describe_roles(net)
    with pytest.raises(TypeError, match="as_inputs is the string"):
        jn.read(apply, params, X, as_inputs="query")


def test_a_noisy_model_of_a_reading_is_that_of_the_model() -> None:
    apply, key = Counted(), jax.random.key(0)
    net = jn.read(apply, PARAMS, X)
    for stddev in (0.1, 0.0):
        noisy = jn.with_scale_noise(net, stddev)(key, PARAMS, X)
        assert_same(noisy, jn.with_scale_noise(Counted(), stddev)(key, PARAMS, X))
    assert apply.calls == 2


def test_other_flags_types_and_numbers_of_rows_are_read_anew() -> None:
    def apply(params: Any, x: Any, doubled: bool) -> Any:
        return (2 if doubled else 1) * (x.astype(jnp.float32) @ params["a"]["kernel"])

    net, layout = jn.read(apply, PARAMS, X, True), jn.layout_from_rules([("a/kernel$", -2)])
    for x, flag in ((X, False), (X[:4], True), (jnp.ones((8, N), jnp.int32), True)):
        made = jn.collect_preactivations(net, PARAMS, x, flag, layout=layout)
        wanted = jn.collect_preactivations(jn.read(apply, PARAMS, x, flag), layout=layout)
        assert_same(made, wanted)


def test_parameters_of_other_shapes_or_paths_are_refused() -> None:
    net = jn.read(Counted(), PARAMS, X)
    wide = PARAMS | {"d": {"kernel": jnp.ones((N, 2)), "bias": jnp.ones(2)}}
    for other in (wide, {name: PARAMS[name] for name in "abc"}):
        with pytest.raises(ValueError, match=r"'d/.*Read the model anew"):
            jn.input_means(net, other, X)


def test_means_are_renewed_by_a_reading_at_the_parameters_of_now() -> None:
    net = jn.read(Counted(), PARAMS, X)
    raw, tx = jn.normalizer_free(net, optax.sgd(0.1))
    made = jn.refresh_input_means(net, tx.init(raw), raw, OTHER)
    assert_same(made, jn.refresh_input_means(jn.read(Counted(), raw, OTHER), tx.init(raw)))


def test_a_model_of_one_batch_size_is_traced_once_at_another() -> None:
    tries = []

    def apply(params: Any, x: Any) -> Any:
        tries.append(len(x))
        return Counted()(params, x.reshape(8, N))

    net = jn.read(apply, PARAMS, X)
    for _ in range(2):
        with pytest.raises(ValueError, match="no axis of which grows"):
            jn.propagation(net)
    assert sorted(tries) == [8, 16]


def test_flags_are_told_apart_by_their_positions() -> None:
    def apply(params, x, mask, shift):
        y = x @ params["w"]
        y = y if mask is None else y * mask
        return y if shift is None else y + shift

    params, x, ones = {"w": jnp.ones((2, 2))}, jnp.ones((3, 2)), jnp.full((3, 2), 2.0)
    net = jn.read(apply, params, x, ones, None)
    assert jn.collect_preactivations(net, params, x, ones, None)[0][0, 0] == 4
    assert jn.collect_preactivations(net, params, x, None, ones)[0][0, 0] == 4
    assert jn.collect_preactivations(net, params, x, None, 3 * ones)[0][0, 0] == 8


def test_a_parameter_that_is_a_python_number_has_its_value_of_now() -> None:
    params, x = {"w": jnp.ones((2, 2)), "scale": 0.5}, jnp.ones((3, 2))
    net = jn.read(lambda p, x: p["scale"] * (x @ p["w"]), params, x)
    assert net.result()[0, 0] == 1
    assert net.at({**params, "scale": 2.0}, (x,)).result()[0, 0] == 4


def test_an_expression_of_inputs_that_matches_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="'latent', which matches no parameter"):
        jn.read(Counted(), PARAMS, X, as_inputs=["latent"])


def test_a_model_sees_the_effective_kernels_of_nodes() -> None:
    raw = jn.reparametrize(PARAMS, jn.WeightNormalized, jn.flax_layout)
    net = jn.read(Counted(), raw, X)
    assert jax.tree.structure(net.plain) == jax.tree.structure(PARAMS)
    np.testing.assert_allclose(net.result(), Counted()(jn.effective(raw), X), rtol=1e-6)
    assert all(
        isinstance(x, jax.Array) for x in jax.tree.leaves(jn.read(Counted(), PARAMS, X).plain)
    )
