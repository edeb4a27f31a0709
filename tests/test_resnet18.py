"""`examples/resnet18.py`, shortened: all of its options at once, on eight devices."""

import importlib.util
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from flax import nnx
from PIL import Image

import jaxnorm as jn

SCRIPT = Path(__file__).parents[1] / "examples" / "resnet18.py"
_spec = importlib.util.spec_from_file_location("resnet18", SCRIPT)
assert _spec is not None
assert _spec.loader is not None
script: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(script)

DECAY, ACCUMULATE, UPDATES = 0.75, 2, 3
ALL = (
    *("--smoke", "--blocks", "1", "--width", "2", "--bfloat16", "--batch", "32"),
    *("--accumulate", f"{ACCUMULATE}", "--updates", f"{UPDATES}", "--evaluate-every", "1"),
    *("--average", f"{DECAY}", "--test-rows", "40", "--shift", "2", "--rate", "0.3"),
)
NETWORKS = {
    "bn": ("--norm", "bn"),
    "replaced": ("--norm", "replaced"),
    "sphere": ("--norm", "replaced", "--constraint", "sphere", "--blocks", "1", "1"),
}

pytestmark = pytest.mark.usefixtures("standard_promotion")


class Trained(NamedTuple):
    """A training, the parameters after each of its steps, and the exported weights."""

    job: Any
    run: Any
    history: np.ndarray
    steps: list[Any]
    change: float
    weights: dict[str, np.ndarray]


@pytest.fixture(
    scope="module",
    params=[pytest.param(n, marks=() if n == "replaced" else pytest.mark.slow) for n in NETWORKS],
)
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    out = tmp_path_factory.mktemp(request.param)
    with jax.numpy_dtype_promotion("standard"):
        job = script.prepare(script.parse([*ALL, *NETWORKS[request.param], "--out", str(out)]))
        steps = []

        def recorded(run: Any, *rest: Any) -> Any:
            after = job.step(run, *rest)
            steps.append(jax.device_get((after[0]["raw"], after[0]["state"])))
            return after

        run, history = script.train(job._replace(step=recorded), out)
        change = script.export(job, run, out / "weights.npz")
    with np.load(out / "weights.npz") as file:
        weights = {key: file[key] for key in file.files}
    return Trained(job, run, history, steps, change, weights)


def leaves(tree: Any) -> list[np.ndarray]:
    return [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(tree)]


