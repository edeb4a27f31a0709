"""An agent with replay and target network learns to catch a ball from pixels (DQN).

    python -m examples.keeping.agent [--seeds 0 1 2]

A ball falls through twelve rows of nine pixels; the agent moves a paddle along the last row, and
gets 1 for a catch and -1 for a miss. The network has four residual blocks; Adam, rate 1e-3, batches
of 32. It acts, and the target network evaluates, by the plain network of each variant: under batch
normalization that is by running statistics, as no observation may wait for others.
"""

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from examples.keeping.networks import Network, drawn, plain, residual
from examples.keeping.stages import VARIANTS
from examples.keeping.variants import Training, as_it_is, make_training, step_of, without_scales

ROWS, COLUMNS, ACTIONS = 12, 9, 3
ENVIRONMENTS, CAPACITY, FIRST, BATCH = 8, 8192, 1024, 32
UPDATES, COPIED, RENEWED, EPSILON, DISCOUNT, RATE = 1500, 100, 10, 0.1, 0.99, 1e-3
SHOWN = (300, 600, 900, 1500)

NETWORK: Network = partial(residual, classes=ACTIONS, width=16, blocks=4)
NOTHING = "nothing"


class Game(NamedTuple):
    """Positions of ball and paddle, one per environment."""

    row: jax.Array
    column: jax.Array
    paddle: jax.Array


class Buffer(NamedTuple):
    """What was seen: pixels, actions, rewards, and the pixels after them."""

    x: jax.Array
    action: jax.Array
    reward: jax.Array
    after: jax.Array


