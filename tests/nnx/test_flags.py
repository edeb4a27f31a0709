"""Arguments and parts that other people's models have."""

import jax.numpy as jnp
from flax import nnx

from jaxnorm.nnx import ScaleAndBias, fold_batch_norm, functionalize, replace_batch_norm


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


def test_flags_reach_the_model_as_they_are() -> None:
    x = jnp.ones((2, 3))
    assert fold_batch_norm(Branching(), x, False).remaining == []
    replaced = replace_batch_norm(Branching(), x, True)
    assert not isinstance(replaced.norm, ScaleAndBias)


def test_a_norm_without_a_scale_gets_none() -> None:
    layer = replace_batch_norm(Branching()).norm
    assert isinstance(layer, ScaleAndBias)
    assert layer.channel_scale is None
    assert list(nnx.to_pure_dict(nnx.state(layer))) == ["bias"]
    assert layer(jnp.ones((2, 3))).tolist() == [[1.0] * 3] * 2