@pytest.mark.slow
def test_a_run_that_is_interrupted_goes_on_bit_for_bit(trained: Trained, tmp_path: Path) -> None:
    calls = 0

    def killed(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > 2 * ACCUMULATE + 1:  # within the third update
            raise KeyboardInterrupt
        return trained.job.step(*arguments)

    with pytest.raises(KeyboardInterrupt):
        script.train(trained.job._replace(step=killed), tmp_path)
    run, history = script.train(trained.job, tmp_path)
    np.testing.assert_array_equal(history, trained.history)
    assert jax.tree.structure(run) == jax.tree.structure(trained.run)
    for resumed, expected in zip(jax.tree.leaves(run), jax.tree.leaves(trained.run), strict=True):
        np.testing.assert_array_equal(resumed, expected)


@pytest.mark.slow
def test_parameters_move_with_each_update_and_not_with_each_microbatch(trained: Trained) -> None:
    kernels = [raw["stem"]["kernel"] for raw, _ in trained.steps]
    flat = [np.concatenate([leaf.ravel() for leaf in leaves(kernel)]) for kernel in kernels]
    moved = [np.any(before != after) for before, after in itertools.pairwise(flat)]
    assert moved == [update for _ in range(UPDATES) for update in (True, False)][: len(moved)]
    assert trained.history[:, 2].min() > 0  # the relative updates are those of updates


@pytest.mark.slow
def test_the_average_is_that_of_the_parameters_after_each_update(trained: Trained) -> None:
    after_updates = [leaves(raw) for raw, _ in trained.steps[ACCUMULATE - 1 :: ACCUMULATE]]
    weights = DECAY ** np.arange(UPDATES - 1, -1, -1)
    for found, *values in zip(leaves(trained.run["average"]), *after_updates, strict=True):
        expected = np.average(values, axis=0, weights=weights)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_the_state_that_is_scored_fits_the_parameters(trained: Trained) -> None:
    job, average = trained.job, script.averaged(trained.job, trained.run)
    scored = script.settled(job, average)
    if job.options.norm != "bn":
        assert jax.tree.leaves(scored) == []
        return
    # Batches of 16 rows are small: those of the first 384 rows compete with all of these at once.
    kernel = np.asarray(average["stem"]["kernel"], np.float64)
    x = np.asarray(script.standardized(job.training.x[:384], job.statistics), np.float64)
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    units = np.einsum("nhwcij,ijco->nhwo", windows, kernel)
    of_batches = units.reshape(-1, 16, *units.shape[1:]).var((1, 2, 3)).mean(0)
    found = np.asarray(scored["bn"]["var"])
    candidates = (units.var((0, 1, 2)), of_batches)
    assert any(np.allclose(found, var, rtol=1e-5) for var in candidates)
    np.testing.assert_allclose(scored["bn"]["mean"], units.mean((0, 1, 2)), rtol=1e-4, atol=1e-6)


def test_the_momentum_of_batch_normalization_changes_no_score(
    trained: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, raw = trained.job, trained.run["raw"]
    layers = [m for _, m in nnx.iter_modules(job.network.model) if isinstance(m, nnx.BatchNorm)]
    assert (layers != []) == (job.options.norm == "bn")
    estimate = job.estimate.__wrapped__
    for momentum in (0.1, 0.999):
        for layer in layers:
            monkeypatch.setattr(layer, "momentum", momentum)
        other = job._replace(estimate=jax.jit(lambda *rows: estimate(*rows), static_argnums=2))
        assert script.accuracy(other, raw) == pytest.approx(trained.history[-1, 3])


def test_a_training_that_was_scored_by_running_statistics_is_another_one(
    tmp_path: Path, capsys: Any
) -> None:
    options = script.parse(["--smoke", "--norm", "bn", "--out", str(tmp_path)])
    (tmp_path / "options.json").write_text(json.dumps(vars(options), default=str, indent=1))
    with pytest.raises(SystemExit, match="2"):
        script.parse(["--smoke", "--norm", "bn", "--out", str(tmp_path)])
    assert "other options" in capsys.readouterr().err


def folder_of(path: Path, norm: str, seed: int, **record: Any) -> str:
    """Writes the files of a finished training."""
    path.mkdir()
    options = {"norm": norm, "constraint": "sums", "branches": None, "rate": 0.1, "seed": seed}
    record = {**options, "held_out": 0, "updates": 400, "out": str(path), **record}
    (path / "options.json").write_text(json.dumps(record))
    values = ",".join(map(str, (400, 1.0, 0.1, 50.0 + seed, 51.0)))
    (path / "history.csv").write_text(f"{','.join(script.COLUMNS)}\n{values}\n")
    return str(path)


def table_of(tmp_path: Path, *folders: str) -> "subprocess.CompletedProcess[str]":
    """Runs resnet18_table.py."""
    table = SCRIPT.with_name("resnet18_table.py")
    command = [sys.executable, "-W", "error", str(table), *folders, "--out", str(tmp_path / "out")]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)


def test_the_table_says_how_batch_normalization_was_scored(tmp_path: Path) -> None:
    earlier = folder_of(tmp_path / "bn-0", "bn", 0)
    anew = folder_of(tmp_path / "bn-1", "bn", 1, statistics="estimated anew")
    call = folder_of(tmp_path / "call", "replaced", 0)
    process = table_of(tmp_path, earlier, call)
    assert process.returncode == 0, process.stderr
    assert "by running statistics, of momentum 0.9 over 400 updates." in process.stdout
    mixed = table_of(tmp_path, earlier, anew, call)
    assert mixed.returncode == 1
    assert f"{earlier}: scored by running statistics" in mixed.stderr
    assert "estimated anew." in table_of(tmp_path, anew).stdout


def test_parameters_and_rows_are_where_they_belong(trained: Trained) -> None:
    assert {leaf.dtype for leaf in jax.tree.leaves(trained.run["raw"])} == {np.dtype(np.float32)}
    assert all(leaf.sharding.is_fully_replicated for leaf in jax.tree.leaves(trained.run))
    x = jax.device_put(trained.job.test.x[:16], trained.job.split)
    assert [shard.data.shape[0] for shard in x.addressable_shards] == [2] * 8


def test_layers_compute_in_bfloat16(trained: Trained) -> None:
    net = trained.job.network
    params = jn.effective(net.raw)
    program = str(
        jax.make_jaxpr(lambda x: net.train(params, net.state, x, train=True)[0])(
            np.ones((8, 16, 16, 3), np.float32)
        )
    )
    assert program.count("bf16") > 20
    evaluated = jax.make_jaxpr(lambda x: net.evaluate(params, net.state, x, train=False)[0])(
        np.ones((8, 16, 16, 3), np.float32)
    )
    assert "bf16" not in str(evaluated)


def test_units_of_the_replacement_sum_to_zero_also_on_average(trained: Trained) -> None:
    options = trained.job.options
    for raw in (trained.run["raw"], script.averaged(trained.job, trained.run)):
        kernel = np.asarray(jn.effective(raw)["blocks"][0]["conv2"]["kernel"], np.float64)
        sums = np.abs(kernel.sum((0, 1, 2))).max()
        assert (sums < 1e-5) == (options.norm == "replaced")
        if options.constraint == "sphere":
            drift = jn.constraint_drift(raw, layout=trained.job.network.layout)
            assert drift["squared_norm"] < 1e-5


def test_the_exported_network_is_plain_and_predicts_the_same(trained: Trained) -> None:
    assert trained.change < 1e-4
    convolutions = ["stem", "blocks/0/conv1", "blocks/0/conv2"]
    if len(trained.job.options.blocks) == 2:
        convolutions += [f"blocks/1/conv{n}" for n in (1, 2, 3)]
    layers = {f"{layer}/{part}" for layer in (*convolutions, "head") for part in ("kernel", "bias")}
    assert trained.weights.keys() == layers | {"mean", "deviation"}


def test_branches_of_the_replacement_start_quietly(trained: Trained) -> None:
    options, raw = trained.job.options, trained.job.network.raw
    if options.norm == "replaced" and options.constraint == "sphere":
        scale = np.asarray(raw["blocks"][1]["conv2"]["kernel"].scale)
        np.testing.assert_allclose(scale, 2**-0.5, rtol=1e-6)


def test_a_loss_that_is_not_finite_ends_with_status_1(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    def diverged(run: Any, *rest: Any) -> Any:
        after, loss, watched = trained.job.step(run, *rest)
        return after, loss * np.nan, watched

    monkeypatch.setattr(script, "prepare", lambda _: trained.job._replace(step=diverged))
    assert script.main([*ALL, "--out", str(tmp_path)]) == 1
    assert "the loss is nan before update 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "--data or --smoke"),
        (("--smoke", "--data", "."), "--data or --smoke"),
        (("--data", "nowhere"), "does not exist"),
        (("--smoke", "--batch", "100"), "no multiple of 8"),
        (("--smoke", "--seed", "1"), "other options"),
    ],
)
def test_wrong_options_end_with_status_2(
    options: tuple[str, ...], words: str, tmp_path: Path, capsys: Any
) -> None:
    if "--seed" in options:
        script.parse(["--smoke", "--out", str(tmp_path)])
    with pytest.raises(SystemExit, match="2"):
        script.parse([*options, "--out", str(tmp_path)])
    assert words in capsys.readouterr().err


