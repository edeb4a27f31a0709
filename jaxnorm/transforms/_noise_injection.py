"""Noise injection as a wrapper of an optimizer: the parameters it leaves behind are noisy."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int, PyTree, UInt

from jaxnorm._paths import flat_leaves, is_absent, leaves, rebuild
from jaxnorm._prefix import Setting
from jaxnorm._unit import widen
from jaxnorm.transforms._noise import (
    Factors,
    Where,
    multiply,
    noise_factors,
    noise_per_leaf,
    times,
)


class NoiseState(NamedTuple):
    """State of `noise_injection`; arrays only, so that any checkpoint library can keep it.

    Attributes:
        seed: uint32; with the step it determines every draw.
        step: int32, the number of updates so far; the parameters carry the draw of this number.
        clean: the parameters' structure with the clean value of each noisy leaf, MaskedNode
            elsewhere. A copy: dividing by 1 + n would lose gamma where n is near -1.
        inner_state: the state of the wrapped transformation.
    """

    seed: UInt[Array, "..."]
    step: Int[Array, "..."]
    clean: PyTree
    inner_state: PyTree


def noise_injection(
    inner: optax.GradientTransformation,
    stddev: Setting,
    *,
    seed: int | UInt[Array, ""] | Int[Array, ""],
    where: Where | None = None,
) -> optax.GradientTransformationExtraArgs:
    """Trains clean scales gamma while the network sees gamma (1 + n_t), n_t ~ N(0, stddev^2).

    A wrapper, as ``optax.contrib.schedule_free`` is: the parameters between two updates are the
    noisy ones, so the loss needs no change. Each update pulls the gradient back to the clean gamma,
    (1 + n_t) dL/d(gamma (1 + n_t)), gives it to ``inner`` together with the clean parameters (so
    weight decay acts on gamma itself), and draws n_{t+1}. One draw a unit and update; the
    parameters that ``init`` saw are clean. The same step as differentiating a loss of
    ``perturb_scales(params, stddev, key)``.

    Evaluation, export and averages must read `clean_parameters`.

    Args:
        inner: the optimizer, constraint included: ``optax.chain(optax.sgd(0.1),
            sphere_projection())``.
        stddev: sigma; a number, or a pytree prefix of numbers and None (no noise), as for the
            paper's (l/L) sigma of residual nets.
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
    _check_seed(seed)

    def init(params: PyTree) -> NoiseState:
        deviations = noise_per_leaf(params, stddev, where)
        clean = _keep(params, [sigma is not None for sigma in deviations])
        start = jnp.asarray(seed).astype(jnp.uint32)
        return NoiseState(start, jnp.zeros((), jnp.int32), clean, inner.init(params))

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
        clean_params = restore(params, state.clean)
        steps, inner_state = inner.update(
            multiply(updates, now), state.inner_state, clean_params, **extra_args
        )
        count = optax.safe_increment(state.step)
        following = _factors_at(params, deviations, state.seed, count)
        steps, clean = _visible_steps(steps, params, state.clean, following)
        return steps, NoiseState(state.seed, count, clean, inner_state)

    return optax.GradientTransformationExtraArgs(init, update)


def clean_parameters(opt_state: PyTree, params: PyTree) -> PyTree:
    """The parameters without their noise, from wherever in ``opt_state`` the noise state is.

    Args:
        opt_state: the state of an optimizer that holds `noise_injection`, inside any wrapper:
            chain, masked, partition, MultiSteps, apply_if_finite, inject_hyperparams.
        params: the parameters as the optimizer left them.

    Returns:
        ``params`` with every noisy leaf replaced by its clean value; no arithmetic, so exactly it.

    Raises:
        ValueError: if there is no noise state in ``opt_state``, or if ``params`` lack a leaf that
            it keeps.

    Example: see `noise_injection`.
    """
    nodes = jax.tree.leaves(opt_state, is_leaf=_is_noise_state)
    states = [node for node in nodes if _is_noise_state(node)]
    if not states:
        raise ValueError(
            "found no state of noise_injection in opt_state, so there is nothing to clean; pass "
            "the state that its init or update returned. Without noise use params as they are."
        )
    _check_paths(states, params)
    for state in states:
        params = restore(params, state.clean)
    return params


def _check_paths(states: list[NoiseState], params: PyTree) -> None:
    """Raises where clean values would find no place, and the noise would stay unseen."""
    paths = [path for path, _ in leaves(params)]
    kept = [path for state in states for path, x in leaves(state.clean) if not is_absent(x)]
    lost = [path for path in kept if path not in paths]
    if lost:
        raise ValueError(
            f"opt_state keeps clean values for {', '.join(lost)}, which params do not have; their "
            f"paths are: {', '.join(paths)}. Pass the parameters that this optimizer updates."
        )


def restore(params: PyTree, clean: PyTree) -> PyTree:
    """``params`` with the leaves that ``clean`` has; matched by path, whatever boxes hold them."""
    kept = {path: leaf for path, leaf in leaves(clean) if not is_absent(leaf)}
    return rebuild(
        params,
        [leaf if is_absent(leaf) else kept.get(path, leaf) for path, leaf in leaves(params)],
    )


def _is_noise_state(x: Any) -> bool:
    return isinstance(x, NoiseState)


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
) -> tuple[PyTree, PyTree]:
    """The steps of the noisy parameters, and the clean values that the inner steps lead to."""
    columns = [flat_leaves(tree) for tree in (steps, params, clean)]
    pairs = [_visible_step(*row) for row in zip(*columns, factors, strict=True)]
    return rebuild(steps, [step for step, _ in pairs]), rebuild(clean, [kept for _, kept in pairs])


def _visible_step(step: Any, noisy: Any, clean: Any, factor: Any) -> tuple[Any, Any]:
    """From the noisy leaf to (clean + step) times the next factor; and clean + step."""
    if factor is None or is_absent(step):
        return step, clean
    moved = (widen(clean, step) + widen(step, clean)).astype(clean.dtype)
    target = times(moved, factor)
    return (widen(target, step) - widen(noisy, step)).astype(step.dtype), moved


def _check_seed(seed: Any) -> None:
    if isinstance(seed, int) and not 0 <= seed < 2**32:
        raise ValueError(f"seed is {seed}; wanted an integer from 0 to {2**32 - 1}.")
