"""An agent with replay and target network learns to catch a ball from pixels (DQN).

    python -m examples.agent --seeds 0 1 2 > agent.csv

A ball falls through twelve rows of nine pixels; the agent moves a paddle along the last row, and
gets 1 for a catch and -1 for a miss. The network has four residual blocks; Adam, rate 1e-3, batches
of 32. It is trained without normalization, with batch normalization, and by both calls. It acts,
and the target network evaluates, one observation at a time: under batch normalization that is by
running statistics, as no observation may wait for others.
"""

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import nnx

import jaxnorm as jn

ROWS, COLUMNS, ACTIONS = 12, 9, 3
ENVIRONMENTS, CAPACITY, FIRST, BATCH = 8, 8192, 1024, 32
UPDATES, COPIED, RENEWED, EPSILON, DISCOUNT, RATE = 1500, 100, 10, 0.1, 0.99, 1e-3
SHOWN = (300, 600, 900, 1500)

METHODS = ("no normalization", "batch normalization", "normalizer_free", "moving averages")


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


def greedy_return(values: Callable[[jax.Array], jax.Array], key: jax.Array) -> jax.Array:
    """Returns the mean reward of 256 games."""

    def one(game: Game, _: Any) -> tuple[Game, jax.Array]:
        return played(key, game, values(pixels(game)).argmax(-1))

    _, rewards = jax.lax.scan(one, new_game(key, 256), length=ROWS - 1)
    return rewards.sum(0).mean()


class Block(nnx.Module):
    """A residual block of two convolutions with batch normalization."""

    def __init__(self, width: int, rngs: nnx.Rngs):
        conv = partial(nnx.Conv, width, width, (3, 3), rngs=rngs)
        self.conv1, self.conv2 = (conv(kernel_init=nnx.initializers.he_normal()) for _ in range(2))
        self.norm1, self.norm2 = (nnx.BatchNorm(width, momentum=0.9, rngs=rngs) for _ in range(2))

    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns activations of the same shape."""
        y = nnx.relu(self.norm1(self.conv1(x)))
        return nnx.relu(x + self.norm2(self.conv2(y)))


class Network(nnx.Module):
    """Values of the three actions from pixels."""

    def __init__(self, rngs: nnx.Rngs, width: int = 16, blocks: int = 4):
        he = nnx.initializers.he_normal()
        self.stem = nnx.Conv(1, width, (3, 3), kernel_init=he, rngs=rngs)
        self.norm = nnx.BatchNorm(width, momentum=0.9, rngs=rngs)
        self.blocks = nnx.List(Block(width, rngs) for _ in range(blocks))
        self.head = nnx.Linear(width, ACTIONS, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns values, (rows, ACTIONS)."""
        x = nnx.relu(self.norm(self.stem(x)))
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((1, 2)))


class Learner(NamedTuple):
    """How a method trains.

    Attributes:
        raw: parameters, as the optimizer sees them.
        state: of the model; running statistics under batch normalization.
        tx: the optimizer.
        in_loss: ``in_loss(raw, state, x) -> (values, state)``.
        values: ``values(raw, state, x)``, by which the agent acts.
        renewed: ``renewed(raw, opt_state, x) -> opt_state``, now and then.
    """

    raw: Any
    state: Any
    tx: optax.GradientTransformation
    in_loss: Callable[..., Any]
    values: Callable[..., jax.Array]
    renewed: Callable[..., Any] = lambda raw, opt_state, x: opt_state


def learner(method: str, seed: int, x: jax.Array) -> Learner:
    """Returns the functions of a method; ``x`` is what random moves have seen."""
    model, tx = Network(nnx.Rngs(seed)), optax.adam(RATE)
    if method == "batch normalization":
        apply, params, state = jn.nnx.functionalize(model)
        values = lambda params, state, x: apply(params, state, x, train=False)[0]  # noqa: E731
        return Learner(params, state, tx, partial(apply, train=True), values)
    apply, params, state = jn.nnx.functionalize(jn.nnx.replace_batch_norm(model, x[:1]))
    plain = lambda params, x: apply(params, state, x, train=False)[0]  # noqa: E731
    values = lambda raw, state, x: plain(jn.effective(raw), x)  # noqa: E731
    in_loss = lambda raw, state, x: (plain(raw, x), state)  # noqa: E731
    if method == "no normalization":
        return Learner(params, None, tx, in_loss, values)
    if method == "normalizer_free":
        raw, tx = jn.normalizer_free(plain, params, tx, x)

        def renewed(raw: Any, opt_state: Any, x: jax.Array) -> Any:
            return jn.refresh_input_means(jn.read(plain, raw, x), opt_state)

        return Learner(raw, None, tx, in_loss, values, renewed)
    of_raw, raw, tx = jn.moving_average_normalization(plain, params, tx, x)
    return Learner(raw, None, tx, lambda raw, state, x: (of_raw(raw, x), state), values)


