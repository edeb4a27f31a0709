"""A network in training beside its start: the rate is blamed, and no remedy that is in force."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxnorm as jn
from tests.draws import draw

X = draw(0, 64, 16)
LABELS = jnp.argmax(X[:, :4], axis=1)


def apply(params: Any, x: jax.Array) -> jax.Array:
    for layer in params[:-1]:
        x = jax.nn.relu(x @ layer["kernel"] + layer["bias"][None])
    return x @ params[-1]["kernel"] + params[-1]["bias"][None]


def cross_entropy(logits: jax.Array) -> jax.Array:
    return optax.softmax_cross_entropy_with_integer_labels(logits, LABELS).mean()


def params(layers: int = 5, size: float = 0.35) -> Any:
    return [{"kernel": size * draw(i + 1, 16, 16), "bias": jnp.zeros(16)} for i in range(layers)]


def trained(rate: float, updates: int = 40) -> tuple[Any, Any, Any]:
    """Returns the parameters at the start and after some updates, and the optimizer."""
    with jax.numpy_dtype_promotion("standard"):
        start, tx = jn.normalizer_free(apply, params(), optax.sgd(rate), X)
        raw, opt_state = start, tx.init(start)

        @jax.jit
        def step(raw: Any, opt_state: Any) -> Any:
            gradient = jax.grad(lambda raw: cross_entropy(apply(raw, X)))(raw)
            updates, opt_state = tx.update(gradient, opt_state, raw)
            return optax.apply_updates(raw, updates), opt_state

        for _ in range(updates):
            raw, opt_state = step(raw, opt_state)
    return start, raw, tx


def test_a_rate_that_kills_units_is_blamed_and_one_that_does_not_is_not() -> None:
    start, raw, tx = trained(0.05)
    assert cross_entropy(apply(raw, X)) < 0.8 * cross_entropy(apply(start, X))
    text = jn.describe_propagation(apply, raw, X, start=start, applied=tx.applied)
    assert text.endswith("Nothing is off.")
    start, raw, tx = trained(5.0)
    text = jn.describe_propagation(apply, raw, X, start=start, applied=tx.applied)
    assert "Off: " in text
    assert text.endswith("a smaller learning rate, a third of it.")
    assert "_init" not in text


def test_the_optimizer_names_what_is_in_force() -> None:
    with jax.numpy_dtype_promotion("standard"):
        _, tx = jn.normalizer_free(apply, params(), optax.sgd(0.1), X)
        _, less = jn.normalizer_free(apply, params(), optax.sgd(0.1), X, fitted=False)
    assert tx.applied == ("data_dependent_init", "residual_factors", "zero_sum_projection")
    assert less.applied == ()
    assert isinstance(tx, optax.GradientTransformationExtraArgs)


def test_remedies_in_force_are_not_named() -> None:
    """The fit of units includes a start that preserves variances."""
    faint = params(size=0.05)
    (finding,) = jn.propagation_findings(jn.read(apply, faint, X))
    assert finding.remedies == ("variance_preserving_init",)
    for applied in ("variance_preserving_init", "data_dependent_init"):
        (finding,) = jn.propagation_findings(jn.read(apply, faint, X), applied=[applied])
        assert finding.remedies == ()
        assert str(finding).endswith("times per layer")
    with pytest.raises(TypeError, match=r"wanted names, such as \['data_dependent_init'\]"):
        jn.propagation_findings(jn.read(apply, faint, X), applied="data_dependent_init")


def test_what_the_start_had_is_no_fault_of_the_rate() -> None:
    (finding,) = jn.propagation_findings(
        jn.read(apply, params(size=0.05), X), start=params(size=0.05)
    )
    assert finding.kind == "size"
    assert jn.propagation_findings(jn.read(apply, params(size=0.05), X), start=params()) == []


START = {
    **{"0/variance": 1.0, "0/squared_mean": 0.0, "0/cosine": 0.0, "0/dormant": 0.2},
    **{"0/effective_rank": 30.0, "0/kurtosis": 3.0},
}
START |= {f"1/{name[2:]}": value for name, value in START.items()}


@pytest.mark.parametrize(
    ("statistic", "within", "beyond", "words"),
    [
        ("variance", 9e7, 1.1e8, "size 1 -> 1.05e+04"),
        ("squared_mean", 9e7, 1.1e8, "size 1 -> 1.05e+04"),
        ("dormant", 0.75, 0.77, "dormant 0.2 -> 0.77"),
        ("effective_rank", 0.65, 0.55, "effective rank 30 -> 0.55"),
        ("kurtosis", 89.0, 91.0, "kurtosis 3 -> 91"),
    ],
)
def test_limits(statistic: str, within: float, beyond: float, words: str) -> None:
    assert jn.rate_findings(START | {f"0/{statistic}": within}, START) == []
    (finding,) = jn.rate_findings(START | {f"0/{statistic}": beyond}, START)
    assert (finding.kind, finding.layer) == ("rate", "0")
    assert words in str(finding)
    assert jn.rate_findings(START | {f"1/{statistic}": beyond}, START) == []  # the last layer


def test_numbers_that_are_not_finite_and_other_layers() -> None:
    (finding,) = jn.rate_findings(START | {"1/variance": np.nan}, START)
    assert str(finding) == "1 is not finite: a smaller learning rate, a third of it"
    with pytest.raises(ValueError, match=r"the layers are \['0'\], and at the start \['0', '1'\]"):
        jn.rate_findings({k: v for k, v in START.items() if k[0] == "0"}, START)
