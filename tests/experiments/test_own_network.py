"""Networks of the user's own: --model FILE.py:NAME."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import jaxnorm
from experiments.cli import main
from experiments.config import Config
from experiments.errors import UserError
from experiments.methods.table import METHODS
from experiments.models.from_file import group_norm_like
from experiments.models.group_norm import EPSILON, GroupNorm
from experiments.training.programs import program_digests
from experiments.training.trainer import Trainer, make_trainer
from tests.experiments.toy import rows_of, save_toy, toy_dataset

FILE = Path(__file__).parent / "own_network.py"


def trainer_of(method: str, name: str = "Residual") -> Trainer:
    config = Config(model=f"{FILE}:{name}", epochs=1, batch_size=16)
    return make_trainer(METHODS[method], config, toy_dataset())


@pytest.mark.parametrize(("method", "layers"), [("bn", 2), ("bn+lcw", 2), ("none", 0), ("wn", 0)])
def test_only_bn_keeps_the_batch_normalization(method: str, layers: int) -> None:
    model = trainer_of(method).context.model
    found = [layer for _, layer in nnx.iter_modules(model) if isinstance(layer, nnx.BatchNorm)]
    assert len(found) == layers


@pytest.mark.parametrize("method", ["gn", "ws+gn"])
def test_gn_puts_group_normalization_in_the_place_of_batch_normalization(method: str) -> None:
    model = trainer_of(method, "Wide").context.model
    layers = [layer for _, layer in nnx.iter_modules(model)]
    assert not any(isinstance(layer, nnx.BatchNorm) for layer in layers)
    found = [layer.groups(positions=1) for layer in layers if isinstance(layer, GroupNorm)]
    assert found == [2, 2]  # of 32 units, 16 in each


def test_a_group_norm_starts_with_the_scale_of_the_batch_norm() -> None:
    """Some networks begin with branches of scale zero."""
    zeros = nnx.initializers.zeros
    layer = nnx.BatchNorm(8, scale_init=zeros, rngs=nnx.Rngs(0))
    norm = group_norm_like(layer, nnx.Rngs(0))
    np.testing.assert_array_equal(norm(jnp.arange(32.0).reshape(2, 2, 8)), 0)
    x = np.random.default_rng(0).normal(size=(3, 8, 8))
    norm = group_norm_like(nnx.BatchNorm(8, rngs=nnx.Rngs(0)), nnx.Rngs(0))
    parts = x.reshape(3, 8, 4, 2)
    centred = parts - parts.mean((1, 3), keepdims=True)
    expected = centred / np.sqrt((centred**2).mean((1, 3), keepdims=True) + EPSILON)
    got = norm(jnp.asarray(x, jnp.float32))
    np.testing.assert_allclose(got, expected.reshape(x.shape), rtol=1e-4, atol=1e-5)


def test_the_classifier_is_free_whatever_its_name() -> None:
    context = trainer_of("lcw").context
    axes = context.layout(context.functional.params)
    assert axes["answer"]["kernel"] is None
    assert [axes["stem"]["kernel"], axes["blocks"][0]["linear"]["kernel"]] == [(-2,), (-2,)]


@pytest.mark.kept("cwo-centre-sphere")
@pytest.mark.parametrize(
    ("method", "factor"),
    [
        ("none", 1.0),
        ("cwo-centre-sphere", 0.5**0.5),
        pytest.param("lcw", 0.5**0.5, marks=pytest.mark.slow),  # the same on coordinates
    ],
)
def test_methods_on_weights_start_both_branches_quietly(method: str, factor: float) -> None:
    trainer, X = trainer_of(method), jnp.asarray(toy_dataset().X_train)
    functional = jaxnorm.nnx.functionalize(trainer.network(jax.random.key(0)))
    context = trainer.context._replace(functional=functional)
    quiet, loud = (
        jaxnorm.effective(each.parameters(functional.params, context, X))
        for each in (trainer.method, METHODS[method])
    )
    for block in (0, 1):
        kernels = (tree["blocks"][block]["linear"]["kernel"] for tree in (quiet, loud))
        np.testing.assert_allclose(next(kernels), factor * next(kernels), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(quiet["stem"]["kernel"], loud["stem"]["kernel"], rtol=1e-5)


def test_what_the_call_refuses_is_an_error_of_one_line_before_the_training() -> None:
    trainer = trainer_of("moving-average", "starting_at_zero")
    with pytest.raises(UserError, match=r"moving-average does not fit .*stem/kernel"):
        program_digests(trainer, toy_dataset())


@pytest.mark.slow
def test_compare_trains_it(tmp_path: Path) -> None:
    flags = {"--model": f"{FILE}:Residual", "--dataset": save_toy(tmp_path), "--methods": "lcw"}
    flags |= {"--seeds": "1", "--epochs": "8", "--batch-size": "16", "--out": str(tmp_path)}
    assert main(["compare", "--quiet", *(word for pair in flags.items() for word in pair)]) == 0
    (row,) = rows_of(tmp_path / "results.csv")
    assert float(row["test_accuracy"]) > 0.8
