"""Noise on the scales among the parameters: one draw per channel and update."""

import zlib
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.sharding import PartitionSpec
from jaxtyping import Array, Float, Int, PyTree, UInt

from jaxnorm._axes import check_per_unit
from jaxnorm._checks import check_optimizer, check_params, check_seed
from jaxnorm._draws import device_slice, normal, split_of, whole_shape
from jaxnorm._kinds import Scaled
from jaxnorm._layout import Setting, broadcast
from jaxnorm._mesh import varying_axes
from jaxnorm._noise import Specs, check_stddev, is_zero
from jaxnorm._numerics import promote
from jaxnorm._paths import Path, is_absent, listed, map_entries, named_entries, named_leaves

#: A pytree prefix of the parameters with bools, or a function from the parameters to one.
Where = Any

#: `jax.tree.map` that calls the function at placeholders too.
_map = partial(jax.tree.map, is_leaf=is_absent)

#: The name of the scale of `jaxnorm.nnx.ScaleAndBias`, which no other layer's scale has.
SCALE_LAYER = "channel_scale"


def perturb_scales(
    params: PyTree,
    stddev: Setting,
    key: Array,
    where: Where | None = None,
    *,
    specs: Specs = None,
) -> PyTree:
    """Returns parameters with noisy scales: gamma (1 + n), n ~ N(0, sigma^2), one n per channel.

    The pure form of `noise_injection`, for use inside a loss: the gradient through it is that with
    respect to the clean gamma.

    Args:
        params: a tree of parameters with reparametrized kernels.
        stddev: sigma; a number, or a pytree prefix of numbers and None (no noise); an array has
            one value per channel of the whole scale.
        key: a PRNG key; the draw of a leaf depends only on the key and on the leaf's path.
        where: the noisy leaves, instead of the default (the ``scale`` of every `Scaled` node and
            the ``channel_scale`` of `jaxnorm.nnx.ScaleAndBias`): a pytree prefix of bools, or a
            function from the parameters to one.
        specs: inside shard_map and pmap, the `PartitionSpec` of each parameter: the ``in_specs``,
            a pytree prefix of the parameters.

    Returns:
        A tree of the same structure, shapes and types. Noise is computed in float32 or wider.

    Raises:
        ValueError: if no leaf is noisy, if stddev is negative, or if the split of a scale over
            devices is unknown (below).

    One draw serves the whole minibatch. Threefry keys, JAX's default, give the same numbers under
    jit with any sharding. Inside shard_map and pmap pass the same key on every device; scales that
    are split over devices need ``specs``, and each device keeps its slice of the draws for the
    whole scale. A checked shard_map needs no ``specs`` for scales of one axis: such a scale counts
    as split along the mesh axes along which it varies and the key does not. For a scale that was
    cast to varying (``jax.lax.pcast``) and is the same on all devices pass ``PartitionSpec()``. An
    unchecked shard_map and pmap do not know which arrays are split: without ``specs`` the devices'
    slices repeat the same draws.

    Example:
        >>> node = Scaled.from_kernel(jnp.ones((3, 2)), -2)
        >>> noisy = perturb_scales({"kernel": node}, 0.5, jax.random.key(0))["kernel"]
        >>> bool((noisy.kernel == node.kernel).all()), bool((noisy.scale == node.scale).any())
        (True, False)

    Source: Ikami et al. 2021, Eq. 7. The paper leaves open whether n is drawn per sample; here n is
    drawn per channel and step, as the statistics of a minibatch are.
    """
    stddevs = _stddev_tree(params, stddev, where)
    return _multiply(params, _factor_tree(params, stddevs, broadcast(specs, params, "specs"), key))


