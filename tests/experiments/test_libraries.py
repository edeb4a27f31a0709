"""Networks of Linen, Haiku and Equinox: --model FILE.py:NAME."""

import contextlib
import subprocess
import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from experiments.cli import main
from experiments.config import Config
from experiments.errors import UserError
from experiments.methods.table import METHODS
from experiments.models.from_file import load_maker, network_from_file
from experiments.runs.comparison import Comparison
from experiments.training.trainer import make_trainer
from jaxnorm.nnx import functionalize
from tests.draws import float32

#: Haiku promotes types by itself.
from tests.experiments.toy import rows_of, save_toy, toy_dataset

pytestmark = pytest.mark.usefixtures("standard_promotion")

FILE = Path(__file__).parent / "networks_of_libraries.py"
X = float32(np.random.default_rng(0).normal(size=(5, 6)))


def made(name: str, batch_norm: bool = False) -> nnx.Module:
    return network_from_file(f"{FILE}:{name}", (6,), 3, nnx.Rngs(0), "bn" if batch_norm else None)


def own_logits(name: str, rngs: nnx.Rngs, train: bool, **flag: bool) -> jax.Array:
    """Returns the logits of the library's own functions, from the key that the product draws."""
    network = load_maker(f"{FILE}:{name}")(rngs, (6,), 3, **flag)
    zeros = jnp.zeros((2, 6))
    if name.startswith("equinox"):
        return jax.vmap(network)(X)
    key = rngs.params()
    if name.startswith("linen"):
        variables = network.init(key, zeros, train=True)
        out = network.apply(variables, X, train=train, mutable=["batch_stats"])
        return out[0]
    if name == "haiku":
        return network.apply(network.init(key, zeros), None, X)
    params, state = network.init(key, zeros, is_training=True)
    return network.apply(params, state, None, X, is_training=train)[0]


@pytest.mark.kept("linen-flag0")
@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize(
    ("name", "flag"),
    [
        ("linen", {"batch_norm": False}),
        ("linen", {"batch_norm": True}),
        ("haiku", {}),
        ("haiku_with_flag", {"batch_norm": False}),
        ("haiku_with_flag", {"batch_norm": True}),
        ("equinox", {}),
    ],
)
def test_logits_are_those_of_the_library(name: str, flag: dict[str, bool], train: bool) -> None:
    apply, params, state = functionalize(made(name, **flag))
    got, after = apply(params, state, X, train=train)
    expected = own_logits(name, nnx.Rngs(0), train, **flag)
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6)
    moved = [
        not np.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, (state, after)), strict=True)
    ]
    assert any(moved) == (train and flag.get("batch_norm", False))


@pytest.mark.parametrize("name", ["linen", "haiku", "haiku_with_flag", "equinox"])
def test_methods_act_on_its_kernels(name: str) -> None:
    """Units of zero sum, whose fan-in the program tells: Equinox has it last. The head is free."""
    trainer = make_trainer(METHODS["lcw"], Config(model=f"{FILE}:{name}", epochs=1), toy_dataset())
    params = trainer.context.functional.params
    axes = jax.tree.leaves(trainer.layout(params), is_leaf=lambda x: isinstance(x, tuple))
    assert axes == ([(-1,)] if name == "equinox" else [(-2,)])
    with_head = jax.tree.leaves(trainer.context.kernels(params), is_leaf=_is_axes)
    assert len(with_head) == 2


def _is_axes(x: object) -> bool:
    return isinstance(x, tuple)


@pytest.mark.parametrize("name", ["linen", "haiku_with_flag"])
def test_the_flag_decides_on_batch_normalization(name: str) -> None:
    for method, statistics in (("bn", True), ("bn+lcw", True), ("none", False), ("lcw", False)):
        config = Config(model=f"{FILE}:{name}", epochs=1)
        state = make_trainer(METHODS[method], config, toy_dataset()).context.functional.state
        assert bool(jax.tree.leaves(state)) == statistics, method


