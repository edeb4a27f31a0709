"""One optimizer update on a large network's kernels, against SGD with momentum."""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import optax
from optax import contrib

import jaxnorm
from experiments.bench.effective import random_params, wide_resnet_kernels
from experiments.bench.table import Measured
from experiments.bench.timing import counted, median_and_ratio, times_in_turn
from experiments.methods.part import Optimizer
from experiments.methods.rivals.hyperball import hyperball
from experiments.methods.rivals.nero import normalize_units

BASE, CONTROL = "SGD", "SGD again"
COLUMNS = (
    *("network", "optimizer", "ms", "ratio", "ratio_low", "ratio_high"),
    *("operations_per_weight", "bytes_per_weight", "temporary_bytes_per_weight"),
)


def decoder_kernels(width: int = 1024, layers: int = 24) -> list[tuple[int, ...]]:
    """The kernel shapes of a decoder's blocks, those of GPT-2 medium: 302M weights."""
    block: list[tuple[int, ...]] = [
        (width, 3 * width),
        (width, width),
        (width, 4 * width),
        (4 * width, width),
    ]
    return layers * block


def _sgd() -> Optimizer:
    return optax.sgd(0.1, momentum=0.9)


def _nero() -> Optimizer:
    normalize = normalize_units(jaxnorm.flax_layout, 0.999)
    return optax.chain(normalize, _sgd(), jaxnorm.sphere_projection(squared_radius=1.0))


#: Those that are measured on the large network too, each with arrays of its own.
FEW: Mapping[str, Callable[[], Optimizer]] = MappingProxyType(
    {
        BASE: _sgd,
        "Adam": lambda: optax.adam(1e-3),
        "constrained": lambda: optax.chain(_sgd(), jaxnorm.sphere_projection()),
    }
)
ALL = MappingProxyType(
    {
        **FEW,
        CONTROL: _sgd,
        "constrained, not centered": lambda: optax.chain(
            _sgd(), jaxnorm.sphere_projection(centered=False)
        ),
        "constrained Adam": lambda: optax.chain(optax.adam(1e-3), jaxnorm.sphere_projection()),
        "centered gradient": lambda: optax.chain(jaxnorm.centered_gradient(), _sgd()),
        "optax.centralize": lambda: optax.chain(optax.centralize(), _sgd()),
        "clipped layer by layer": lambda: optax.chain(jaxnorm.clip_by_layer_norm(1.0), _sgd()),
        "clipped adaptively": lambda: optax.chain(optax.adaptive_grad_clip(0.01), _sgd()),
        "Nero": _nero,
        "Hyperball": lambda: hyperball(_sgd(), jaxnorm.flax_layout),
    }
)
#: Muon's own steps are for matrices, and Adam's for the rest: it is measured on a decoder.
MATRICES = MappingProxyType({**FEW, "Muon": lambda: contrib.muon(0.02)})
#: The kernels of a network, and what is measured on them.
NETWORKS = {
    "WRN-28-10": (wide_resnet_kernels, ALL),
    "decoder, 256 wide": (lambda: decoder_kernels(256, 12), MATRICES),
    "decoder, 1024 wide": (decoder_kernels, FEW),
}


class _Subject(NamedTuple):
    """A compiled update, and the parameters and state that it is called with."""

    compiled: jax.stages.Compiled
    arrays: list[Any]

    def run(self, gradients: Any) -> Any:
        """Steps; the buffers of the old parameters and state are given away."""
        self.arrays[:] = self.compiled(*self.arrays, gradients)
        return self.arrays


def bench_update(flags: Any) -> Measured:
    """An optimizer's update at 36M, 9M and 302M weights, constrained and not, against SGD's."""
    rows = [row for name in NETWORKS for row in _rows(name, flags.repeats)]
    note = "SGD has momentum; operations and bytes are the compiler's, a weight."
    return Measured(COLUMNS, rows, note)


def _rows(network: str, repeats: int) -> list[tuple[Any, ...]]:
    kernels, optimizers = NETWORKS[network]
    params = jaxnorm.project(random_params(kernels()))
    size = sum(w.size for w in jax.tree.leaves(params))
    subjects = {name: _subject(make(), params) for name, make in optimizers.items()}
    # What the gradients are does not matter: the parameters take no memory of their own.
    calls = {name: partial(subject.run, params) for name, subject in subjects.items()}
    times = times_in_turn(calls, repeats)
    return [
        (
            network,
            name,
            *median_and_ratio(times[name], times[BASE]),
            *(count / size for count in (*counted(subject.compiled), _temporary(subject))),
        )
        for name, subject in subjects.items()
    ]


def _subject(optimizer: Optimizer, params: Any) -> _Subject:
    def step(params: Any, state: Any, gradients: Any) -> tuple[Any, Any]:
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state

    own = jax.tree.map(lambda w: w.copy(), params)
    arrays = [own, optimizer.init(own)]
    jitted = jax.jit(step, donate_argnums=(0, 1))
    return _Subject(jitted.lower(*arrays, params).compile(), arrays)


def _temporary(subject: _Subject) -> float:
    memory = subject.compiled.memory_analysis()
    return float("nan") if memory is None else memory.temp_size_in_bytes
