"""Arguments and parts that other people's models have."""

import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxnorm.nnx import Identity, ScaleAndBias, fold_batch_norm, functionalize, replace_batch_norm


class Branching(nnx.Module):
    """A model that takes ``train`` itself, as Linen's did."""

    def __init__(self) -> None:
        rngs = nnx.Rngs(0)
        self.dense = nnx.Linear(3, 3, rngs=rngs)
        self.norm = nnx.BatchNorm(3, use_scale=False, rngs=rngs)

    def __call__(self, x, train):
        x = self.norm(self.dense(x))
        return x + 1.0 if train else x


def test_a_train_argument_is_passed_on() -> None:
    apply, params, state = functionalize(Branching())
    x = jnp.ones((2, 3))
    training, _ = apply(params, state, x, train=True)
    plain = Branching()
    plain.train()
    assert bool((training == plain(x, True)).all())


class ReadTwice(Branching):
    """In one of the modes something else reads the layer's output too."""

    def __init__(self, in_training: bool) -> None:
        super().__init__()
        self.in_training = in_training

    def __call__(self, x, train):
        y = self.dense(x)
        return self.norm(y) + y if train is self.in_training else self.norm(y)


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("by_name", [True, False])
def test_models_are_read_in_each_mode_whatever_a_flag_says(train: bool, by_name: bool) -> None:
    x = jnp.ones((2, 3))
    args, keywords = ((x,), {"train": train}) if by_name else ((x, train), {})
    assert fold_batch_norm(Branching(), *args, **keywords).remaining == []
    assert isinstance(replace_batch_norm(Branching(), *args, **keywords).norm, Identity)
    for in_training in (True, False):
        model = ReadTwice(in_training)
        assert (fold_batch_norm(model, *args, **keywords).remaining == []) is in_training
        assert isinstance(replace_batch_norm(model, *args, **keywords).norm, ScaleAndBias)


def test_a_norm_without_a_scale_gets_none() -> None:
    layer = replace_batch_norm(Branching()).norm
    assert isinstance(layer, ScaleAndBias)
    assert layer.channel_scale is None
    assert list(nnx.to_pure_dict(nnx.state(layer))) == ["bias"]
    assert layer(jnp.ones((2, 3))).tolist() == [[1.0] * 3] * 2


class Flagged(nnx.Module):
    """What every library calls its own way; the flag has no default, and a name only."""

    def __init__(self) -> None:
        rngs = nnx.Rngs(0)
        self.dense = nnx.Linear(3, 3, rngs=rngs)
        self.norm = nnx.BatchNorm(3, rngs=rngs)

    def run(self, x, train):
        return self.norm(self.dense(x), use_running_average=not train) + (1.0 if train else 0.0)


class Train(Flagged):
    def __call__(self, x, *, train):
        return self.run(x, train)


class Training(Flagged):
    def __call__(self, x, *, training):
        return self.run(x, training)


class IsTraining(Flagged):
    def __call__(self, x, *, is_training=False):
        return self.run(x, is_training)


class Deterministic(Flagged):
    def __call__(self, x, deterministic):
        return self.run(x, not deterministic)


@pytest.mark.parametrize("kind", [Train, Training, IsTraining, Deterministic])
def test_every_name_of_the_flag(kind: Any) -> None:
    apply, params, state = functionalize(kind())
    x = jnp.arange(6.0).reshape(2, 3)
    for train in (True, False):
        output, _ = apply(params, state, x, train=train)
        np.testing.assert_array_equal(output, kind().run(x, train))
    flag = list(inspect.signature(kind.__call__).parameters)[-1]
    if flag != "train":  # what the caller says by the model's own name goes first
        said, _ = apply(params, state, x, train=True, **{flag: flag == "deterministic"})
        np.testing.assert_array_equal(said, kind().run(x, False))


@pytest.mark.parametrize("kind", [Train, Training, IsTraining, Deterministic])
def test_replacing_and_folding_need_no_flag_and_take_names(kind: Any) -> None:
    x = jnp.arange(6.0).reshape(2, 3)
    assert fold_batch_norm(kind(), x).remaining == []
    assert fold_batch_norm(kind(), x=x).remaining == []
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    for inputs, keywords in (((x,), {}), ((), {"x": x}), ((), {"x": shape})):
        assert isinstance(replace_batch_norm(kind(), *inputs, **keywords).norm, Identity)
    last = list(inspect.signature(kind.__call__).parameters)[-1]
    assert fold_batch_norm(kind(), x, **{last: True}).remaining == []
