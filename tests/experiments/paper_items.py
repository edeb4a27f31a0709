"""The smoke preset of every item of the papers, run by name only because all take minutes.

python -m pytest -n auto --dist load tests/experiments/paper_items.py
"""

import jax
import pytest

from experiments.cli import main
from experiments.papers.items import ITEMS


@pytest.mark.parametrize("name", ITEMS)
def test_the_smoke_preset_runs_and_writes_its_files(name, tmp_path, capsys):
    """Runs the command line, under JAX's default settings."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        assert main(["paper", name, "--preset", "smoke", "--out", str(tmp_path)]) == 0
    for file in ("report.md", "results.csv"):
        assert (tmp_path / file).stat().st_size
    pictures = list(tmp_path.glob("*.png"))
    assert pictures
    assert all(picture.name in (tmp_path / "report.md").read_text() for picture in pictures)
    assert "smoke" in capsys.readouterr().out
