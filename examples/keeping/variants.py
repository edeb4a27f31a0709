"""Variants of the probe: batch normalization, the one call, and kernels kept by slow averages.

A variant's ``memory`` is what it carries beside parameters and optimizer: running statistics or
slow averages, and None for the call.
"""

from collections.abc import Callable, Collection
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

import jaxnorm as jn
from examples.keeping import averaged, reference
from examples.keeping.averaged import Averaged
from examples.keeping.kernels import is_kernel
from examples.keeping.networks import (
    Kind,
    Network,
    Params,
    along,
    convolution,
    drawn,
    normalized,
    plain,
    product,
)
from examples.keeping.proxy import layers_of, proxied
from examples.keeping.reference import EPSILON, Moments, Settings, folded, moved, over_examples


class Variant(NamedTuple):
    """One way to train a network.

    Attributes:
        name: of the table.
        settings: of the slow averages, `Averaged` if those of the backward pass are slow too; None
            for batch normalization and the call.
        decay: of the averages, or of batch normalization's running statistics.
        young: whether averages are faster in the first hundred updates.
        every: updates between two measurements.
        length: factor on the kernels V at the start.
        clipped: whether the gradient of each layer is clipped to norm 1.
        ahead: whether a second forward pass moves the averages as each step moves the moments.
        parts: of the call, on slow averages: "quiet" branches, "zero sums", "relative" steps.
        proxy: of the call: the layers with proxy normalization, "all" or those before "depthwise".
    """

    name: str
    settings: Settings | Averaged | None = None
    decay: float = 0.9
    young: bool = False
    every: int = 1
    length: float = 1.0
    clipped: bool = False
    ahead: bool = False
    parts: tuple[str, ...] = ()
    proxy: str = ""

    @property
    def is_call(self) -> bool:
        """True for the library's one call."""
        return self.name.startswith("call")

    @property
    def has_zero_sums(self) -> bool:
        """True for kernels whose zero sums take the place of means."""
        return isinstance(self.settings, Averaged) and self.settings.zero_sums


class Training(NamedTuple):
    """Functions of a network and a variant.

    Attributes:
        start: ``start(seed, x) -> (params, memory, opt_state)``.
        tx: the optimizer, of rate 1.
        forward: ``forward(params, memory, x) -> (logits, measured)``.
        after: ``after(t, memory, (measured, gradient by memory, x), old, new) -> memory``, where
            old and new are parameters.
        renewed: ``renewed(opt_state, params, memory, x) -> opt_state``, before every tenth update.
        plain_params: ``plain_params(params, memory)``, kernels and biases of the plain network.
        logits: ``logits(plain params, x)``.
    """

    start: Callable[..., Any]
    tx: optax.GradientTransformation
    forward: Callable[..., Any]
    after: Callable[..., Any]
    renewed: Callable[..., Any]
    plain_params: Callable[..., Params]
    logits: Callable[..., jax.Array]


def batch_normalized(
    network: Network, params: Params, x: jax.Array
) -> tuple[jax.Array, dict[str, Moments]]:
    """Returns the logits under batch normalization, and the moments of the batch by layer."""
    measured = {}

    def standardize(name: str, x: jax.Array, kind: Kind) -> jax.Array:
        y = product(x, params[name]["kernel"], kind)
        mean = over_examples(y)
        var = over_examples((y - mean) ** 2)
        measured[name] = Moments(*map(jax.lax.stop_gradient, (mean.ravel(), var.ravel())))
        return (y - mean) * jax.lax.rsqrt(var + EPSILON)

    return normalized(network, params, standardize, x), measured


def looked_ahead(
    network: Network, averages: dict[str, Moments], measured: Any, new: Params, x: jax.Array
) -> dict[str, Moments]:
    """Returns the averages, moved as the step moved the moments of its own examples."""
    result = {}

    def standardize(name: str, x: jax.Array, kind: Kind) -> jax.Array:
        y = product(x, new[name]["kernel"], kind)
        mean, old, before = over_examples(y), averages[name], measured[name]
        var = old.var + over_examples((y - mean) ** 2).ravel() - before.var
        ahead = Moments(old.mean + mean.ravel() - before.mean, jnp.maximum(var, old.var / 4))
        result[name] = ahead
        return (y - along(ahead.mean, y)) * jax.lax.rsqrt(along(ahead.var, y) + EPSILON)

    normalized(network, new, standardize, x)
    return result


def estimated_anew(network: Network, params: Params, x: jax.Array) -> dict[str, Moments]:
    """Returns moments over batches of rows, (batches, rows, ...), under batch normalization.

    Those of all rows: the variance of the batches' means is added to the mean of their variances.
    """
    measured = jax.lax.map(lambda x: batch_normalized(network, params, x)[1], x)
    return {
        name: Moments(m.mean.mean(0), m.var.mean(0) + m.mean.var(0)) for name, m in measured.items()
    }


