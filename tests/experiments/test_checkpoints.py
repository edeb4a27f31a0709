"""Checkpoints: restored states, restores on other devices, and errors."""

import contextlib
import re
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from experiments import listed
from experiments.cli import main
from experiments.config import Config
from experiments.errors import UserError
from experiments.runs import checkpoints as folder_of_checkpoints
from experiments.runs import keeper, spec
from experiments.runs.arrays import checksums, flatten
from experiments.runs.checkpoint_settings import CheckpointSettings
from experiments.runs.checkpoints import Checkpoints
from experiments.runs.comparison import Comparison
from experiments.runs.progress import quietly
from experiments.runs.spec import Spec, check_config
from experiments.runs.store import Store
from experiments.train import check_folders
from experiments.training.history import History
from experiments.training.run import Epoch, Run
from jaxnorm import clean_parameters, constraint_drift
from tests.experiments.test_full_disk import full_disk
from tests.experiments.toy import after_an_epoch, save_toy, toy_trainer


@pytest.fixture(scope="module")
def state():
    """Makes a state with nodes, noise, and a random key like that of dropout."""
    state = after_an_epoch(toy_trainer("cwo-step"))
    return state._replace(model_state={"dropout": {"key": jax.random.key(3)}})


def assert_same(one, other):
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for (name, a), b in zip(flatten(one).items(), flatten(other).values(), strict=True):
        assert a.dtype == b.dtype, name
        np.testing.assert_array_equal(a, b, strict=True)


def test_what_is_saved_is_the_state_before_its_memory_is_reused(tmp_path):
    @jax.jit
    def first():
        return jnp.arange(1 << 20, dtype=jnp.float32)

    step = jax.jit(lambda x: x + 1, donate_argnums=0)
    x = first()
    with Checkpoints(str(tmp_path / "new"), keep=2) as checkpoints:
        for epoch in range(1, 5):
            x = step(x)
            checkpoints.save(epoch, {"x": x}, {"config": {}, "history": [float("nan"), 0.1]})
            for _ in range(3):
                x = step(x)
    with Checkpoints(str(tmp_path / "new")) as checkpoints:
        assert checkpoints.epochs == [3, 4]
        saved = checkpoints.state(4, {"x": first()})
        np.testing.assert_array_equal(saved["x"], np.arange(1 << 20) + 13.0)
        np.testing.assert_array_equal(checkpoints.record(4)["history"], [np.nan, 0.1])


def sharded(state, devices):
    """Shards the units of each kernel over so many devices, and replicates other leaves."""
    mesh = Mesh(jax.devices()[:devices], "model")

    def place(leaf):
        units = leaf.ndim == 2 and leaf.shape[1] == 8
        spec = PartitionSpec(None, "model") if units else PartitionSpec()
        return jax.device_put(leaf, NamedSharding(mesh, spec))

    return jax.tree.map(place, state)


