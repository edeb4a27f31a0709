"""The state of noise injection, and the clean parameters in it."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PyTree, UInt

from jaxnorm._numerics import promote
from jaxnorm._trees._paths import flat_leaves, is_absent, leaves, listed, rebuild

#: |1 + n| below which a changed scale is not divided by it.
NEAR_ZERO = 1e-3


class NoiseState(NamedTuple):
    """State of `noise_injection`; arrays only, so that any checkpoint library can keep it.

    Attributes:
        seed: uint32; with the step it determines every draw.
        step: int32, the number of updates so far; the parameters carry the draw of this number.
        clean: the parameters' structure with the clean value of each noisy leaf, MaskedNode
            elsewhere. A copy: dividing by 1 + n would lose gamma where n is near -1.
        noisy: likewise with the values that the last update leads to, which show whether a leaf
            was changed since by someone else.
        inner_state: the state of the wrapped transformation.
    """

    seed: UInt[Array, "..."]
    step: Int[Array, "..."]
    clean: PyTree
    noisy: PyTree
    inner_state: PyTree


def clean_parameters(opt_state: PyTree, params: PyTree) -> PyTree:
    """The parameters without their noise, from wherever in ``opt_state`` the noise state is.

    Args:
        opt_state: the state of an optimizer that holds `noise_injection`, inside any wrapper:
            chain, masked, partition, MultiSteps, apply_if_finite, inject_hyperparams.
        params: the parameters as the optimizer left them.

    Returns:
        ``params`` with every noisy leaf replaced by its clean value, which the state
        keeps and which is therefore exact. If a leaf was changed after the update, its noise is
        divided out.

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
        params = restore(params, state)
    return params


def _check_paths(states: list[NoiseState], params: PyTree) -> None:
    """Raises where clean values would find no place, and the noise would stay unseen."""
    paths = [path for path, _ in leaves(params)]
    kept = [path for state in states for path, x in leaves(state.clean) if not is_absent(x)]
    lost = [path for path in kept if path not in paths]
    if lost:
        raise ValueError(
            f"opt_state keeps clean values for {listed(lost)}, which params do not have; their "
            f"paths are: {listed(paths)}. Pass the parameters that this optimizer updates."
        )


def restore(params: PyTree, state: NoiseState) -> PyTree:
    """``params`` with their clean leaves; matched by path, whatever boxes hold them."""
    kept = {
        path: (clean, noisy)
        for (path, clean), noisy in zip(leaves(state.clean), flat_leaves(state.noisy), strict=True)
        if not is_absent(clean)
    }
    return rebuild(
        params,
        [
            leaf if is_absent(leaf) or path not in kept else _clean(leaf, *kept[path])
            for path, leaf in leaves(params)
        ],
    )


def _clean(given: Any, clean: Any, noisy: Any) -> Any:
    """The clean value of a leaf: the kept one, but where the given value is not what was left."""
    new, old, kept = promote(given), promote(noisy), promote(clean)
    rounding = 2 * float(jnp.finfo(clean.dtype).eps) * (jnp.abs(new) + jnp.abs(old))
    is_factor = (jnp.abs(old) > NEAR_ZERO * jnp.abs(kept)) & (kept != 0)
    # Where 1 + n is next to zero, or not known, what was changed is the difference.
    moved = jnp.where(is_factor, new * (kept / jnp.where(is_factor, old, 1)), kept + (new - old))
    is_left = jnp.abs(new - old) <= rounding
    return jnp.where(is_left, clean, moved.astype(clean.dtype))


def _is_noise_state(x: Any) -> bool:
    return isinstance(x, NoiseState)
