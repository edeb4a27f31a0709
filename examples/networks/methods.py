"""Methods of `whole.py`: batch normalization, its rivals, and the one call."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

import jaxnorm as jn
from examples.networks.built import ENTRIES, Built, Entry
from examples.networks.kernels import is_kernel
from examples.networks.mimicnorm import mimicnorm

#: Parts of the call that can be taken away, by the name of the method.
PARTS = {
    "call": {},
    "call - zero sums": {"zero_sums": False},
    "call - unit start": {"fitted": False, "zero_sums": True, "quiet": True},
    "call - centered inputs": {"centered": False},
    "call - quiet branches": {"quiet": False},
}

#: Standard deviations of noise on the scales, drawn per image and unit, by the name of the method.
NOISES = {f"call + noise {stddev}": stddev for stddev in (0.1, 0.3)}

METHODS = ("bn", "bn quiet", "gn", "agc", "mimicnorm", "moving averages", *PARTS, *NOISES)

#: The largest gradient of a unit relative to its weights, in adaptive gradient clipping.
AGC = 0.1


class Prepared(NamedTuple):
    """A network as a method trains it.

    Attributes:
        built: the network's functions.
        start: ``start(seed, optimizer) -> (raw, tx)``, traceable.
        plain: ``plain(raw)``, the parameters of the network.
        clips_layers: whether the optimizer clips the gradient of each layer.
        noise: the standard deviation of noise on the scales of all kernels but the classifier's.
        noiseless: regular expression of the classifier's path.
        in_loss: ``in_loss(apply) -> (raw, x) -> logits``, of a form of the network, where the
            logits in the loss are not those of ``plain``.
    """

    built: Built
    start: Callable[[Any, optax.GradientTransformation], tuple[Any, Any]]
    plain: Callable[[Any], Any] = jn.effective
    clips_layers: bool = True
    noise: float = 0.0
    noiseless: str = ""
    in_loss: Callable[[Any], Callable[[Any, jax.Array], jax.Array]] | None = None


def prepare(
    method: str, network: str, x: jax.Array, classes: int, fitted_on: jax.Array
) -> Prepared:
    """Returns a network as a method trains it.

    Args:
        method: one of METHODS.
        network: one of ENTRIES.
        x: an example of the batches.
        classes: the number of classes.
        fitted_on: rows to which initial parameters are fitted.
    """
    entry = ENTRIES[network]
    norm = "bn" if method in ("bn", "bn quiet") else "gn" if method == "gn" else "none"
    built = entry.build(x, classes, norm)
    if method == "bn":
        return Prepared(built, lambda seed, tx: (built.draw(seed), tx))
    if method == "bn quiet":
        return _quiet(built, x)
    if method == "gn":
        return _standardized(built, entry, x)
    if method == "agc":
        return _clipped(built, entry, fitted_on)
    if method == "mimicnorm":
        depth = 3 if network in ("bottleneck ResNet", "ResNet-50") else 2
        fitted = mimicnorm(built, x, entry.free, depth)
        drawn = fitted.built.draw
        return Prepared(fitted.built, lambda seed, tx: (drawn(seed), fitted.constrained(tx)))
    if method == "moving averages":
        return _moving_averages(built, fitted_on)
    if method in NOISES:
        called = _call(built, fitted_on, {})
        return called._replace(noise=NOISES[method], noiseless=entry.head)
    return _call(built, fitted_on, PARTS[method])


def _quiet(built: Built, x: jax.Array) -> Prepared:
    """Batch normalization whose last scales start at 1 / sqrt(branches)."""
    factors = jn.residual_factors(jn.read(built.logits, built.params, x[:2]))

    def start(seed: Any, tx: optax.GradientTransformation) -> tuple[Any, Any]:
        return jn.scale_branches(built.draw(seed), factors), tx

    return Prepared(built, start)


def _standardized(built: Built, entry: Entry, x: jax.Array) -> Prepared:
    """GroupNorm with standardized kernels, except the classifier's and those of gates."""
    # Depthwise kernels are standardized too: GroupNorm follows them.
    layout = jn.traced_layout(jn.read(built.logits, built.params, x[:1]))
    axes = jn.exclude(f"{entry.head}{entry.gates}", layout=layout)

    def standardized(kernel: jax.Array, fan_in: tuple[int, ...]) -> jax.Array:
        centered = kernel - kernel.mean(fan_in, keepdims=True)
        total = (centered**2).sum(fan_in, keepdims=True)
        return centered * jax.lax.rsqrt(total + 1e-8)

    plain = lambda raw: jn.map_kernels(standardized, axes, raw)  # noqa: E731
    return Prepared(built, lambda seed, tx: (built.draw(seed), tx), plain)