def cross_entropy(logits: jax.Array, y: jax.Array) -> jax.Array:
    """Returns the mean loss."""
    return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()


#: Length of a kernel's update over that of the kernel at a rate of 1, with relative steps.
RELATIVE = 0.05


def sgd(clipped: bool, relative: bool = False) -> optax.GradientTransformation:
    """Returns SGD of rate 1 with momentum 0.9 and a decay of 1e-3 on kernels.

    Its updates are in proportion to the rate, which the step multiplies.
    """
    fixed = jn.fixed_step(RELATIVE) if relative else optax.identity()
    clipping = jn.clip_by_layer_norm(1.0) if clipped else optax.identity()
    decayed = optax.add_decayed_weights(1e-3, mask=is_kernel)
    return optax.chain(clipping, decayed, optax.sgd(1.0, momentum=0.9), fixed)


def relative_step(updates: Any, params: Any) -> jax.Array:
    """Returns the mean over kernels of the length of the update over that of the kernel."""
    pairs = zip(jax.tree.leaves(updates), jax.tree.leaves(params), strict=True)
    ratios = [jnp.linalg.norm(u) / (jnp.linalg.norm(p) + 1e-12) for u, p in pairs if p.ndim > 1]
    return jnp.stack(ratios).mean()


def step(training: Training, t: Any, rate: Any, carry: Any, x: jax.Array, y: jax.Array) -> Any:
    """Returns the next ``(params, memory, opt_state)``, and the loss and the relative step."""
    return step_of(training, t, rate, carry, x, lambda logits: cross_entropy(logits, y))


def step_of(
    training: Training, t: Any, rate: Any, carry: Any, x: jax.Array, loss: Callable[..., jax.Array]
) -> Any:
    """Returns what `step` does, for any loss of the logits."""
    params, memory, opt_state = carry

    def with_measured(params: Any, memory: Any) -> Any:
        logits, measured = training.forward(params, memory, x)
        return loss(logits), measured

    value_and_gradient = jax.value_and_grad(with_measured, argnums=(0, 1), has_aux=True)
    (value, measured), (gradient, pulled) = value_and_gradient(params, memory)
    updates, opt_state = training.tx.update(gradient, opt_state, params)
    updates = jax.tree.map(lambda u: rate * u, updates)
    new = optax.apply_updates(params, updates)
    memory = training.after(t, memory, (measured, pulled, x), params, new)
    return (new, memory, opt_state), (value, relative_step(updates, params))


def make_training(
    network: Network,
    variant: Variant,
    x: jax.Array,
    base: optax.GradientTransformation | None = None,
) -> Training:
    """Returns the functions of a variant; ``x`` are the rows to which the call fits the start.

    ``base`` is the optimizer; None for `sgd`.
    """
    tx = sgd(variant.clipped, "relative" in variant.parts) if base is None else base
    if variant.is_call:
        return _call(network, variant, x, tx)
    if isinstance(variant.settings, Averaged):
        return _averaged(network, variant, variant.settings, tx)
    shaped = zero_sums if "zero sums" in variant.parts else lambda params: params

    def start(seed: Any, x: jax.Array) -> Any:
        params = shaped(drawn(network, jax.random.key(seed), x[:1]))
        params = jax.tree.map(lambda p: variant.length * p if p.ndim > 1 else p, params)
        params = quiet(network, params, x) if "quiet" in variant.parts else params
        return params, batch_normalized(network, params, x)[1], tx.init(params)

    def forward(params: Any, memory: Any, x: jax.Array) -> Any:
        if variant.settings is None:
            return batch_normalized(network, shaped(params), x)
        return reference.forward(network, shaped(params), memory, x, variant.settings)

    def after(t: Any, memory: Any, seen: Any, old: Params, new: Params) -> Any:
        decay = decay_at(variant, t)
        measured, _, x = seen
        old, new = shaped(old), shaped(new)
        averages = {
            name: moved(memory[name], found, old[name], new[name], decay)
            for name, found in measured.items()
        }
        return looked_ahead(network, averages, measured, new, x) if variant.ahead else averages

    plain_params = lambda params, memory: folded(shaped(params), memory)  # noqa: E731
    return Training(start, tx, forward, after, as_it_is, plain_params, partial(plain, network))


def as_it_is(opt_state: Any, params: Any, memory: Any, x: jax.Array) -> Any:
    """Returns the state of the optimizer, of which nothing is renewed."""
    del params, memory, x
    return opt_state


def zero_sums(params: Params, names: Collection[str] | None = None) -> Params:
    """Returns parameters whose kernels of these layers have zero sums.

    None for the normalized layers of several inputs.
    """
    if names is None:
        names = [n for n, x in params.items() if "scale" in x and x["kernel"].shape[2] > 1]
    kernels = {n: {"kernel": averaged.centered(params[n]["kernel"])} for n in names}
    return {name: leaf | kernels.get(name, {}) for name, leaf in params.items()}


