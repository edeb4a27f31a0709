"""Noise injection as a wrapper of an optimizer: the parameters it leaves behind are noisy."""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int, PyTree, UInt

from jaxnorm._checks import check_seed
from jaxnorm._numerics import promote
from jaxnorm._trees._constrained import Setting
from jaxnorm._trees._paths import flat_leaves, is_absent, rebuild
from jaxnorm.transforms._noise import (
    Factors,
    NoiseState,
    Where,
    multiply,
    noise_factors,
    noise_per_leaf,
    restore,
    times,
)


def noise_injection(
    inner: optax.GradientTransformation,
    stddev: Setting,
    *,
    seed: int | UInt[Array, ""] | Int[Array, ""],
    where: Where | None = None,
) -> optax.GradientTransformationExtraArgs:
    """Trains clean scales gamma while the network sees gamma (1 + n_t), n_t ~ N(0, stddev^2).

    The transformation is a wrapper, and has to be the outermost one that changes updates: the
    parameters between two updates are the noisy ones, so the loss needs no change. Each unit has
    one draw an update, which all samples share; convolutional networks stay at chance with it on
    photographs. To train with noise, use `jaxnorm.with_scale_noise`, which draws for each sample;
    this is for comparing the two, and for models that cannot be traced.

    Each update pulls the gradient back to the clean gamma, (1 + n_t) dL/d(gamma (1 + n_t)), gives
    it to ``inner`` together with the clean parameters (so weight decay acts on gamma itself), and
    draws n_{t+1}. The parameters that ``init`` saw are clean. The step is the same as that of
    differentiating a loss of ``perturb_scales(params, stddev, key)``. A scale that was changed
    between two updates, by hand or from a checkpoint, is taken as a noisy one and stays changed:
    twice the noisy scale is twice the clean one.

    Allowed around it: chain with what leaves updates as they are, masked, partition, MultiSteps,
    apply_if_finite, inject_hyperparams. Not allowed: whatever changes the update after it (a scale,
    a clip, a decay), since the noise would change with it; and whatever keeps parameters of its own
    (``optax.lookahead``, ``optax.contrib.schedule_free``, an average), since it would keep noisy
    ones: put those inside, or average `clean_parameters`.

    Evaluation, export and averages must read `clean_parameters`.

    Args:
        inner: the optimizer, constraint included: ``optax.chain(optax.sgd(0.1),
            sphere_projection())``.
        stddev: sigma; a number, or a pytree prefix of numbers and None (no noise), as
            `jaxnorm.linear_stddev` makes it. With 0 the parameters are ``inner``'s, bit by bit.
        seed: an integer from 0 to 2^32 - 1; the draws depend on it, the update count and the leaf's
            path alone, not on sharding, masks or restarts.
        where: which leaves are noisy, in the place of the default (the ``scale`` of every `Scaled`
            node, and the ``channel_scale`` of `jaxnorm.nnx.ScaleAndBias`): a pytree prefix of
            bools, or a function from the parameters to one.

    Returns:
        A transformation with state `NoiseState`, whose ``update`` needs ``params``.

    Raises:
        ValueError: in ``init``, if no leaf is noisy, or if stddev is negative; in ``update``,
            without ``params``; at once, for a seed that does not fit 32 bits.

    Under jit, pmap and shard_map every device draws the same noise without communication; under
    ``optax.MultiSteps`` a draw is kept for the whole accumulated step; under
    ``optax.inject_hyperparams`` name ``inner`` and ``seed`` in ``static_args``.

    Example:
        >>> from jaxnorm import Scaled, clean_parameters
        >>> params = {"kernel": Scaled.from_kernel(jnp.ones((3, 2)), -2)}
        >>> tx = noise_injection(optax.sgd(0.1), stddev=1.0, seed=0)
        >>> state = tx.init(params)
        >>> updates, state = tx.update(jax.tree.map(jnp.zeros_like, params), state, params)
        >>> noisy = optax.apply_updates(params, updates)
        >>> clean_parameters(state, noisy)["kernel"].scale.tolist()
        [1.0, 1.0]

    Source: Ikami et al. 2021, Eqs. 7 and 8.
    """
    inner = optax.with_extra_args_support(inner)
    check_seed(seed)

    def init(params: PyTree) -> NoiseState:
        deviations = noise_per_leaf(params, stddev, where)
        clean, noisy = (_keep(params, [s is not None for s in deviations]) for _ in range(2))
        start = jnp.asarray(seed).astype(jnp.uint32)
        return NoiseState(start, jnp.zeros((), jnp.int32), clean, noisy, inner.init(params))

    def update(
        updates: PyTree, state: NoiseState, params: PyTree | None = None, **extra_args: Any
    ) -> tuple[PyTree, NoiseState]:
        if params is None:
            raise ValueError(
                "noise_injection changes the parameters' own noise and got no params; call "
                "update(gradients, state, params)."
            )
        deviations = noise_per_leaf(params, stddev, where)
        now = _factors_at(params, deviations, state.seed, state.step)
        clean_params = restore(params, state)
        steps, inner_state = inner.update(
            multiply(updates, now), state.inner_state, clean_params, **extra_args
        )
        count = optax.safe_increment(state.step)
        following = _factors_at(params, deviations, state.seed, count)
        steps, clean, noisy = _visible_steps(steps, params, clean_params, following)
        return steps, NoiseState(state.seed, count, clean, noisy, inner_state)

    return optax.GradientTransformationExtraArgs(init, update)