def _clipped(built: Built, entry: Entry, x: jax.Array) -> Prepared:
    """Adaptive gradient clipping of kernels in the place of clipping per layer.

    The classifier's kernel is not clipped. The start is fitted, with quiet branches.
    """
    net = jn.read(built.logits, built.params, x[:2])
    layout = jn.exclude(entry.head, layout=jn.traced_layout(net))
    factors = jn.residual_factors(net)

    def is_clipped(params: Any) -> Any:
        return jax.tree.map(lambda leaf, axes: axes is not None, params, layout(params))

    clipping = optax.masked(optax.adaptive_grad_clip(AGC), is_clipped)

    def start(seed: Any, tx: optax.GradientTransformation) -> tuple[Any, Any]:
        params = jn.variance_preserving_init(
            jn.read(built.logits, built.draw(seed), x), layout=layout
        )
        return jn.scale_branches(params, factors), optax.chain(clipping, tx)

    return Prepared(built, start, clips_layers=False)


def _call(built: Built, x: jax.Array, switches: dict[str, bool]) -> Prepared:
    """The one call, with parts of it taken away."""

    def start(seed: Any, tx: optax.GradientTransformation) -> tuple[Any, Any]:
        return jn.normalizer_free(built.logits, built.draw(seed), tx, x, **switches)

    return Prepared(built, start)


def _moving_averages(built: Built, x: jax.Array) -> Prepared:
    """Batch normalization's training in the plain network."""

    def start(seed: Any, tx: optax.GradientTransformation) -> tuple[Any, Any]:
        return jn.moving_average_normalization(built.logits, built.draw(seed), tx, x)[1:]

    def in_loss(apply: Any) -> Any:
        logits = lambda params, x: apply(params, built.state, x, train=True)[0]  # noqa: E731
        return jn.moving_average_normalization(logits, built.params, optax.identity(), x)[0]

    return Prepared(built, start, in_loss=in_loss)


def has_input_means(method: str) -> bool:
    """Returns True if the optimizer's state has input means, which are renewed now and then."""
    return method in PARTS and method != "call - centered inputs"


def optimizer(
    name: str, rate: Any, decay: Any, steps: int, clips_layers: bool, warm_up: float = 0.1
) -> optax.GradientTransformation:
    """Returns SGD with momentum, AdamW or Muon, with warm-up, cosine, clipping and decay.

    Of a warm-up of 0 the first update is of rate 0.

    "adamw relative" and "muon relative" move each kernel in proportion to its size: as without that
    where its root mean square is 1/4, as it is for 32 inputs and He's start.
    """
    factor = optax.warmup_cosine_decay_schedule(0.0, 1.0, max(1, int(warm_up * steps)), steps)
    schedule: optax.Schedule = lambda count: rate * factor(count)  # noqa: E731
    clipping = jn.clip_by_layer_norm(1.0) if clips_layers else optax.identity()
    if name == "adamw":
        return optax.chain(clipping, optax.adamw(schedule, weight_decay=decay, mask=is_kernel))
    if name == "muon":
        decays = {"weight_decay": decay, "weight_decay_mask": is_kernel}
        return optax.chain(clipping, _muon(schedule, **decays))
    if name in ("adamw relative", "muon relative"):
        direction = optax.scale_by_adam() if name == "adamw relative" else _muon(-1.0)
        sized = optax.chain(optax.scale_by_param_block_rms(), optax.scale(4.0))
        return optax.chain(
            clipping,
            direction,
            optax.masked(sized, is_kernel),
            optax.add_decayed_weights(decay, mask=is_kernel),
            optax.scale_by_learning_rate(schedule),
        )
    decayed = optax.add_decayed_weights(decay, mask=is_kernel)
    return optax.chain(clipping, decayed, optax.sgd(schedule, momentum=0.9))


def _muon(rate: Any, **decays: Any) -> optax.GradientTransformation:
    """Returns Muon on kernels, as matrices of inputs and units, and Adam on other parameters."""
    matrices = lambda params: jax.tree.map(_matrix_axes, params)  # noqa: E731
    return optax.contrib.muon(
        rate, consistent_rms=0.2, muon_weight_dimension_numbers=matrices, **decays
    )


def _matrix_axes(leaf: Any) -> Any:
    """Returns the axes of a kernel for Muon, None for other parameters."""
    if jnp.ndim(leaf) < 2:
        return None
    return optax.contrib.MuonDimensionNumbers(
        reduction_axis=tuple(range(jnp.ndim(leaf) - 1)), output_axis=jnp.ndim(leaf) - 1
    )