class NoiseState(NamedTuple):
    """State of `noise_injection`; it holds arrays only, so that any checkpoint library keeps it.

    Attributes:
        seed: uint32; seed and step determine every draw.
        step: int32, the number of updates so far; the parameters carry the draw of this number.
        clean: the parameters' structure with the clean value of each noisy leaf, MaskedNode
            elsewhere. Dividing the parameters by 1 + n would lose gamma if n is near -1.
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
    specs: Specs = None,
) -> optax.GradientTransformationExtraArgs:
    """Trains clean scales gamma while the network sees gamma (1 + n_t), n_t ~ N(0, sigma^2).

    The transformation wraps an optimizer and must be the outermost one that changes updates: the
    parameters between two updates are noisy, so the loss needs no change. Each channel has one draw
    per update, which all samples share, as the statistics of a minibatch are.
    `jaxnorm.with_scale_noise` draws per sample; `noise_injection` is for comparing the two, and for
    models that cannot be traced.

    Each update multiplies the gradient by 1 + n_t, which gives the gradient of the clean gamma,
    calls ``inner`` with it and the clean parameters (so weight decay acts on gamma itself), and
    draws n_{t+1}. The parameters that ``init`` gets are clean. The step equals that of
    differentiating a loss of ``perturb_scales(params, stddev, key)``. The state holds the clean
    scales: **edits of noisy scales between two updates, by hand or from a checkpoint, are lost**.
    After an edit call ``init`` again, with clean parameters.

    Allowed around it: chain with transformations that leave updates unchanged, masked, partition,
    MultiSteps, apply_if_finite, inject_hyperparams. Not allowed: a transformation that changes the
    update afterwards (a scale, a clip, a decay), since it would change the noise too; and one that
    keeps parameters of its own (``optax.lookahead``, ``optax.contrib.schedule_free``, an average),
    since it would keep noisy ones: put it inside, or average `clean_parameters`.

    Evaluation, export and averages must read `clean_parameters`.

    Args:
        inner: the optimizer, constraint included: ``optax.chain(optax.sgd(0.1),
            sphere_projection())``.
        stddev: sigma; a number, or a pytree prefix of numbers and None (no noise), as
            `jaxnorm.linear_stddev` returns it; an array has one value per channel of the whole
            scale. With 0 the parameters equal those of ``inner`` to the bit.
        seed: an integer from 0 to 2^32 - 1; the draws depend only on the seed, the update count and
            the leaf's path, not on sharding, masks or restarts.
        where: the noisy leaves, instead of the default (the ``scale`` of every `Scaled` node and
            the ``channel_scale`` of `jaxnorm.nnx.ScaleAndBias`): a pytree prefix of bools, or a
            function from the parameters to one.
        specs: inside shard_map and pmap, the `PartitionSpec` of each parameter, as
            `perturb_scales` takes them.

    Returns:
        A transformation with state `NoiseState`, whose ``update`` needs ``params``.

    Raises:
        ValueError: at once, for a seed that does not fit into 32 bits; in ``init``, if no leaf is
            noisy or stddev is negative; in ``update``, without ``params``, or if the split of a
            scale over devices is unknown.
        TypeError: at once, if ``optimizer`` is not an optax transformation.

    Under jit, pmap and shard_map the devices draw the same noise without communication. Scales that
    are split over devices inside shard_map or pmap have the draws that they have under jit as in
    `perturb_scales`: by ``specs``, or, for scales of one axis, by the types of a checked
    shard_map. Under ``optax.MultiSteps`` a draw is kept for the whole accumulated step; under
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
    check_optimizer(inner)
    check_seed(seed)
    inner = optax.with_extra_args_support(inner)

    def init(params: PyTree) -> NoiseState:
        # An alias of a parameter could not be donated together with it.
        clean = _map(
            lambda leaf, sigma: optax.MaskedNode() if sigma is None else jnp.copy(leaf),
            params,
            _stddev_tree(params, stddev, where),
        )
        start = jnp.asarray(seed).astype(jnp.uint32)
        return NoiseState(start, jnp.zeros((), jnp.int32), clean, inner.init(params))

    def update(
        updates: PyTree, state: NoiseState, params: PyTree | None = None, **extra_args: Any
    ) -> tuple[PyTree, NoiseState]:
        check_params(params, "noise_injection")
        stddevs = _stddev_tree(params, stddev, where)
        spec_tree = broadcast(specs, params, "specs")

        def factors_at(count: Int[Array, ""]) -> PyTree:
            # A named generator: the default one may be rbg, whose draws depend on the sharding.
            key = jax.random.fold_in(jax.random.key(state.seed, impl="threefry2x32"), count)
            factors = _factor_tree(params, stddevs, spec_tree, key)
            return jax.tree.map(lambda factor: jnp.where(count == 0, 1.0, factor), factors)

        clean = _map(lambda leaf, kept: leaf if is_absent(kept) else kept, params, state.clean)
        gradients = _multiply(updates, factors_at(state.step))
        steps, inner_state = inner.update(gradients, state.inner_state, clean, **extra_args)
        count = optax.safe_increment(state.step)
        factors = factors_at(count)
        moved = _map(_moved, steps, clean, factors)
        steps = _map(_visible_step, steps, moved, factors, params)
        return steps, NoiseState(state.seed, count, moved, inner_state)

    return optax.GradientTransformationExtraArgs(init, update)


def clean_parameters(opt_state: PyTree, params: PyTree) -> PyTree:
    """Returns the parameters without the noise of `noise_injection`.

    Args:
        opt_state: the state of an optimizer that holds `noise_injection`, inside any wrapper:
            chain, masked, partition, MultiSteps, apply_if_finite, inject_hyperparams.
        params: the parameters as the optimizer left them.

    Returns:
        ``params`` with every noisy leaf replaced by its clean value from the state, which is exact.

    Raises:
        ValueError: if ``opt_state`` holds no noise state, or if ``params`` lack a leaf whose clean
            value the state holds.

    Leaves are matched by path, so ``params`` may be boxed (`flax.nnx.State`) or plain dicts. It
    communicates nothing under jit, pmap and shard_map.

    Example:
        >>> params = {"kernel": Scaled.from_kernel(jnp.ones((3, 2)), -2)}
        >>> tx = noise_injection(optax.sgd(0.1), 0.5, seed=0)
        >>> zeros = jax.tree.map(jnp.zeros_like, params)
        >>> updates, state = tx.update(zeros, tx.init(params), params)
        >>> noisy = optax.apply_updates(params, updates)
        >>> clean_parameters(state, noisy)["kernel"].scale.tolist()
        [1.0, 1.0]

    Source: ours; averages and exports need the scales without the noise of Ikami et al. 2021, Eq.
    7.
    """
    nodes = jax.tree.leaves(opt_state, is_leaf=_is_noise_state)
    states = [node for node in nodes if _is_noise_state(node)]
    if not states:
        raise ValueError(
            "opt_state holds no state of noise_injection, so there is nothing to clean; pass "
            "the state that its init or update returned. Without noise use params as they are."
        )
    clean = {path: x for state in states for path, x in named_leaves(state.clean)}
    clean = {path: x for path, x in clean.items() if not is_absent(x)}
    leaves = named_leaves(params)
    if missing := clean.keys() - {path for path, leaf in leaves if not is_absent(leaf)}:
        raise ValueError(
            f"opt_state holds clean values for {listed(sorted(missing))}, which params do not "
            f"have; their paths are: {listed(path for path, _ in leaves)}. Pass the parameters "
            "that this optimizer updates."
        )
    return map_entries(clean.get, params, is_leaf=is_absent)


