"""One run: a method under a seed, with checkpoints."""

import inspect
import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np

from experiments.checkpoints.keeper import keeping
from experiments.checkpoints.settings import CheckpointSettings
from experiments.comparison import Comparison, summary
from experiments.config import NonFinite
from experiments.data.dataset import Dataset
from experiments.errors import Diverged, UserError
from experiments.methods.method import Method
from experiments.methods.optimizer import decayed
from experiments.progress import progress
from experiments.reports.csv import write_curves, write_results
from experiments.reports.files import prepare_folder
from experiments.reports.show import show_table
from experiments.reports.table import comparison_table
from experiments.runs.store import FILE, Store
from experiments.settings import Settings
from experiments.training.history import Checkpointer, NoCheckpoints
from experiments.training.processes import join, writes
from experiments.training.trainer import Trainer
from jaxnorm import describe


def train(
    settings: Settings,
    method: Method,
    seed: int,
    out: Path,
    checkpoints: CheckpointSettings | None = None,
    nonfinite: NonFinite = "stop",
) -> None:
    """Trains one method under one seed; writes results.csv and curves.csv, and prints a table.

    Args:
        settings: of the run.
        method: the method.
        seed: of the split, the initialization, the batches and the noise.
        out: the folder for results.csv and curves.csv.
        checkpoints: where they go, and from which to resume; None for none.
        nonfinite: what is done about a step that would make something not finite.
    """
    join(settings.coordinator, settings.processes, settings.process_id)
    if checkpoints is not None:
        refuse_out_in_checkpoints(out, checkpoints.folder)
    if writes():
        prepare_folder(out)
    comparison = Comparison(settings, nonfinite=nonfinite)
    (spec,), dataset = comparison.specs([(method.name, (), seed)]), comparison.dataset(seed)
    trainer, epochs = comparison.trainer(spec, dataset), settings.epochs
    if not has_statistics(trainer):
        spec = replace(spec, config=settings)
    if writes():
        print(description(trainer, dataset), end="\n\n")
    kept: AbstractContextManager[Checkpointer] = nullcontext(NoCheckpoints())
    if checkpoints is not None:
        kept = keeping(checkpoints, spec.described, epochs)
    with progress(epochs, writes()) as (comparison.advance, say), kept as keeper:
        run = comparison.trained(spec, keeper)
        if nonfinite == "stop" and run.diverged:
            raise Diverged(
                f"{spec}: {run.outcome}. The last good checkpoint: {keeper.last()}. "
                "--skip-nonfinite leaves such updates out."
            )
        say(summary(run))
    if not writes():
        return
    if nonfinite == "stop":  # Of updates that are left out no spec tells.
        Store(out).add(spec, run)
    write_results(out / "results.csv", [run])
    write_curves(out / "curves.csv", [run])
    show_table(comparison_table([run]))
    if nonfinite == "skip" and run.state is not None:
        print(f"\nUpdates left out, as something was not finite: {int(run.state.skipped)}.")
    print(f"\nWritten to {out}: results.csv, curves.csv, {FILE}.")


def description(trainer: Trainer, dataset: Dataset) -> str:
    """Which leaves are constrained, free and decayed, as a table."""
    raw = jax.eval_shape(inspect.unwrap(trainer.init), np.uint32(0), dataset.X_train).params
    return describe(raw, trainer.layout, decayed=decayed(trainer.context.kernels))


def refuse_out_in_checkpoints(out: Path, folder: str) -> None:
    """Raises UserError for results in a folder that would be taken for a checkpoint."""
    place, kept = (Path(os.path.abspath(each)) for each in (out, folder))
    if place.is_relative_to(kept) and "".join(place.relative_to(kept).parts[:1]).isdigit():
        raise UserError(
            f"--out is {out}, among the checkpoints of {folder}, whose names are epochs; wanted "
            "another folder: results there would be deleted with the checkpoint."
        )


def has_statistics(trainer: Trainer) -> bool:
    """Whether the network has any beside its parameters, as those of batches."""
    return bool(jax.tree.leaves(trainer.context.functional.state))
