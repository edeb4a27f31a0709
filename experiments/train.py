"""The training of one method under a seed, with checkpoints."""

import inspect
import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np

from experiments.analysis.comparison import comparison_table
from experiments.analysis.csv import write_curves, write_results
from experiments.analysis.table import show_table
from experiments.comparison import Comparison, signal_lines, summary
from experiments.config import NonFinite
from experiments.data.dataset import Dataset
from experiments.errors import Diverged, UserError
from experiments.methods.method import Method
from experiments.methods.optimizer import decayed
from experiments.progress import progress
from experiments.runs.checkpoint_settings import CheckpointSettings
from experiments.runs.files import prepare_folder
from experiments.runs.keeper import keeping
from experiments.runs.processes import join, writes
from experiments.runs.store import FILE, Store
from experiments.settings import Settings
from experiments.training.history import Checkpointer, NoCheckpoints
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
        settings: the settings of the run.
        method: the method.
        seed: the seed of the split, the initialization, the batches and the noise.
        out: the folder for results.csv and curves.csv.
        checkpoints: the settings of checkpoints; None for none.
        nonfinite: the treatment of a step that would make a number not finite.
    """
    join(settings.coordinator, settings.processes, settings.process_id)
    if checkpoints is not None:
        refuse_out_in_checkpoints(out, checkpoints.folder)
    if writes():
        prepare_folder(out)
    comparison = Comparison(settings, nonfinite=nonfinite)
    (spec,), dataset = comparison.specs([(method.name, (), seed)]), comparison.dataset(seed)
    trainer, epochs = comparison.trainer(spec, dataset), settings.epochs
    if not jax.tree.leaves(trainer.context.functional.state):  # No groups of batch statistics.
        spec = replace(spec, config=settings)
    if writes():
        print(description(trainer, dataset), end="\n\n")
        for line in signal_lines(comparison, [spec]):
            print(line, end="\n\n")
    kept: AbstractContextManager[Checkpointer] = nullcontext(NoCheckpoints())
    if checkpoints is not None:
        kept = keeping(checkpoints, spec.described, epochs)
    with progress(epochs, writes()) as (comparison.advance, say), kept as keeper:
        for note in dataset.notes:
            say(note)
        run = comparison.trained(spec, keeper)
        if nonfinite == "stop" and run.diverged:
            raise Diverged(
                f"{spec}: {run.outcome}. The last good checkpoint: {keeper.last()}. "
                "--skip-nonfinite leaves such updates out."
            )
        say(summary(run))
    if not writes():
        return
    if nonfinite == "stop":  # The spec does not tell of updates that are left out.
        Store(out).add(spec, run)
    write_results(out / "results.csv", [run])
    write_curves(out / "curves.csv", [run])
    show_table(comparison_table([run]))
    if nonfinite == "skip" and run.state is not None:
        print(f"\nUpdates left out because a number was not finite: {int(run.state.skipped)}.")
    print(f"\nWritten to {out}: results.csv, curves.csv, {FILE}.")


def description(trainer: Trainer, dataset: Dataset) -> str:
    """Describes in a table which leaves are constrained, free and decayed."""
    raw = jax.eval_shape(inspect.unwrap(trainer.init), np.uint32(0), dataset.X_train).params
    return describe(raw, trainer.layout, decayed=decayed(trainer.context.kernels))


def refuse_out_in_checkpoints(out: Path, folder: str) -> None:
    """Raises UserError for an --out inside the folder of a checkpoint."""
    results, saved = (Path(os.path.abspath(each)) for each in (out, folder))
    if results.is_relative_to(saved) and "".join(results.relative_to(saved).parts[:1]).isdigit():
        raise UserError(
            f"--out is {out}, among the checkpoints of {folder}, whose names are epochs; wanted "
            "another folder: results there would be deleted with the checkpoint."
        )