def test_fewer_rows_than_a_batch_are_refused(tmp_path: Path) -> None:
    options = script.parse(["--smoke", "--rows", "8", "--batch", "16", "--out", str(tmp_path)])
    with pytest.raises(ValueError, match="8 rows to train on are fewer than --batch"):
        script.prepare(options)


def loaded(tmp_path: Path, data: Path, *options: str) -> Any:
    parsed = script.parse(["--data", str(data), "--out", str(tmp_path / "out"), *options])
    return script.load(parsed)


def test_photographs_of_a_folder(tmp_path: Path) -> None:
    for part, number in (("train", 6), ("test", 2)):
        for label, name in enumerate(("cat", "dog")):
            folder = tmp_path / "data" / part / name
            folder.mkdir(parents=True)
            for row in range(number):
                Image.new("RGB", (9, 7), (100 * label, row, 0)).save(folder / f"{row}.png")
    train, test = loaded(tmp_path, tmp_path / "data", "--size", "8")
    assert train.x.shape == (12, 8, 8, 3)
    assert test.x.shape == (4, 8, 8, 3)
    assert train.x.dtype == np.uint8
    for rows in (train, test):
        np.testing.assert_array_equal(rows.x[:, 0, 0, 0], 100 * rows.y)


def test_rows_of_an_npz_file_and_rows_held_out(tmp_path: Path) -> None:
    y = np.arange(20) % 4
    x = np.broadcast_to(np.arange(20, dtype=np.uint8)[:, None, None], (20, 5, 5))
    np.savez(tmp_path / "one.npz", X=x, y=y)
    train, test = loaded(tmp_path, tmp_path / "one.npz")
    assert (len(train.y), len(test.y), train.x.shape[1:]) == (16, 4, (5, 5, 1))
    both = np.concatenate([train.x[:, 0, 0, 0], test.x[:, 0, 0, 0]])
    assert sorted(both) == list(range(20))
    np.testing.assert_array_equal(both % 4, np.concatenate([train.y, test.y]))

    np.savez(tmp_path / "two.npz", x_train=x, y_train=y[:, None], x_test=x[:3] + 100, y_test=y[:3])
    (tmp_path / "out" / "options.json").unlink()
    train, test = loaded(tmp_path, tmp_path / "two.npz", "--rows", "7", "--test-rows", "2")
    assert (len(train.y), len(test.y)) == (7, 2)
    assert test.x.min() >= 100
    (tmp_path / "out" / "options.json").unlink()
    train, test = loaded(tmp_path, tmp_path / "two.npz", "--held-out", "5")
    assert (len(train.y), len(test.y)) == (15, 5)
    assert not {*train.x[:, 0, 0, 0]} & {*test.x[:, 0, 0, 0]}


@pytest.mark.slow  # a process that compiles everything
def test_the_command_trains_and_exports(tmp_path: Path) -> None:
    options = (*ALL, "--norm", "none", "--out", str(tmp_path))
    command = [sys.executable, "-W", "error", str(SCRIPT), *options]
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(SCRIPT.parents[1])}
    process = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=600
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout.count("average_accuracy") == UPDATES
    assert (tmp_path / "history.csv").read_text().startswith("update,loss,")
    assert (tmp_path / "weights.npz").exists()
