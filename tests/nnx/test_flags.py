"""The argument that tells a model whether it trains, under each of its names."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxnorm.nnx import Identity, ScaleAndBias, fold_batch_norm, functionalize, replace_batch_norm

X = jnp.arange(6.0).reshape(2, 3)


class Flagged(nnx.Module):
    """Normalizes, and adds 1 in training; in mode ``read_again`` reads the layer's output twice."""

    def __init__(self, read_again: bool | None = None) -> None:
        rngs = nnx.Rngs(0)
        self.dense, self.norm = nnx.Linear(3, 3, rngs=rngs), nnx.BatchNorm(3, rngs=rngs)
        self.read_again = read_again

    def run(self, x: Any, train: bool) -> Any:
        y = self.dense(x)
        again = y if train is self.read_again else 0.0
        return self.norm(y, use_running_average=not train) + again + (1.0 if train else 0.0)


class Train(Flagged):
    def __call__(self, x: Any, train: bool) -> Any:
        return self.run(x, train)


class Training(Flagged):
    def __call__(self, x: Any, *, training: bool) -> Any:
        return self.run(x, training)


class IsTraining(Flagged):
    def __call__(self, x: Any, *, is_training: bool = False) -> Any:
        return self.run(x, is_training)


class Deterministic(Flagged):
    def __call__(self, x: Any, deterministic: bool) -> Any:
        return self.run(x, not deterministic)


KINDS = {
    Train: "train",
    Training: "training",
    IsTraining: "is_training",
    Deterministic: "deterministic",
}
EACH = pytest.mark.parametrize("kind", KINDS)


@EACH
def test_functionalized_models_get_it(kind: Any) -> None:
    apply, params, state = functionalize(kind())
    for train in (True, False):
        output, _ = apply(params, state, X, train=train)
        np.testing.assert_array_equal(output, kind().run(X, train))
    if kind is not Train:  # the caller's own value goes first
        output, _ = apply(params, state, X, train=True, **{KINDS[kind]: kind is Deterministic})
        np.testing.assert_array_equal(output, kind().run(X, False))


@pytest.mark.kept("IsTraining")
@EACH
def test_models_are_traced_in_each_mode_whatever_its_value(kind: Any) -> None:
    """It may be left out; inputs come by position or by name, and shapes are enough."""
    shape = jax.ShapeDtypeStruct(X.shape, X.dtype)
    calls = [((X,), {}), ((), {"x": X}), ((), {"x": shape})]
    calls += [((X,), {KINDS[kind]: value}) for value in (True, False)]
    if kind in (Train, Deterministic):
        calls += [((X, value), {}) for value in (True, False)]
    for args, keywords in calls:
        assert fold_batch_norm(kind(), *args, **keywords).remaining == []
        assert isinstance(replace_batch_norm(kind(), *args, **keywords).norm, Identity)
        for in_training in (True, False):
            model = kind(read_again=in_training)
            assert (fold_batch_norm(model, *args, **keywords).remaining == []) is in_training
            assert isinstance(replace_batch_norm(model, *args, **keywords).norm, ScaleAndBias)
