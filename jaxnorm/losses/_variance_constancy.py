"""The variance constancy loss: the variances of two small samples of a unit should agree."""

from collections.abc import Hashable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from jaxnorm._checks import known_values
from jaxnorm._numerics import promote
from jaxnorm._trees._axes import fan_in, unit_shape
from jaxnorm.losses._first_rows import first_rows
from jaxnorm.losses._samples import SampleAxes, samples_of
from jaxnorm.statistics._sample_variance import sample_variance

Loss = Float[Array, ""]


def variance_constancy_loss(
    x: Float[Array, "..."],
    beta: float | Float[Array, "..."],
    sample_size: int = 2,
    *,
    sample_axes: SampleAxes = (0,),
    axis_name: Hashable | None = None,
    groups: int = 1,
) -> Loss:
    """The mean over units of (1 - s1^2 / (s2^2 + beta))^2, for one layer.

    s1^2 and s2^2 are the unbiased variances of the first two consecutive subsets of n samples.
    Minimizing it lowers the kurtosis of the unit: it makes its distribution one of few modes.

    Args:
        x: pre-activations, with the batch as axis 0; only the first 2n rows of each group are read,
            so `with_first_rows` may have taken them out.
        beta: positive, one a unit or one number; the paper learns it from 1.
        sample_size: n.
        sample_axes: what a sample is made of: the axes other than these count units. (0,), the
            paper's, makes every location of every channel of a convolution a unit; (0, 1, 2), or
            None for all axes but the last, makes every channel one, and a subset n images.
        axis_name: under pmap or shard_map, the mapped axis (or axes) over which the loss is
            averaged.
        groups: the batch is seen as so many contiguous parts, each with its own pair of subsets,
            and the loss is averaged over them.

    Returns:
        A scalar in float32 or wider. A constant unit has both variances zero: its term is 1, its
        gradient 0. An infinite or NaN value among the samples that are read makes the loss NaN
        (``optax.apply_if_finite`` sees it); elsewhere in the batch it changes nothing.

    Raises:
        ValueError: for groups that do not divide the batch, a batch smaller than 2n in each group,
            subsets of a single value, a beta of the wrong shape or below 0, and axes that leave out
            the batch.
        TypeError: for pre-activations that are not real floating-point numbers.

    The pair is the device's own under pmap and shard_map: with ``axis_name`` every device's counts,
    in one all-reduce of a scalar. Under jit with a batch sharded over d devices, ``groups=d`` (or a
    multiple) is the same loss, again one all-reduce of a scalar; ``groups=1`` would read the rows
    of one device only, at the price of moving them, and is an error with explicit axes.

    Example:
        >>> x = jnp.array([[0.0], [2.0], [0.0], [1.0], [9.0]])
        >>> float(variance_constancy_loss(x, 1.5))  # variances 2 and 0.5
        0.0

    Source: Littwin and Wolf 2018, Eq. 17 and section 2.4. Erratum: "n < 2N" there means 2n <= N.
    """
    loss = _layer(x, beta, sample_size, sample_axes, groups)
    return loss if axis_name is None else jax.lax.pmean(loss, axis_name)


def total_variance_constancy(
    preactivations: PyTree,
    betas: PyTree,
    sample_size: int = 2,
    *,
    sample_axes: SampleAxes = (0,),
    axis_name: Hashable | None = None,
    groups: int = 1,
) -> Loss:
    """The sum of `variance_constancy_loss` over the layers of a pytree.

    Args:
        preactivations: one array a layer, the last layer's (the logits) left out.
        betas: positive, of the same structure.
        sample_size: as in `variance_constancy_loss`, as the other arguments.
        sample_axes: the same for every layer; None suits layers of different rank.
        axis_name: the mapped axis over which the sum is averaged, in one all-reduce for all layers.
        groups: the number of contiguous parts of the batch.

    Returns:
        A scalar in float32 or wider; the paper gives it the weight 0.01.

    Raises:
        ValueError: for betas of another structure, and as `variance_constancy_loss`.

    It means the same under jit, pmap and shard_map as `variance_constancy_loss` does.

    Example:
        >>> from jaxnorm.losses import initial_betas, positive_betas
        >>> layers = {"first": jnp.ones((8, 3)), "second": jnp.ones((8, 5))}
        >>> float(total_variance_constancy(layers, positive_betas(initial_betas(layers))))
        2.0

    Source: Littwin and Wolf 2018, section 2.4.
    """
    layers, (wanted, given) = jax.tree.leaves(preactivations), _structures(preactivations, betas)
    if given != wanted:
        raise ValueError(
            f"betas have the structure {given} and the pre-activations {wanted}; wanted one beta "
            "array a layer. Make them with initial_betas."
        )
    losses = [
        _layer(x, beta, sample_size, sample_axes, groups)
        for x, beta in zip(layers, jax.tree.leaves(betas), strict=True)
    ]
    widest = jnp.result_type(jnp.float32, *losses)
    total = sum((loss.astype(widest) for loss in losses), jnp.zeros((), widest))
    return total if axis_name is None else jax.lax.pmean(total, axis_name)


def _structures(*trees: Any) -> list[Any]:
    return [jax.tree.structure(tree) for tree in trees]


def _layer(x: Any, beta: Any, n: int, sample_axes: SampleAxes, groups: int) -> Loss:
    axes = samples_of(x, sample_axes)
    # (groups, 2n, ...) -> (groups, 2, n, ...): negative axes are still those of the samples.
    rows = first_rows(x, 2 * n, groups)
    pairs = promote(rows.reshape(groups, 2, n, *x.shape[1:]))
    _check_subset(x, n, fan_in(pairs, axes))
    variances = sample_variance(pairs, axes)
    denominator = variances[:, 1] + _beta_like(beta, variances, x, axes)
    # A beta that was rounded to zero would make 0/0 of a constant unit, here or in the gradient.
    floor = float(jnp.finfo(denominator.dtype).tiny) ** 0.5
    ratio = variances[:, 0] / jnp.maximum(denominator, floor)
    return jnp.square(1 - ratio).mean()


def _check_subset(x: Any, n: int, values: int) -> None:
    if values < 2:
        raise ValueError(
            f"sample_size={n} of pre-activations of shape {tuple(x.shape)} makes subsets of "
            f"{values} value, which have no variance; wanted a sample size of at least 2."
        )


def _beta_like(beta: Any, variances: Any, x: Any, axes: Any) -> Float[Array, "..."]:
    """Beta in the type of the variances, with a leading axis for the groups."""
    units, given = unit_shape(x, axes), jnp.shape(beta)
    if given not in ((), units):
        raise ValueError(
            f"beta has the shape {given}; wanted {units}, one value for each unit of "
            f"pre-activations of shape {tuple(x.shape)} with the sample axes {axes}, or a number."
        )
    _check_sign(beta)
    return jnp.broadcast_to(jnp.asarray(beta, variances.dtype), units)[None]


def _check_sign(beta: Any) -> None:
    """Raises for a known beta below 0; NaN of a run that diverged stays visible in the loss."""
    known = known_values(beta)
    if known is not None and (known < 0).any():
        raise ValueError(
            f"beta is {known.min()} at its least; wanted positive values, or the loss has a pole: "
            "jaxnorm.losses.positive_betas(raw) makes them of any numbers."
        )
