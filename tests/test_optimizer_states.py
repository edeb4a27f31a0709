"""Input means beside states of every optimizer: momenta, bad minibatches, and other trees."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxnorm import centered_inputs, read, refresh_input_means
from jaxnorm._centered_inputs import default_decay
from tests.draws import draw, normal
from tests.trees import assert_close, by_path, quick_jit

X = 1 + draw(0, 16, 6)
PARAMS = {
    "hidden": {"kernel": draw(1, 6, 8), "bias": draw(2, 8)},
    "head": {"kernel": draw(3, 8, 4), "bias": draw(4, 4)},
}
GRADIENTS = [jax.tree.map(lambda x, n=n: draw(10 + n + x.size, *x.shape), PARAMS) for n in range(2)]


def network(params: Any, x: Any) -> Any:
    for name, function in (("hidden", jax.nn.relu), ("head", lambda x: x)):
        x = function(x @ params[name]["kernel"] + params[name]["bias"][None])
    return x


@pytest.fixture(autouse=True)
def _promotion() -> Iterator[None]:
    """Optax's own counters want the standard rules."""
    with jax.numpy_dtype_promotion("standard"):
        yield


#: Fields with an average, or a sum, of gradients in the state of each optimizer.
MOMENTA: dict[str, tuple[Any, tuple[str, ...]]] = {
    "lion": (optax.lion(1e-3), ("mu",)),
    "adan": (optax.adan(1e-2), ("m", "v", "g")),
    "ademamix": (optax.contrib.ademamix(1e-2), ("m1", "m2")),
    "simplified ademamix": (optax.contrib.simplified_ademamix(1e-2), ("m",)),
    "prodigy": (optax.contrib.prodigy(), ("exp_avg", "grad_sum")),
    "dadapt": (optax.contrib.dadapt_adamw(), ("exp_avg", "grad_sum")),
    "madgrad": (optax.contrib.madgrad(1e-2), ("s",)),
    "cocob": (optax.contrib.cocob(), ("cumulative_gradients",)),
    "optimistic": (optax.optimistic_gradient_descent(1e-2), ("previous_gradient",)),
    "every second": (optax.chain(optax.apply_every(3), optax.sgd(1e-2)), ("grad_acc",)),
    "accumulated": (
        optax.MultiSteps(optax.adam(1e-2), 3).gradient_transformation(),
        ("mu", "acc_grads"),
    ),
    # Nothing is an average of gradients in the coordinates of the parameters.
    "novograd": (optax.novograd(1e-2), ()),
    "sm3": (optax.sm3(1e-2), ()),
    "galore": (optax.contrib.galore(1e-2, rank=3), ()),
    "adafactor": (optax.adafactor(1e-2, min_dim_size_to_factor=4, momentum=0.9), ()),
    "muon": (optax.contrib.muon(1e-2), ()),
}


@pytest.fixture(scope="module")
def refreshed() -> Any:
    """States of all optimizers, full of random numbers, before and after a refresh."""
    inner = optax.named_chain(*((name, optimizer) for name, (optimizer, _) in MOMENTA.items()))
    with jax.numpy_dtype_promotion("standard"):
        state = centered_inputs(read(network, PARAMS, X), inner).init(PARAMS)
        leaves, structure = jax.tree.flatten(state.inner_state)
        full = [filled(n, np.asarray(x)) for n, x in enumerate(leaves)]
        state = state._replace(inner_state=jax.tree.unflatten(structure, full))
        refresh = quick_jit(
            lambda s: refresh_input_means(read(network, PARAMS, 2 - 3 * X), s, decay=0.0)
        )
        return jax.device_get((state, refresh(state)))


def filled(seed: int, leaf: np.ndarray[Any, Any]) -> Any:
    return normal(seed, *leaf.shape).astype(leaf.dtype) if leaf.dtype.kind == "f" else leaf


@pytest.mark.parametrize("name", MOMENTA)
def test_a_refresh_carries_averages_of_gradients_and_nothing_else(
    name: str, refreshed: Any
) -> None:
    """m_W <- m_W - (C_new - C_old) m_b, in float64; every other leaf stays as it was."""
    states, fields = refreshed, MOMENTA[name][1]
    before, after = (by_path(state.inner_state[name]) for state in states)
    moved = 0
    for path, old in before.items():
        parent, _, leaf = path.rpartition("/")
        if leaf == "kernel" and set(path.split("/")) & set(fields):
            layer = parent.rpartition("/")[2]
            means = [np.float64(state.means[layer]["kernel"]) for state in states]
            expected = np.float64(old) - (means[1] - means[0]) * np.float64(
                before[f"{parent}/bias"]
            )
            np.testing.assert_allclose(after[path], expected, rtol=1e-4, atol=1e-4)
            moved += 1
        else:
            np.testing.assert_array_equal(after[path], old, err_msg=path)
    assert moved == 2 * len(fields)


@pytest.fixture(scope="module")
def started() -> Any:
    """State of SGD with momentum in centered inputs."""
    inner = optax.sgd(0.1, momentum=0.9)
    return centered_inputs(read(network, PARAMS, X), inner).init(PARAMS)