def without_scales(params: Params) -> Params:
    """Returns kernels and biases alone."""
    return {
        name: {part: leaf[part] for part in ("kernel", "bias")} for name, leaf in params.items()
    }


def quiet(network: Network, params: Params, x: jax.Array) -> Params:
    """Returns parameters whose branches are scaled by one over the root of their number."""
    readable = lambda params, x: plain(network, params, x, convolution)  # noqa: E731
    factors = jn.residual_factors(jn.read(readable, without_scales(params), x))
    return {
        name: leaf | {"scale": leaf["scale"] * factors[name]["kernel"]} if "scale" in leaf else leaf
        for name, leaf in params.items()
    }


def _averaged(
    network: Network, variant: Variant, s: Averaged, tx: optax.GradientTransformation
) -> Training:
    """Kernels kept by slow averages, whose backward statistics are slow too."""

    def start(seed: Any, x: jax.Array) -> Any:
        params = drawn(network, jax.random.key(seed), x[:1])
        return params, averaged.started(network, params, x, s), tx.init(params)

    def forward(params: Any, memory: Any, x: jax.Array) -> Any:
        return averaged.forward(network, params, memory, x, s)

    def after(t: Any, memory: Any, seen: Any, old: Params, new: Params) -> Any:
        decay = decay_at(variant, t)
        return jax.tree.map(
            lambda *slow: averaged.moved(*slow, decay),
            memory,
            *seen[:2],
            is_leaf=lambda leaf: isinstance(leaf, averaged.Slow),
        )

    def plain_params(params: Params, memory: Any) -> Params:
        return folded(zero_sums(params, memory) if s.zero_sums else params, memory)

    return Training(start, tx, forward, after, as_it_is, plain_params, partial(plain, network))


def decay_at(variant: Variant, t: Any) -> Any:
    """Returns the share of the old averages that stays at update ``t``."""
    decay: Any = variant.decay
    if variant.young:
        decay = jnp.minimum(decay, (t + 1.0) / (t + 10.0))
    return decay if variant.every == 1 else jnp.where(t % variant.every == 0, decay, 1.0)


def _call(
    network: Network, variant: Variant, x: jax.Array, base: optax.GradientTransformation
) -> Training:
    """The library's one call, with input means that are renewed every ten updates."""

    def logits(params: Params, x: jax.Array, product: Any = product) -> jax.Array:
        shifts = {name: leaf["shift"] for name, leaf in params.items() if "shift" in leaf}
        return plain(proxied(network, shifts) if shifts else network, params, x, product)

    def with_shifts(params: Params, first: Any) -> Params:
        """Adds what the biases have moved since the start."""
        shift = {name: {"shift": params[name]["bias"] - bias} for name, bias in first.items()}
        return {name: leaf | shift.get(name, {}) for name, leaf in params.items()}

    def readable_at(shifts: Any) -> Any:
        """The network as the library reads it, with the shifts as constants."""

        def readable(params: Params, x: jax.Array) -> jax.Array:
            both = {name: leaf | shifts.get(name, {}) for name, leaf in params.items()}
            return logits(both, x, convolution)

        return readable

    def called(seed: Any, x: jax.Array) -> Any:
        params = without_scales(drawn(network, jax.random.key(seed), x[:1]))
        names = layers_of(params, variant.proxy) if variant.proxy else ()
        shifts = {name: {"shift": jnp.zeros(1)} for name in names}
        return *jn.normalizer_free(readable_at(shifts), params, base, x), names

    _, tx, _ = called(0, x)

    def start(seed: Any, x: jax.Array) -> Any:
        raw, tx_of_seed, names = called(seed, x)
        # Their own copies: a step that is given the raw parameters donates them.
        first = {name: jnp.copy(jn.effective(raw)[name]["bias"]) for name in names}
        return raw, first, tx_of_seed.init(raw)

    def forward(raw: Any, first: Any, x: jax.Array) -> Any:
        return logits(plain_params(raw, jax.lax.stop_gradient(first)), x), None

    def plain_params(raw: Any, first: Any) -> Params:
        return with_shifts(jn.effective(raw), first)

    def renewed(opt_state: Any, raw: Any, first: Any, x: jax.Array) -> Any:
        now = plain_params(raw, first)
        shifts = {name: {"shift": now[name]["shift"]} for name in first}
        return jn.refresh_input_means(jn.read(readable_at(shifts), jn.effective(raw), x), opt_state)

    after = lambda t, memory, seen, old, new: memory  # noqa: E731
    return Training(start, tx, forward, after, renewed, plain_params, logits)