def _is_noise_state(x: Any) -> bool:
    return isinstance(x, NoiseState)


def _stddev_tree(params: PyTree, stddev: Setting, where: Where | None) -> PyTree:
    """Returns sigma at each leaf that has noise, and None elsewhere. Raises if no leaf is noisy."""
    check_stddev(stddev)
    stddevs = _map(
        lambda leaf, chosen, sigma: sigma if chosen and not is_absent(leaf) else None,
        params,
        _noisy_tree(params, where),
        broadcast(stddev, params, "stddev"),
    )
    if all(map(is_absent, jax.tree.leaves(stddevs, is_leaf=is_absent))):
        raise ValueError(
            "no parameter would be noisy: noise goes to the scale of Scaled nodes and to leaves "
            f"named {SCALE_LAYER}, or to those of where=, unless their stddev is None. The paths "
            f"are: {listed(path for path, _ in named_leaves(params))}. Wrap kernels with "
            "reparametrize(params, Scaled), or name the leaves with where=."
        )
    return _map(lambda sigma: None if is_zero(sigma) else sigma, stddevs)


def _noisy_tree(params: PyTree, where: Where | None) -> PyTree:
    """Returns True at each leaf that is chosen to be noisy."""
    if where is not None:
        return broadcast(where(params) if callable(where) else where, params, "where")
    scales = {Path((*path, "scale")) for path, x in named_entries(params) if isinstance(x, Scaled)}
    return map_entries(
        lambda path, _: path in scales or path.name == SCALE_LAYER, params, is_leaf=is_absent
    )


def _factor_tree(params: PyTree, stddevs: PyTree, specs: PyTree, key: Array) -> PyTree:
    """Returns 1 + n at each noisy leaf, and None elsewhere."""

    def factor(path: Path, leaf: Any, sigma: Setting, spec: Any) -> Any:
        return None if sigma is None else _factor(path, leaf, sigma, spec, key)

    return map_entries(factor, params, stddevs, specs, is_leaf=is_absent)


def _factor(
    path: Path, leaf: Any, sigma: Setting, spec: PartitionSpec | None, key: Array
) -> Float[Array, "..."]:
    """Draws 1 + n for a leaf, of which this device may have a slice."""
    mesh_axes = varying_axes(leaf) - varying_axes(key)
    split = split_of(f"the scale {path!r}", leaf, spec, mesh_axes, range(leaf.ndim))
    dtype, whole = promote(leaf).dtype, whole_shape(leaf.shape, split)
    check_per_unit(sigma, whole, f"the stddev of {path!r}")
    sigma = device_slice(jnp.broadcast_to(jnp.asarray(sigma, dtype), whole), leaf.shape, split)
    numbers = (zlib.crc32(str(path).encode()),)
    factor: Array = 1 + sigma * normal(key, numbers, leaf.shape, dtype, None, split)
    return factor


def _multiply(tree: PyTree, factors: PyTree) -> PyTree:
    """Multiplies each leaf by its factor, in the leaf's type."""
    return _map(_times, tree, factors)


def _times(leaf: Any, factor: Float[Array, "..."] | None) -> Any:
    if factor is None or is_absent(leaf):
        return leaf
    return (promote(leaf, factor) * promote(factor, leaf)).astype(leaf.dtype)


def _moved(step: Any, clean: Any, factor: Any) -> Any:
    """Adds a step to a clean leaf with noise, in the leaf's type, as ``optax.apply_updates``."""
    if factor is None or is_absent(step):
        return optax.MaskedNode()
    return (promote(clean, step) + promote(step, clean)).astype(clean.dtype)


def _visible_step(step: Any, moved: Any, factor: Any, noisy: Any) -> Any:
    """Returns the step from a noisy leaf to the moved clean leaf times its next factor."""
    if is_absent(moved):
        return step
    difference = promote(_times(moved, factor), step) - promote(noisy, step)
    # The compiler may keep more digits than the step's type has, unless they are rounded away.
    info = jnp.finfo(step.dtype)
    return jax.lax.reduce_precision(difference, info.nexp, info.nmant).astype(step.dtype)
