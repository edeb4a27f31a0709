"""Modules beside the files of several networks: each network gets those of its own folder."""

import sys
from pathlib import Path

import pytest

from experiments.cli import main
from experiments.models.from_file import load_maker
from experiments.models.own_modules import FOLDERS
from tests.experiments.toy import rows_of, save_toy

NET = """
from flax import nnx
import layers


def {name}(rngs, shape, classes):
    import late
    hidden = nnx.Linear(shape[-1], layers.WIDTH, rngs=rngs)
    return nnx.Sequential(hidden, late.relu, nnx.Linear(layers.WIDTH, classes, rngs=rngs))
"""


@pytest.fixture(autouse=True)
def no_bytecode(monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)


def write_networks(folder: Path) -> dict[str, str]:
    """Writes two networks, and returns them by the name of their folders."""
    for name, width in {"a": 4, "b": 6}.items():
        (folder / name / "parts").mkdir(parents=True)
        (folder / name / f"net{name}.py").write_text(NET.format(name=f"make_{name}"))
        (folder / name / "layers.py").write_text("from parts.sizes import WIDTH\n")
        (folder / name / "parts" / "sizes.py").write_text(f"WIDTH = {width}\n")
        (folder / name / "late.py").write_text(f"from flax.nnx import relu\nWIDTH = {width}\n")
    return {name: f"{folder / name}/net{name}.py:make_{name}" for name in "ab"}


def test_each_file_has_the_modules_of_its_folder_in_any_order(tmp_path):
    networks = write_networks(tmp_path)
    for name in "abab":
        maker = load_maker(networks[name])
        folder = tmp_path / name
        assert Path(maker.__globals__["layers"].__file__).parent == folder
        sys.modules.pop("late", None)
        exec("import late", maker.__globals__)
        assert Path(maker.__globals__["late"].__file__).parent == folder
        assert sys.modules["layers"] is maker.__globals__["layers"]
        assert [place for place in sys.path if place in map(str, tmp_path.iterdir())] == [
            str(folder)
        ]
    FOLDERS.use(tmp_path)
    assert not {"layers", "late", "parts", "parts.sizes"} & sys.modules.keys()


@pytest.mark.slow
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_two_networks_are_trained_with_modules_of_their_own(jobs, tmp_path, monkeypatch):
    networks = write_networks(tmp_path)
    monkeypatch.chdir(tmp_path / "a")
    flags = ["--dataset", save_toy(tmp_path), "--methods", "none", "--epochs", "1", "--quiet"]
    flags += ["--seeds", jobs, "--jobs", jobs, "--batch-size", "16", "--out", str(tmp_path / "out")]
    assert main(["compare", "--model", ",".join(networks.values()), *flags]) == 0
    for name, width in {"a": 4, "b": 6}.items():
        rows = rows_of(tmp_path / "out" / f"make_{name}" / "results.csv")
        assert {int(row["parameters"]) for row in rows} == {7 * width + 3 * (width + 1)}