def new_game(key: jax.Array, count: int) -> Game:
    """Returns games whose ball is in the first row."""
    column = jax.random.randint(key, (count,), 0, COLUMNS)
    return Game(jnp.zeros_like(column), column, jnp.full_like(column, COLUMNS // 2))


def pixels(game: Game) -> jax.Array:
    """Returns the pixels, (environments, ROWS, COLUMNS, 1)."""
    ball = jax.nn.one_hot(game.row * COLUMNS + game.column, ROWS * COLUMNS)
    paddle = jax.nn.one_hot((ROWS - 1) * COLUMNS + game.paddle, ROWS * COLUMNS)
    return jnp.maximum(ball, paddle).reshape(-1, ROWS, COLUMNS, 1)


def played(key: jax.Array, game: Game, action: jax.Array) -> tuple[Game, jax.Array]:
    """Returns the games after a move, and the rewards; a game starts anew after its last row."""
    paddle = jnp.clip(game.paddle + action - 1, 0, COLUMNS - 1)
    row, new = game.row + 1, new_game(key, len(action))
    is_over = row == ROWS - 1
    reward = jnp.where(is_over, jnp.where(paddle == game.column, 1.0, -1.0), 0.0)
    old = Game(row, game.column, paddle)
    return jax.tree.map(lambda n, o: jnp.where(is_over, n, o), new, old), reward


def seen(key: jax.Array, game: Game, action: jax.Array) -> tuple[Game, Buffer]:
    """Returns the games after a move, and what was seen."""
    after, reward = played(key, game, action)
    return after, Buffer(pixels(game), action, reward, pixels(after))


def random_play(key: jax.Array) -> Buffer:
    """Returns what random moves see."""

    def one(game: Game, key: jax.Array) -> tuple[Game, Buffer]:
        action = jax.random.randint(key, (ENVIRONMENTS,), 0, ACTIONS)
        return seen(key, game, action)

    keys = jax.random.split(key, FIRST // ENVIRONMENTS)
    _, buffer = jax.lax.scan(one, new_game(key, ENVIRONMENTS), keys)
    return jax.tree.map(lambda part: part.reshape(FIRST, *part.shape[2:]), buffer)


def greedy_return(logits: Callable[[jax.Array], jax.Array], key: jax.Array) -> jax.Array:
    """Returns the mean reward of 256 games."""

    def one(game: Game, _: Any) -> tuple[Game, jax.Array]:
        return played(key, game, logits(pixels(game)).argmax(-1))

    _, rewards = jax.lax.scan(one, new_game(key, 256), length=ROWS - 1)
    return rewards.sum(0).mean()


def without_anything(network: Network, tx: optax.GradientTransformation) -> Training:
    """Kernels and biases that start by He et al. 2015, and nothing that keeps them."""

    def start(seed: Any, x: jax.Array) -> Any:
        params = without_scales(drawn(network, jax.random.key(seed), x[:1]))
        last = params.pop("classifier")
        params = jax.tree.map(lambda p: p * 2**0.5, params) | {"classifier": last}
        return params, None, tx.init(params)

    forward = lambda params, memory, x: (plain(network, params, x), None)  # noqa: E731
    after = lambda t, memory, seen, old, new: memory  # noqa: E731
    plain_params = lambda params, memory: params  # noqa: E731
    return Training(start, tx, forward, after, as_it_is, plain_params, partial(plain, network))


def learned(name: str, seed: int) -> list[float]:
    """Trains an agent by a variant, and returns its greedy returns after `SHOWN` updates."""
    key = jax.random.key(1000 + seed)
    first, tx = random_play(key), optax.adam(1.0)
    training = (
        without_anything(NETWORK, tx)
        if name == NOTHING
        else make_training(NETWORK, VARIANTS[name], first.x[:256], tx)
    )
    logits_of = lambda carry, x: training.logits(training.plain_params(*carry[:2]), x)  # noqa: E731

    def one(state: Any, t: jax.Array) -> tuple[Any, None]:
        carry, target, game, buffer = state
        act, move, draw = jax.random.split(jax.random.fold_in(key, t), 3)
        best = logits_of(carry, pixels(game)).argmax(-1)
        some = jax.random.randint(act, best.shape, 0, ACTIONS)
        action = jnp.where(jax.random.uniform(move, best.shape) < EPSILON, some, best)
        game, new = seen(move, game, action)
        place = (FIRST + t * ENVIRONMENTS) % CAPACITY + jnp.arange(ENVIRONMENTS)
        buffer = jax.tree.map(lambda old, part: old.at[place].set(part), buffer, new)
        known = jnp.minimum(FIRST + (t + 1) * ENVIRONMENTS, CAPACITY)
        batch = jax.tree.map(
            lambda part: part[jax.random.randint(draw, (BATCH,), 0, known)], buffer
        )
        # An episode ends with its only reward.
        best_after = logits_of(target, batch.after).max(-1)
        wanted = batch.reward + DISCOUNT * jnp.where(batch.reward == 0, best_after, 0.0)

        def loss(values: jax.Array) -> jax.Array:
            chosen = jnp.take_along_axis(values, batch.action[:, None], 1)[:, 0]
            return optax.huber_loss(chosen, wanted).mean()

        carry, _ = step_of(training, t, RATE, carry, batch.x, loss)
        target = jax.tree.map(
            lambda old, new: jnp.where(t % COPIED == COPIED - 1, new, old), target, carry
        )
        return (carry, target, game, buffer), None

    chunk = jax.jit(lambda state, ts: jax.lax.scan(one, state, ts)[0], donate_argnums=0)
    renewed = jax.jit(training.renewed)
    returned = jax.jit(lambda carry: greedy_return(partial(logits_of, carry), key))
    carry = training.start(seed, first.x[:256])
    space = jax.tree.map(
        lambda part: jnp.zeros((CAPACITY, *part.shape[1:]), part.dtype).at[:FIRST].set(part), first
    )
    state = (carry, jax.tree.map(jnp.copy, carry), new_game(key, ENVIRONMENTS), space)
    returns = []
    for begin in range(0, UPDATES, RENEWED):
        (params, memory, opt_state), *others = state
        x = others[-1].x[(begin * ENVIRONMENTS) % CAPACITY :][:BATCH]
        state = ((params, memory, renewed(opt_state, params, memory, x)), *others)
        state = chunk(state, jnp.arange(begin, begin + RENEWED))
        if begin + RENEWED in SHOWN:
            returns.append(float(returned(state[0])))
    return returns


def main() -> None:
    """Prints the greedy returns of each variant and seed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    names = [NOTHING, "batch normalization", "call", "own", "full", "full predicted"]
    parser.add_argument("--variants", nargs="+", default=names, choices=[NOTHING, *VARIANTS])
    options = parser.parse_args()
    print("variant,seed," + ",".join(f"after {n}" for n in SHOWN), flush=True)
    for name in options.variants:
        for seed in options.seeds:
            returns = learned(name, seed)
            print(f"{name},{seed}," + ",".join(f"{value:.3f}" for value in returns), flush=True)


if __name__ == "__main__":
    main()
