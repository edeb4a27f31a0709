"""A training step of the full presets: its memory and operations as compiled, and one that is run.

Nobody's data are read: of the data only shapes matter here, and one step has random rows.
"""

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.bench.timing import counted
from experiments.data.dataset import Dataset
from experiments.methods.method import Method
from experiments.papers.dry_run import SHAPES, Shape
from experiments.papers.grid import Cell, Protocol
from experiments.papers.item import Item
from experiments.papers.training import config_of, method_of
from experiments.papers.trainings import chosen
from experiments.progress import progress
from experiments.reports.table import Table
from experiments.resident import with_memory
from experiments.training.ahead_of_time import AheadOfTime
from experiments.training.nonfinite import all_finite
from experiments.training.state import Batch
from experiments.training.trainer import Trainer, make_trainer
from jaxnorm import parameter_count

#: The methods of each paper, of which the first that an item has is shown.
OWN = {
    "cwo": ("cwo",),
    "lcw": ("lcw", "bn+lcw"),
    "normprop": ("normprop", "normprop-batch"),
    "vcl": ("vcl",),
    "bn": ("pn+gamma-decay", "bn"),
}
#: What stands beside it, likewise.
BESIDE = ("bn", "none")

MIB = 2**20


class Kind(NamedTuple):
    """A network with a method on data of a shape, as one cell of a full preset has it.

    Attributes:
        item: the item's name.
        cell: that cell.
        setting: its protocol.
        own: whether the method is the paper's own.
    """

    item: str
    cell: Cell
    setting: Protocol
    own: bool

    @property
    def shape(self) -> Shape:
        """That of the data."""
        return SHAPES[self.cell.dataset]

    @property
    def method(self) -> Method:
        """The cell's."""
        return method_of(self.cell, self.setting)

    @property
    def named(self) -> tuple[str, str, str, str]:
        """Item, network, input and method."""
        row = " x ".join(map(str, self.shape.row))
        return self.item, self.setting.model, row, self.cell.method


class Needs(NamedTuple):
    """What a compiled step needs, in bytes, and does.

    Attributes:
        arguments: the state and the batch.
        temporary: what lives during the step.
        new: of the results what is not written in the place of arguments.
        flops: floating-point operations, as the compiler counts them.
    """

    arguments: int
    temporary: int
    new: int
    flops: float

    @property
    def total(self) -> int:
        """All bytes together."""
        return self.arguments + self.temporary + self.new

    def at(self, share: float) -> float:
        """The bytes with that share of the batch, if what is temporary is in proportion to it."""
        return self.arguments + self.new + share * self.temporary


class Step(NamedTuple):
    """What one step found.

    Attributes:
        loss: of the batch, with the initial parameters.
        gradient_norm: of the whole gradient.
        finite: whether all of the new state is, and both of these.
        seconds: that it took.
        core_seconds: of all cores together, without what else the machine did.
        peak_mib: the most that the process held during it.
    """

    loss: float
    gradient_norm: float
    finite: bool
    seconds: float
    core_seconds: float
    peak_mib: float


def kinds(items: Iterable[Item]) -> list[Kind]:
    """Of each network and input of the items' tables the paper's own method, and BN or none."""
    found: dict[tuple[str, ...], Kind] = {}
    for item in items:
        full = item.presets["full"].settings
        cells = chosen(item.grid, full) if item.grid else []
        by_place: dict[tuple[str, str], dict[str, Cell]] = {}
        for cell in cells:
            place = full.changed(**cell.changes).model, str(SHAPES[cell.dataset].row)
            by_place.setdefault(place, {}).setdefault(cell.method, cell)
        paper = item.name.partition("/")[0]
        for place, methods in by_place.items():
            own = next((name for name in OWN[paper] if name in methods), None)
            beside = next((name for name in BESIDE if name in methods and name != own), None)
            for name in filter(None, (own, beside)):
                cell = methods[name]
                kind = Kind(item.name, cell, full.changed(**cell.changes), name == own)
                found.setdefault((*place, name), kind)
    return list(found.values())


def trainer_of(kind: Kind, batch_size: int) -> Trainer:
    """What trains it, made for a dataset of the published shape which takes no memory."""
    row, rows, classes = kind.shape
    config = config_of(kind.setting).changed(batch_size=batch_size)
    X = np.broadcast_to(np.float32(0), (rows, *row))
    y = np.broadcast_to(np.int32(0), (rows,))
    return make_trainer(kind.method, config, Dataset(X, y, X, y, kind.cell.dataset, classes))