@pytest.fixture(scope="module")
def refresh(started: Any) -> Any:
    return quick_jit(lambda x: refresh_input_means(read(network, PARAMS, x), started))


BAD = {"NaN": np.nan, "infinite": np.inf, "minus infinite": -np.inf}


@pytest.mark.parametrize("name", BAD)
def test_means_that_are_not_finite_leave_the_state_as_it_was(
    name: str, started: Any, refresh: Any
) -> None:
    """A row that ``apply_if_finite`` skips would make every later update NaN."""
    bad = jax.device_get(refresh(X.at[3, 0].set(BAD[name])))
    good, old = jax.device_get((refresh(X), started))
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(bad))

    kernels = [state.means["hidden"]["kernel"] for state in (bad, good, old)]
    np.testing.assert_array_equal(kernels[0][1:], kernels[1][1:])
    np.testing.assert_array_equal(kernels[0][0], kernels[2][0])


@pytest.fixture(scope="module")
def wrapped() -> optax.GradientTransformationExtraArgs:
    """SGD in centered inputs."""
    return centered_inputs(read(network, PARAMS, X), optax.sgd(0.1))


def test_a_first_minibatch_that_is_not_finite_is_refused() -> None:
    bad = read(network, PARAMS, X.at[3, 2].set(np.nan))
    wanted = r"centered_inputs .*infinite or NaN.*hidden/kernel.*NaN in the"
    with pytest.raises(ValueError, match=wanted):
        centered_inputs(bad, optax.sgd(0.1))


OTHER_TREES = {
    "variables": {"params": PARAMS},
    "copies": optax.LookaheadParams(PARAMS, PARAMS),
    "a part": PARAMS["hidden"],
    "a list": list(PARAMS.values()),
}


@pytest.mark.parametrize("tree", OTHER_TREES)
def test_a_tree_with_the_kernels_at_other_paths_is_refused(tree: str, wrapped: Any) -> None:
    """It would be trained as if nothing had been wrapped."""
    wanted = r"init of centered_inputs .*hidden/kernel.*optax\.lookahead\(tx"
    with pytest.raises(ValueError, match=wanted):
        wrapped.init(OTHER_TREES[tree])
    with pytest.raises(ValueError, match=r"update of centered_inputs .*hidden/kernel"):
        wrapped.update(OTHER_TREES[tree], wrapped.init(PARAMS), OTHER_TREES[tree])


MASKED: dict[str, Any] = {
    "a layer": {"hidden": optax.MaskedNode(), "head": PARAMS["head"]},
    "a kernel": {"hidden": PARAMS["hidden"] | {"kernel": None}, "head": PARAMS["head"]},
    "a bias": {"hidden": PARAMS["hidden"] | {"bias": optax.MaskedNode()}, "head": PARAMS["head"]},
    "everything": optax.MaskedNode(),
}


@pytest.mark.parametrize("tree", MASKED)
def test_masks_and_absent_leaves_are_taken(tree: str, wrapped: Any) -> None:
    """A kernel is wrapped with its bias, or not at all."""
    state = jax.eval_shape(wrapped.init, MASKED[tree])
    assert len(jax.tree.leaves(state.means)) == (tree != "everything")


def test_a_state_can_be_donated_and_made_again(wrapped: Any) -> None:
    """A state that shares arrays with the optimizer would take them away with it."""
    states = [wrapped.init(PARAMS) for _ in range(2)]
    one, other = ({id(x) for x in jax.tree.leaves(state)} for state in states)
    assert one
    assert not one & other


def test_lookahead_goes_around_the_optimizer(wrapped: Any) -> None:
    pair = optax.LookaheadParams.init_synced(PARAMS)
    around = optax.lookahead(wrapped, sync_period=2, slow_step_size=0.5)
    updates, _ = around.update(GRADIENTS[0], around.init(pair), pair)
    expected, _ = wrapped.update(GRADIENTS[0], wrapped.init(PARAMS), PARAMS)
    assert_close(updates.fast, expected)


def test_functions_of_the_parameters_are_refused(wrapped: Any) -> None:
    """A line search would call the loss with parameters in the coordinates of the optimizer."""
    extra = {"value": 1.0, "grad": PARAMS, "value_fn": lambda params: jnp.zeros(())}
    message = r"value_fn.*inside centered_inputs.*Line searches.*centered=False"
    with pytest.raises(ValueError, match=message):
        wrapped.update(PARAMS, wrapped.init(PARAMS), PARAMS, **extra)


#: Further inputs that have no rows of the minibatch along their first axis.
OTHER_INPUTS = {
    "none": (),
    "a key of two words": (np.zeros(2, np.uint32),),
    "edges": (np.zeros((2, 90), np.int32),),
    "a condition": (np.ones(3, np.float32),),
    "a number": (0.5,),
}


@pytest.mark.parametrize("name", OTHER_INPUTS)
def test_the_default_decay_counts_the_rows_of_the_first_input(name: str) -> None:
    """The average is as fast whatever the model gets beside its minibatch."""
    inputs = (np.zeros((64, 6), np.float32), *OTHER_INPUTS[name])
    assert default_decay(inputs, None) == 0.9
    assert default_decay((inputs[0][:32], *inputs[1:]), None) == 1 - 32 / 640