def _keep(params: PyTree, noisy: list[bool]) -> PyTree:
    """Copies of the noisy leaves. An alias of a parameter could not be donated together with it."""
    rows = zip(flat_leaves(params), noisy, strict=True)
    copies = [
        jnp.copy(leaf) if chosen and not is_absent(leaf) else optax.MaskedNode()
        for leaf, chosen in rows
    ]
    return rebuild(params, copies)


def _factors_at(
    params: PyTree, deviations: list[Setting], seed: UInt[Array, ""], count: Int[Array, ""]
) -> Factors:
    """The noise of an update count; none at 0, since ``init`` leaves the parameters clean."""
    # A named generator: the default one can be set to rbg, whose draws depend on the sharding.
    key = jax.random.fold_in(jax.random.key(seed, impl="threefry2x32"), count)
    factors = noise_factors(params, deviations, key)
    return [None if f is None else jnp.where(count == 0, 1.0, f) for f in factors]


def _visible_steps(
    steps: PyTree, params: PyTree, clean: PyTree, factors: Factors
) -> tuple[PyTree, PyTree, PyTree]:
    """The steps of the noisy parameters; the clean and the noisy values that they lead to."""
    columns = [flat_leaves(tree) for tree in (steps, params, clean)]
    rows = [_visible_step(*row) for row in zip(*columns, factors, strict=True)]
    visible, clean_leaves, noisy_leaves = (list(column) for column in zip(*rows, strict=True))
    return rebuild(steps, visible), rebuild(params, clean_leaves), rebuild(params, noisy_leaves)


def _visible_step(step: Any, noisy: Any, clean: Any, factor: Any) -> tuple[Any, Any, Any]:
    """From the noisy leaf to (clean + step) times the next factor; clean + step; that target."""
    if factor is None or is_absent(step):
        return step, optax.MaskedNode(), optax.MaskedNode()
    moved = added(clean, step)
    difference = promote(times(moved, factor), step) - promote(noisy, step)
    # Rounded for good: the compiler may else keep more digits than the step has.
    info = jnp.finfo(step.dtype)
    visible = jax.lax.reduce_precision(difference, info.nexp, info.nmant).astype(step.dtype)
    return visible, moved, added(noisy, visible)


def added(leaf: Any, step: Any) -> Any:
    """``leaf + step`` in the leaf's type, as ``optax.apply_updates`` adds them."""
    return (promote(leaf, step) + promote(step, leaf)).astype(leaf.dtype)
