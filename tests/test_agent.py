"""The agent that learns to catch a ball."""

import csv
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from examples import agent

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "experiments" / "results" / "agent"


def test_an_agent_that_follows_the_ball_catches_it() -> None:
    def follows(x: jax.Array) -> jax.Array:
        ball = x[:, :-1, :, 0].sum(1).argmax(-1)
        paddle = x[:, -1, :, 0].argmax(-1)
        return jax.nn.one_hot(jnp.sign(ball - paddle) + 1, agent.ACTIONS)

    stays = lambda x: jax.nn.one_hot(jnp.ones(len(x), jnp.int32), agent.ACTIONS)  # noqa: E731
    assert agent.greedy_return(follows, jax.random.key(0)) == 1
    assert abs(agent.greedy_return(stays, jax.random.key(0)) - (2 / agent.COLUMNS - 1)) < 0.2


@pytest.mark.slow
@pytest.mark.parametrize("method", agent.METHODS)
def test_each_method_acts_and_learns(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve updates: the returns are those of games that were played."""
    monkeypatch.setattr(agent, "UPDATES", 12)
    monkeypatch.setattr(agent, "SHOWN", (6, 12))
    with jax.numpy_dtype_promotion("standard"):  # Optax raises a number to an integer.
        returns = agent.learned(method, 0)
    assert len(returns) == 2
    assert np.isfinite(returns).all()
    assert min(returns) >= -1


#: Words of the tables, by the names of the rows.
WORDS = {
    "no normalization": "no normalization",
    "batch normalization": "batch normalization",
    "normalizer_free": "`normalizer_free`",
    "moving averages": "`moving_average_normalization`",
}


@pytest.mark.parametrize("page", [RESULTS / "README.md", ROOT / "docs" / "guides" / "streams.md"])
def test_the_tables_are_the_means_of_the_committed_rows(page: Path) -> None:
    with (RESULTS / "agent.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["method"] for row in rows} == {*agent.METHODS}
    text = page.read_text()
    for method, words in WORDS.items():
        (line,) = re.findall(rf"^\| {re.escape(words)} \|(.*)\|$", text, re.MULTILINE)
        of_method = [row for row in rows if row["method"] == method]
        means = [
            np.mean([float(row[f"after {count}"]) for row in of_method]) for count in agent.SHOWN
        ]
        assert [float(cell) for cell in line.split("|")] == pytest.approx(means, abs=5.1e-3)