def compiled(kind: Kind) -> tuple[int, Needs]:
    """The number of parameters, and what a step of the paper's batch needs; nothing is computed."""
    size = kind.setting.batch_size
    trainer = trainer_of(kind, size)
    X: Any = jax.ShapeDtypeStruct((size, *kind.shape.row), np.float32)
    y: Any = jax.ShapeDtypeStruct((size,), np.int32)
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), size))
    state = jax.eval_shape(trainer.init.__wrapped__, jax.ShapeDtypeStruct((), np.uint32), X)
    step = jax.jit(trainer.step, donate_argnums=0).lower(state, Batch(X, y, keys)).compile()
    sizes: Any = step.memory_analysis()
    new = sizes.output_size_in_bytes - sizes.alias_size_in_bytes
    held = sizes.argument_size_in_bytes, sizes.temp_size_in_bytes, new
    return parameter_count(state.params), Needs(*held, counted(step)[0])


def fitting(batch_size: int, needs: Needs, limit: float) -> int:
    """The batch, halved until its step takes at most so many bytes."""
    rows = batch_size
    while rows > 1 and needs.at(rows / batch_size) > limit:
        rows //= 2
    return rows


def one_step(kind: Kind, rows: int) -> Step:
    """One step of the optimizer from random parameters, on so many random rows."""
    trainer = trainer_of(kind, rows)
    random = np.random.default_rng(0)
    X = random.standard_normal((rows, *kind.shape.row), np.float32)
    y = random.integers(0, kind.shape.classes, rows).astype(np.int32)
    state = trainer.init(np.uint32(0), X)
    batch = Batch(jnp.asarray(X), jnp.asarray(y), jax.random.split(jax.random.key(0), rows))
    step = AheadOfTime(trainer.step, donate_argnums=0)
    step.compile(state, batch)
    began, core = time.perf_counter(), time.process_time()
    (state, metrics), held = with_memory(lambda: jax.block_until_ready(step(state, batch)))
    took = time.perf_counter() - began, time.process_time() - core
    finite = bool(all_finite((state, metrics)))
    return Step(float(metrics.loss), float(metrics.gradient_norm), finite, *took, held.peak)


MEMORY_COLUMNS = (
    *("item", "network", "input", "method", "batch", "parameters"),
    *("arguments_mib", "temporary_mib", "new_mib", "total_mib", "gflops"),
)
STEP_COLUMNS = (
    *("item", "network", "input", "method", "batch", "paper_batch", "loss", "guess_loss"),
    *("gradient_norm", "finite", "seconds", "core_seconds", "peak_mib"),
)


def memory_table(items: Iterable[Item]) -> Table:
    """What the compiled steps of the items' networks need."""
    return _table(MEMORY_COLUMNS, kinds(items), _memory)


def step_table(items: Iterable[Item], limit_gib: float) -> Table:
    """One step of each of the items' networks with the paper's method, in so much memory."""
    own = [kind for kind in kinds(items) if kind.own]
    return _table(STEP_COLUMNS, own, partial(_step, limit=limit_gib * 2**30))


def _table(
    columns: tuple[str, ...], found: list[Kind], measure: Callable[[Kind], tuple[str, ...]]
) -> Table:
    rows = []
    with progress(len(found)) as (advance, say):
        for kind in found:
            rows.append((*kind.named, *measure(kind)))
            say(", ".join(rows[-1]))
            advance(f"measured {kind.setting.model}")
    return columns, rows


def _memory(kind: Kind) -> tuple[str, ...]:
    parameters, needs = compiled(kind)
    held = (needs.arguments, needs.temporary, needs.new, needs.total)
    sizes = (f"{each / MIB:.0f}" for each in held)
    batch = str(kind.setting.batch_size)
    return batch, str(parameters), *sizes, f"{needs.flops / 1e9:.4g}"


def _step(kind: Kind, limit: float) -> tuple[str, ...]:
    paper = kind.setting.batch_size
    rows = fitting(paper, compiled(kind)[1], limit)
    step = one_step(kind, rows)
    losses = f"{step.loss:.4g}", f"{np.log(kind.shape.classes):.4g}"
    norm, finite = f"{step.gradient_norm:.4g}", "yes" if step.finite else "no"
    took = f"{step.seconds:.2g}", f"{step.core_seconds:.2g}", f"{step.peak_mib:.0f}"
    return str(rows), str(paper), *losses, norm, finite, *took
