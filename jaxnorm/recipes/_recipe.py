"""What a paper says about one training."""

from typing import NamedTuple

import optax

from jaxnorm._checks import POSITIVE, check_number


class Recipe(NamedTuple):
    """The hyperparameters of a method on a network, as its paper states them.

    What the paper is silent about is None, and yours to choose, on held-out training rows: no value
    of ours is among these.

    Attributes:
        learning_rate: of SGD with momentum at the first step.
        batch_size: the rows of a step.
        epochs: the passes over the training rows.
        momentum: of SGD.
        weight_decay: on kernels; scales and biases have none.
        cosine: whether half a cosine takes the rate to 0.
        rate_schedule: a staircase of ``(epoch, factor)``: from the end of that epoch on the rate is
            so much of the first.
        squared_radius: c of ||w||^2 = c, in constrained weight optimization and propagation.
        stddev: sigma, of the noise on scales; of the last layer where it grows.
        growing: whether sigma grows linearly with depth, as `jaxnorm.linear_stddev` makes it.
        sample_size: n, of the variance constancy loss.
        strength: what that loss is multiplied by.
        source: where the paper says so.

    Example:
        >>> from jaxnorm.recipes import RECIPES
        >>> RECIPES["cwo/wrn28x10"].weight_decay
        0.005
    """

    learning_rate: float
    batch_size: int
    epochs: int | None
    source: str
    momentum: float | None = 0.9
    weight_decay: float | None = None
    cosine: bool = False
    rate_schedule: tuple[tuple[int, float], ...] = ()
    squared_radius: float | None = None
    stddev: float | None = None
    growing: bool = False
    sample_size: int | None = None
    strength: float | None = None


def learning_rate_schedule(
    recipe: Recipe, steps_per_epoch: int, *, epochs: int | None = None
) -> optax.Schedule:
    """The rate at each step: half a cosine, a staircase, or a constant, as the paper has it.

    Args:
        recipe: one of `RECIPES`, or your own.
        steps_per_epoch: the training rows over the batch size, rounded down.
        epochs: of your training, if it is shorter or longer: the staircase moves along, several of
            its drops to one step where there are more drops than steps. Left out, the recipe's.

    Returns:
        An optax schedule: ``step -> rate``, under jit too.

    Raises:
        ValueError: if the paper does not say how many epochs, and neither do you; for numbers that
            are not positive.

    Example:
        >>> from jaxnorm.recipes import RECIPES
        >>> rate = learning_rate_schedule(RECIPES["normprop/nin"], steps_per_epoch=1000)
        >>> [round(float(rate(step)), 4) for step in (0, 24_999, 25_000, 199_999)]
        [0.05, 0.05, 0.025, 0.0004]
    """
    check_number(steps_per_epoch, POSITIVE, "steps_per_epoch", "len(X_train) // batch_size")
    if epochs is not None:
        check_number(epochs, POSITIVE, "epochs", "100 for example, or leave it out")
    length = recipe.epochs if epochs is None else epochs
    if recipe.cosine:
        return optax.cosine_decay_schedule(recipe.learning_rate, _known(length) * steps_per_epoch)
    stretch = 1.0 if epochs is None else epochs / _known(recipe.epochs)
    before = 1.0
    factors: dict[int, float] = {}
    for epoch, factor in recipe.rate_schedule:
        step = round(stretch * epoch * steps_per_epoch)
        factors[step] = factors.get(step, 1.0) * factor / before
        before = factor
    return optax.piecewise_constant_schedule(recipe.learning_rate, factors)


def _known(epochs: int | None) -> int:
    if epochs is None:
        raise ValueError(
            "epochs is None: the paper does not say how long it trained; pass epochs=100 for "
            "example."
        )
    return epochs
