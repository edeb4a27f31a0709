"""A training step of the full presets: its memory and operations as compiled, and one that is run.

Nobody's data are read: of the data only shapes matter here, and one step has random rows.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.bench.shapes import shapes_of, zeros
from experiments.bench.step import random_batch
from experiments.bench.table import Measured, write_and_show
from experiments.bench.timing import counted
from experiments.papers.full import Full, full_cells
from experiments.papers.item import Item
from experiments.progress import progress
from experiments.reports.files import prepare_folder
from experiments.resident import with_memory
from experiments.training.ahead_of_time import AheadOfTime
from experiments.training.nonfinite import all_finite
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


class Needs(NamedTuple):
    """What a compiled step needs, in bytes, and does.

    Attributes:
        parameters: the number of them.
        arguments: the state and the batch.
        temporary: what lives during the step.
        new: of the results what is not written in the place of arguments.
        flops: floating-point operations, as the compiler counts them.
    """

    parameters: int
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
        guess_loss: that of a constant guess.
        gradient_norm: of the whole gradient.
        finite: yes if all of the new state is, and both of these.
        seconds: that it took.
        core_seconds: of all cores together, without what else the machine did.
        peak_mib: the most that the process held during it.
    """

    loss: float
    guess_loss: float
    gradient_norm: float
    finite: str
    seconds: float
    core_seconds: float
    peak_mib: float


def kinds(items: Iterable[Item]) -> Iterator[tuple[Full, bool]]:
    """Of each network and input of the items' tables the paper's own method, and BN or none.

    Beside each, whether it is the paper's own.
    """
    seen = set()
    for item in items:
        by_place: dict[tuple[str, str], dict[str, Full]] = {}
        for each in full_cells(item):
            place = each.setting.model, each.row
            by_place.setdefault(place, {}).setdefault(each.cell.method, each)
        paper = item.name.partition("/")[0]
        for place, methods in by_place.items():
            own = next((name for name in OWN[paper] if name in methods), None)
            beside = next((name for name in BESIDE if name in methods and name != own), None)
            for name in filter(None, (own, beside)):
                if (*place, name) not in seen:
                    seen.add((*place, name))
                    yield methods[name], name == own


def trainer_of(full: Full, batch_size: int) -> Trainer:
    """What trains it, made for a dataset of the published shape which takes no memory."""
    return make_trainer(full.method, full.config.changed(batch_size=batch_size), zeros(*full.shape))


def compiled(full: Full) -> Needs:
    """What a step of the paper's batch needs; nothing is computed."""
    size = full.setting.batch_size
    trainer, data = trainer_of(full, size), zeros(full.shape.row, size, full.shape.classes)
    state, batch = shapes_of(trainer, *data[:2])
    step = jax.jit(trainer.step, donate_argnums=0).lower(state, batch).compile()
    sizes: Any = step.memory_analysis()
    new = sizes.output_size_in_bytes - sizes.alias_size_in_bytes
    held = sizes.argument_size_in_bytes, sizes.temp_size_in_bytes, new
    return Needs(parameter_count(state.params), *held, counted(step)[0])


def fitting(batch_size: int, needs: Needs, limit: float) -> int:
    """The batch, halved until its step takes at most so many bytes."""
    rows = batch_size
    while rows > 1 and needs.at(rows / batch_size) > limit:
        rows //= 2
    return rows


def one_step(full: Full, rows: int) -> Step:
    """One step of the optimizer from random parameters, on so many random rows."""
    trainer, (row, _, classes) = trainer_of(full, rows), full.shape
    batch = random_batch(rows, row=row, classes=classes)
    state = trainer.init(np.uint32(0), np.asarray(batch.X))
    step = AheadOfTime(trainer.step, donate_argnums=0)
    step.compile(state, batch)
    began, core = time.perf_counter(), time.process_time()
    (state, metrics), held = with_memory(lambda: jax.block_until_ready(step(state, batch)))
    took = time.perf_counter() - began, time.process_time() - core
    found = float(metrics.loss), float(np.log(classes)), float(metrics.gradient_norm)
    return Step(*found, "yes" if all_finite((state, metrics)) else "no", *took, held.peak)


PLACE = ("item", "network", "input", "method", "batch")
MEMORY_COLUMNS = (
    *(*PLACE, "parameters", "arguments_mib", "temporary_mib", "new_mib", "total_mib", "gflops"),
)


def show_steps(
    items: Iterable[Item], memory: bool, one_step: bool, gib: float, out: Path | None
) -> None:
    """What steps of the items' networks need, and what one finds; as files too if ``out`` is one.

    Args:
        items: any.
        memory: whether what they need is shown.
        one_step: whether one is done of each, with the paper's method.
        gib: what such a step may take.
        out: the folder to write memory.csv and step.csv to, or None.
    """
    found = list(kinds(items))
    if out is not None:
        prepare_folder(out)
    if memory:
        rows = _measured([full for full, _ in found], _memory)
        note = "Memory is that of the compiler's plan."
        write_and_show(Measured(MEMORY_COLUMNS, rows, note), "memory", out)
    if one_step:
        rows = _measured([full for full, own in found if own], lambda full: _step(full, gib))
        note = "The loss is that before the step, beside that of a constant guess."
        columns = (*PLACE, "paper_batch", *Step._fields)
        write_and_show(Measured(columns, rows, note), "step", out)


def _measured(
    found: list[Full], measure: Callable[[Full], tuple[object, ...]]
) -> list[tuple[object, ...]]:
    rows = []
    with progress(len(found)) as (advance, say):
        for full in found:
            place = full.item, full.setting.model, full.row, full.cell.method
            rows.append((*place, *measure(full)))
            say(", ".join(map(str, rows[-1])))
            advance(f"measured {full.setting.model}")
    return rows


def _memory(full: Full) -> tuple[object, ...]:
    needs = compiled(full)
    held = (needs.arguments, needs.temporary, needs.new, needs.total)
    sizes = (round(each / MIB) for each in held)
    return full.setting.batch_size, needs.parameters, *sizes, needs.flops / 1e9


def _step(full: Full, gib: float) -> tuple[object, ...]:
    paper = full.setting.batch_size
    rows = fitting(paper, compiled(full), gib * 2**30)
    return rows, paper, *one_step(full, rows)
