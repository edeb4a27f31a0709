"""The agent that learns to catch a ball."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from examples import agent


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
    returns = agent.learned(method, 0)
    assert len(returns) == 2
    assert np.isfinite(returns).all()
    assert min(returns) >= -1