@pytest.fixture(scope="module")
def saved_on_eight(state, tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("eight"))
    with Checkpoints(folder) as checkpoints:
        checkpoints.save(1, sharded(state, 8), {})
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("devices", [1, 2, 4])
def test_saved_on_eight_devices_and_restored_on_fewer(state, saved_on_eight, devices):
    like = sharded(jax.tree.map(jnp.zeros_like, state), devices)
    with Checkpoints(saved_on_eight) as checkpoints:
        restored = checkpoints.state(1, like)
    assert_same(restored, state)
    kernel = restored.params["blocks"][1]["linear"]["kernel"].kernel
    assert len(kernel.sharding.device_set) == devices
    assert kernel.sharding.shard_shape(kernel.shape) == (8, 8 // devices)
    clean = clean_parameters(restored.optimizer_state, restored.params)
    drift = constraint_drift(clean, layout=toy_trainer("cwo-step").layout)
    assert max(map(float, drift.values())) < 1e-5


def test_numbers_that_changed_on_disk_are_named(tmp_path):
    """One flipped bit of an array's bytes is not noticed by Orbax."""
    noise = np.random.default_rng(0).normal(size=(64, 64))
    state = {"noise": jnp.asarray(noise, jnp.float32), "flags": jnp.array([True, False])}
    with Checkpoints(str(tmp_path / "whole")) as checkpoints:
        checkpoints.save(1, state, {})
        assert_same(checkpoints.state(1, state), state)
    file = largest_file(tmp_path / "whole" / "1" / "state" / "ocdbt.process_0")
    damaged = bytearray(file.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    file.write_bytes(damaged)
    message = r"whole/1, .* damaged .*noise: the numbers differ from the saved ones"
    with Checkpoints(str(tmp_path / "whole")) as found, pytest.raises(UserError, match=message):
        found.state(1, state)


@pytest.mark.parametrize("dtype", ["bool", "int8", "bfloat16", "float32", "uint32", "float64"])
def test_a_checksum_sees_every_bit_and_every_place(dtype):
    with jax.enable_x64(True):
        zeros = np.zeros((3, 4), dtype)
        (nothing,) = checksums({"x": jnp.asarray(zeros)}).values()
        seen = {nothing}
        bits = 1 if dtype == "bool" else 8 * zeros.dtype.itemsize
        raw = zeros.view(np.uint8)
        for bit in range(bits * zeros.size):
            byte, shift = divmod(bit, 8) if dtype != "bool" else (bit, 0)
            raw.reshape(-1)[byte] = 1 << shift
            (value,) = checksums({"x": jnp.asarray(zeros)}).values()
            assert value != nothing, bit
            seen.add(value)
            raw.reshape(-1)[byte] = 0
        assert len(seen) > bits


def test_short_epochs_are_saved_by_the_clock(tmp_path, monkeypatch):
    clock = iter([100.0, 104.9, 105.0])
    monkeypatch.setattr(keeper, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    settings = keeper.CheckpointSettings(str(tmp_path), checkpoint_seconds=5.0)
    with keeper.keeping(settings, {}, epochs=9) as kept:
        assert [kept.is_due(epoch) for epoch in (1, 2, 3)] == [True, False, True]
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    with pytest.raises(UserError, match="--checkpoint-seconds is 5, and there are 2 processes"):
        keeper.keeping(settings, {}, epochs=9).__enter__()


def test_checkpoints_from_before_a_setting_came_fit_its_default():
    check_config({"a": 1}, {"a": 1, "rate_decay": 0.0}, "here")
    with pytest.raises(UserError, match=r"rate-decay 0.0 there and 0.1 here"):
        check_config({"a": 1}, {"a": 1, "rate_decay": 0.1}, "here")


def test_a_run_becomes_longer_if_nothing_in_it_depends_on_its_length():
    short, long = {"epochs": 3, "rate_decay": 1e-3}, {"epochs": 5, "rate_decay": 1e-3}
    check_config(short, long, "here")
    with pytest.raises(UserError, match="epochs 5 there and 3 here"):
        check_config(long, short, "here")
    for length in ({"rate_decay": 0.0}, {"epsilon": 1.0}):
        with pytest.raises(UserError, match=r"of a run of 3 epochs.* --epochs is 5.*--rate-decay"):
            check_config(short | length, long | length, "here")
    check_config({"rows": "7", "dataset": "a.npz"}, {"rows": "7", "dataset": "b.npz"}, "here")
    with pytest.raises(UserError, match="the same settings, and its step and rows are others"):
        check_config({"rows": "7", "score": "1"}, {"rows": "8", "score": "1", "step": "2"}, "here")


@pytest.mark.slow
def test_a_longer_run_is_that_of_one_call(tmp_path):
    command = ["train", "--dataset", save_toy(tmp_path), "--method", "cwo", "--depth", "1"]
    command += ["--width", "4", "--batch-size", "16", "--rate-decay", "0.01"]
    for name, epochs in (("parts", (2, 4)), ("one", (4,))):
        for each in epochs:
            more = ["--epochs", str(each), "--out", str(tmp_path / f"{name}{each}"), "--resume"]
            assert main([*command, *more, "--checkpoint-dir", str(tmp_path / name)]) == 0
    curves = [(tmp_path / name / "curves.csv").read_bytes() for name in ("parts4", "one4")]
    assert curves[0] == curves[1]


def test_a_folder_is_checked_before_the_run(tmp_path, capsys):
    settings = keeper.CheckpointSettings(str(tmp_path), resume=True)
    (tmp_path / "9").mkdir()
    with keeper.keeping(settings, {}, epochs=9) as kept:
        assert kept.resumed == 0
    assert f"nothing to resume in {tmp_path}" in capsys.readouterr().err
    with quietly(), keeper.keeping(settings, {}, epochs=9):
        assert not capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]
    with full_disk(4), pytest.raises(UserError, match=r"cannot write checkpoints to .* free it"):
        keeper.keeping(settings, {}, epochs=9).__enter__()


@pytest.mark.slow
def test_a_resumed_run_says_that_another_version_began_it(again, monkeypatch):
    status, err = again("--resume")
    assert (status, "which may differ" in err) == (0, False)
    monkeypatch.setattr(listed, "version", lambda: "99.0")
    status, err = again("--resume")
    assert status == 0
    assert re.search(r"resumed from \S+/3 of jaxnorm \d\S+, which may differ in defaults", err)


def test_a_run_that_another_version_began_is_not_kept_as_one_of_this_version(tmp_path, monkeypatch):
    """Also after it was saved and resumed once more."""
    settings = CheckpointSettings(str(tmp_path / "saved"))

    def versions_of(settings, epoch):
        with keeper.keeping(settings, {}, 9) as kept:
            state, history = kept.begin({"x": jnp.zeros(1)})
            curve = [*history.curve, Epoch(epoch, 0.5, 0.5, 0.5, 0.5)]
            kept.after_epoch(state, History(curve, [*history.seconds, 1.0]), 0)
            return kept.versions

    real, usual = spec.package_versions(), Spec("bn", 0, Config())
    with monkeypatch.context() as patch:
        patch.setattr(spec, "package_versions", lambda: {**real, "optax": "0"})
        assert versions_of(settings, 1)["optax"] == "0"
    resumed = replace(settings, resume=True)
    for epoch in (2, 3):
        began = versions_of(resumed, epoch)
        assert (began["optax"], began["jax"]) == ("0", jax.__version__)
    store, wanted = Store(tmp_path), usual.made_of(spec.parts_beside(usual.described, "0"))
    store.add(wanted, Run("bn", 0, [Epoch(1, 0.5, 0.5, 0.5, 0.5)], 1.0, 9, None), began)
    assert store.finished([wanted]) == {}
    assert "the stored ones are of optax 0." in store.why_not([wanted])[0]


def test_results_are_no_checkpoint(tmp_path, capsys):
    command = ["train", "--checkpoint-dir", f"{tmp_path}/runs/", "--out"]
    for place in ("runs/3", "runs/x/../3/below"):
        assert main([*command, str(tmp_path / place)]) == 2
        assert "among the checkpoints of" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    for place in ("runs/out", "runs", "3"):
        check_folders(tmp_path / place, keeper.CheckpointSettings(f"{tmp_path}/runs"))


@pytest.mark.slow
def test_a_batch_goes_on_in_as_many_groups(tmp_path, capsys):
    """Batch normalization under shard_map uses the rows of each device."""
    command = ["train", "--dataset", save_toy(tmp_path), "--method", "bn", "--depth", "1"]
    command += ["--width", "4", "--batch-size", "16", "--epochs", "1", "--out", str(tmp_path)]
    command += ["--checkpoint-dir", str(tmp_path / "checkpoints"), "--quiet"]
    assert main([*command, "--parallel", "shard_map"]) == 0
    devices = jax.device_count()
    assert main([*command, "--resume"]) == 2
    assert f"ghost-groups {devices} there and 1 here" in capsys.readouterr().err
    assert main([*command, "--resume", "--ghost-groups", str(devices)]) == 0


@pytest.mark.slow
def test_runs_of_a_comparison_are_kept_in_as_many_groups():
    apart = Comparison(Config(parallel="shard_map"))
    together, grouped = Comparison(Config()), Comparison(Config(ghost_groups=4))
    specs = [each.specs([("bn", (), 0)])[0] for each in (apart, together, grouped)]
    found = [spec.described["ghost_groups"] for spec in specs]
    assert found == [jax.device_count(), 1, 4]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Returns the command line of a finished run of three epochs, and its folder."""
    folder = tmp_path_factory.mktemp("trained")
    command = ["train", "--dataset", save_toy(folder), "--method", "none", "--depth", "1"]
    command += ["--width", "4", "--batch-size", "16", "--epochs", "3", "--out", str(folder / "out")]
    assert main([*command, "--checkpoint-dir", str(folder / "checkpoints"), "--keep", "2"]) == 0
    return command, folder


@pytest.fixture
def again(trained, tmp_path, capsys):
    """Runs that command with more flags on a copy of its checkpoints; returns status and stderr."""
    command, folder = trained
    shutil.copytree(folder / "checkpoints", tmp_path / "checkpoints")

    def run(*more: str) -> tuple[int, str]:
        status = main([*command, "--checkpoint-dir", str(tmp_path / "checkpoints"), *more])
        return status, capsys.readouterr().err

    return run


def test_resuming_needs_to_be_asked_for_and_the_same_settings(again, tmp_path):
    status, err = again()
    assert status == 2
    assert "holds checkpoints up to epoch 3; go on with --resume" in err
    status, err = again("--resume", "--width", "5", "--learning-rate", "0.01")
    assert status == 2
    assert err.count("\n") == 1
    assert "checkpoints/3 has other settings: learning-rate 0.05 there and 0.01 here; " in err
    assert "width 4 there and 5 here." in err
    status, err = again("--resume-from", "1")
    assert status == 2
    assert "--resume-from is 1; the checkpoints" in err


def test_a_finished_run_is_only_written_again(again, trained, tmp_path):
    """Equal data in another place."""
    results = trained[1] / "out" / "results.csv"
    before = results.read_text()
    results.unlink()
    data = shutil.copy(trained[1] / "toy.npz", tmp_path / "moved.npz")
    status, err = again("--resume", "--keep", "1", "--dataset", str(data))
    assert (status, results.read_text()) == (0, before)
    assert "checkpoints/3." in err


def test_no_flipped_bit_of_a_record_is_read(trained, tmp_path, monkeypatch):
    monkeypatch.setattr(folder_of_checkpoints, "time", SimpleNamespace(sleep=lambda seconds: None))
    shutil.copytree(trained[1] / "checkpoints" / "3", tmp_path / "3")
    file, random = tmp_path / "3" / "record" / "metadata", np.random.default_rng(0)
    whole = file.read_bytes()
    with Checkpoints(str(tmp_path)) as checkpoints:
        saved = checkpoints.record(3)
        for bit in random.integers(0, 8 * len(whole), 25):
            damaged = bytearray(whole)
            damaged[bit // 8] ^= 1 << bit % 8
            file.write_bytes(damaged)
            with contextlib.suppress(UserError):
                assert checkpoints.record(3) == saved  # As with a space that is another.


def largest_file(folder: Path) -> Path:
    return max((f for f in folder.rglob("*") if f.is_file()), key=lambda f: f.stat().st_size)


DAMAGES = {
    "truncated": lambda folder: largest_file(folder / "state" / "d").write_bytes(b"\0"),
    "unreadable": lambda folder: (folder / "record" / "metadata").write_text('{"config'),
    "foreign": lambda folder: (folder / "record" / "metadata").write_text("[1, 2]"),
    "missing": lambda folder: shutil.rmtree(folder / "state"),
}


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_named_and_another_used_only_if_asked(again, tmp_path, damage):
    DAMAGES[damage](tmp_path / "checkpoints" / "3")
    status, err = again("--resume")
    assert status == 2
    assert f"cannot read the checkpoint {tmp_path}/checkpoints/3" in err
    assert "--resume-from 2 takes the earlier one" in err
    assert err.count("\n") == 1
    if damage == "truncated":
        status, err = again("--resume-from", "2")
        assert status == 0, err
        assert sorted(f.name for f in (tmp_path / "checkpoints").glob("[0-9]*")) == ["2", "3"]


def test_another_seed_and_other_training_rows_are_refused(again, trained):
    status, err = again("--resume", "--seed", "1")
    assert status == 2
    assert "has other settings: seed 0 there and 1 here. Give" in err
    path = Path(trained[1] / "toy.npz")
    kept = path.read_bytes()
    arrays = dict(np.load(path))
    arrays["X"][::2] += 1
    np.savez(path, **arrays)
    try:
        status, err = again("--resume")
    finally:
        path.write_bytes(kept)
    assert status == 2
    assert "checkpoints/3 has the same settings, and its rows are others than here" in err
    assert err.count("\n") == 1