def loss_of(values: jax.Array, wanted: jax.Array, action: jax.Array) -> jax.Array:
    """Returns the mean loss of the values of the actions that were taken."""
    chosen = jnp.take_along_axis(values, action[:, None], 1)[:, 0]
    return optax.huber_loss(chosen, wanted).mean()


def moved(learner: Learner, key: jax.Array, t: Any, policy: Any, game: Game, buffer: Buffer) -> Any:
    """Returns games and buffer after a move of the policy ``(raw, state)``, or a random one."""
    act, move = jax.random.split(key)
    best = learner.values(*policy, pixels(game)).argmax(-1)
    some = jax.random.randint(act, best.shape, 0, ACTIONS)
    action = jnp.where(jax.random.uniform(move, best.shape) < EPSILON, some, best)
    game, new = seen(move, game, action)
    place = (FIRST + t * ENVIRONMENTS) % CAPACITY + jnp.arange(ENVIRONMENTS)
    return game, jax.tree.map(lambda old, part: old.at[place].set(part), buffer, new)


def updated(learner: Learner, policy: Any, target: Any, opt_state: Any, batch: Buffer) -> Any:
    """Returns policy and optimizer state after an update."""
    raw, state = policy
    # An episode ends with its only reward.
    best_after = learner.values(*target, batch.after).max(-1)
    wanted = batch.reward + DISCOUNT * jnp.where(batch.reward == 0, best_after, 0.0)

    def loss(raw: Any) -> Any:
        values, new = learner.in_loss(raw, state, batch.x)
        return loss_of(values, wanted, batch.action), new

    gradient, state = jax.grad(loss, has_aux=True)(raw)
    updates, opt_state = learner.tx.update(gradient, opt_state, raw)
    return (optax.apply_updates(raw, updates), state), opt_state


def learned(method: str, seed: int) -> list[float]:
    """Trains an agent by a method, and returns its greedy returns after `SHOWN` updates."""
    key = jax.random.key(1000 + seed)
    first = random_play(key)
    of = learner(method, seed, first.x[:256])

    @jax.jit
    def one(policy: Any, target: Any, opt_state: Any, game: Game, buffer: Buffer, t: Any) -> Any:
        move, draw = jax.random.split(jax.random.fold_in(key, t))
        game, buffer = moved(of, move, t, policy, game, buffer)
        known = jnp.minimum(FIRST + (t + 1) * ENVIRONMENTS, CAPACITY)
        rows = jax.random.randint(draw, (BATCH,), 0, known)
        batch = jax.tree.map(lambda part: part[rows], buffer)
        policy, opt_state = updated(of, policy, target, opt_state, batch)
        return policy, opt_state, game, buffer

    returned = jax.jit(lambda policy: greedy_return(partial(of.values, *policy), key))
    renewed = jax.jit(of.renewed)
    policy, opt_state, game = (of.raw, of.state), of.tx.init(of.raw), new_game(key, ENVIRONMENTS)
    target, returns = policy, []
    space = lambda part: jnp.zeros((CAPACITY, *part.shape[1:]), part.dtype).at[:FIRST].set(part)  # noqa: E731
    buffer = jax.tree.map(space, first)
    # No scan over the updates: a CPU's convolutions are slow inside of loops.
    for t in range(UPDATES):
        if t % RENEWED == 0:
            begin = t * ENVIRONMENTS % CAPACITY
            opt_state = renewed(policy[0], opt_state, buffer.x[begin : begin + BATCH])
        policy, opt_state, game, buffer = one(policy, target, opt_state, game, buffer, t)
        target = policy if t % COPIED == COPIED - 1 else target
        if t + 1 in SHOWN:
            returns.append(float(returned(policy)))
    return returns


def main() -> None:
    """Prints the greedy returns of each method and seed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=METHODS)
    options = parser.parse_args()
    print("method,seed," + ",".join(f"after {n}" for n in SHOWN), flush=True)
    for method in options.methods:
        for seed in options.seeds:
            returns = learned(method, seed)
            print(f"{method},{seed}," + ",".join(f"{value:.3f}" for value in returns), flush=True)


if __name__ == "__main__":
    main()