@pytest.mark.slow
@pytest.mark.parametrize("name", ["linen", "haiku", "equinox"])
def test_compare_trains_it(name: str, tmp_path: Path) -> None:
    flags = {"--model": f"{FILE}:{name}", "--dataset": save_toy(tmp_path), "--methods": "cwo"}
    flags |= {"--seeds": "1", "--epochs": "8", "--batch-size": "16", "--out": str(tmp_path)}
    assert main(["compare", "--quiet", *(word for pair in flags.items() for word in pair)]) == 0
    (row,) = rows_of(tmp_path / "results.csv")
    assert float(row["test_accuracy"]) > 0.6


@pytest.mark.parametrize(
    ("name", "same"),
    [("haiku_without_rng", "haiku"), ("haiku_with_state_without_rng", "haiku_with_flag")],
)
@pytest.mark.parametrize("train", [True, False])
def test_haiku_without_a_key_in_its_calls_is_the_same_network(
    name: str, same: str, train: bool
) -> None:
    one, other = (made(each, batch_norm=same == "haiku_with_flag") for each in (name, same))
    np.testing.assert_array_equal(one(X, train=train), other(X, train=train))


def test_rows_of_haiku_that_meet_in_evaluation_are_found_beside_statistics(tmp_path: Path) -> None:
    """Its running variances are of rank 2, and positive as those of any other library."""
    wanted = {"haiku_with_flag": False, "haiku_of_all_rows": True}
    for name, meet in wanted.items():
        config = Config(model=f"{FILE}:{name}", dataset=save_toy(tmp_path), batch_size=16)
        refused = pytest.raises(UserError, match="other logits beside another row")
        with refused if meet else contextlib.nullcontext():
            Comparison(config).specs([("bn", (), 0)])


def test_a_network_of_pixels_may_have_its_channels_first() -> None:
    network = network_from_file(f"{FILE}:pixels", (6, 5, 2), 3, nnx.Rngs(0), None, (6, 5))
    x = float32(np.random.default_rng(0).normal(size=(2, 6, 5, 2)))
    own = load_maker(f"{FILE}:pixels")(nnx.Rngs(0), (6, 5, 2), 3)
    first = jax.vmap(own.conv)(x.transpose(0, 3, 1, 2))
    expected = jax.vmap(own.last)(jax.nn.relu(first)).transpose(0, 2, 3, 1)
    np.testing.assert_allclose(network(x, train=True), expected, rtol=1e-5, atol=1e-6)
    assert isinstance(own, eqx.Module)


WRONG = {
    "linen_with_statistics": ("keeps statistics", "batch_norm"),
    "linen_with_dropout": ("dropout", "flax.nnx"),
    "haiku_with_draws": ("PRNGKey", "without dropout"),
    "equinox_with_statistics": ("BatchNorm", "leave BatchNorm out"),
    "equinox_with_state": ("BatchNorm", "leave BatchNorm out"),
    "equinox_with_dropout": ("Dropout requires a key", "without dropout"),
    "equinox_of_all_rows": ("called on one row", "jax.vmap is added"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_it_cannot_take_is_named_with_the_way_out(name: str) -> None:
    with pytest.raises(UserError) as raised:
        made(name)
    message = str(raised.value)
    assert [part for part in (name, *WRONG[name]) if part not in message] == []
    assert "\n" not in message


@pytest.mark.parametrize("name", ["haiku", "equinox"])
def test_bn_of_a_network_without_it_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="no BatchNorm layer"):
        made(name, batch_norm=True)


def test_group_normalization_of_another_library_is_the_users() -> None:
    with pytest.raises(UserError, match="gn can take the place"):
        network_from_file(f"{FILE}:linen", (6,), 3, nnx.Rngs(0), "gn")


@pytest.mark.slow
def test_other_libraries_are_imported_by_the_file_alone() -> None:
    code = (
        "import sys, experiments.cli, experiments.models.from_file; "
        "print({'haiku', 'equinox'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_the_network_of_the_page(tmp_path: Path) -> None:
    page = (FILE.parents[2] / "experiments/README.md").read_text()
    (code,) = [each for each in page.split("```python\n")[1:] if each.startswith("import haiku")]
    (tmp_path / "network.py").write_text(code.partition("```")[0])
    for norm in (None, "bn"):
        model = f"{tmp_path / 'network.py'}:network"
        network = network_from_file(model, (8, 8, 1), 3, nnx.Rngs(0), norm)
        assert network.has_statistics == (norm == "bn")
