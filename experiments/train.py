"""The command ``train``: one method under one seed, with checkpoints."""

import inspect
import os
import textwrap
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np

from experiments.analysis.comparison import comparison_table
from experiments.analysis.csv import write_curves, write_results
from experiments.analysis.table import show_table
from experiments.commands import Train
from experiments.data.dataset import Dataset
from experiments.errors import UserError
from experiments.methods.optimizer import decayed
from experiments.methods.statistics import WORDS as STATISTICS
from experiments.methods.table import find_methods
from experiments.runs.checkpoint_settings import CheckpointSettings
from experiments.runs.comparison import (
    Comparison,
    others_note,
    signal_lines,
    summary,
    with_others,
)
from experiments.runs.files import prepare_folder
from experiments.runs.keeper import Keeper, keeping
from experiments.runs.lock import PATIENCE, alone_in, check_free
from experiments.runs.marks import mark
from experiments.runs.outputs import PAGE, check_outputs
from experiments.runs.processes import writes
from experiments.runs.progress import progress
from experiments.runs.spec import Spec
from experiments.runs.store import FILE, Store
from experiments.training.run import Diverged, Run
from experiments.training.trainer import Trainer
from jaxnorm import describe


def train(flags: Train) -> None:
    """Trains the method; writes results.csv and curves.csv, and prints a table."""
    check_folders(flags.out, flags.checkpoints)
    config = flags.config.changed(nonfinite="skip" if flags.skip_nonfinite else "stop")
    method = _method(flags)
    saved = flags.checkpoints.checkpoint_dir
    folders = {"--tensorboard": config.tensorboard, "--checkpoint-dir": saved}
    if writes():
        check_outputs(flags.out, config.dataset, folders)
        check_free(flags.out)
        prepare_folder(flags.out)
    comparison = Comparison(config)
    (spec,) = comparison.specs([(method, (), flags.seed)])
    dataset = comparison.dataset(flags.seed)
    trainer = comparison.trainer(spec, dataset)
    if not jax.tree.leaves(trainer.context.functional.state):  # No groups of batch statistics.
        spec = replace(spec, config=config)
    if writes():
        print(description(trainer, dataset), end="\n\n")
        for line in signal_lines(comparison, [spec]):
            print(line, end="\n\n")
    store = Store(flags.out)
    if writes():
        store.check_writable()
    mark([flags.out / PAGE])
    run, began = _trained(flags, comparison, spec)
    if not writes():
        return
    skipped = _stored(store, spec, run, began, flags.skip_nonfinite)

    def report() -> list[str]:
        runs = with_others(comparison, store, [spec], [run])
        with alone_in(flags.out, wait=PATIENCE):
            check_outputs(flags.out, config.dataset, folders)
            mark([flags.out / PAGE])  # A comparison may have written it meanwhile.
            write_results(flags.out / "results.csv", runs)
            write_curves(flags.out / "curves.csv", runs)
        return others_note(store, runs)

    others = store.until_complete(report)
    if flags.skip_nonfinite or skipped:
        print(f"\nUpdates left out because a number was not finite: {skipped}.")
    if trainer.method.has_statistics:
        print("", textwrap.fill(STATISTICS, 100), sep="\n")
    print(f"\nWritten to {flags.out}: results.csv, curves.csv, {FILE}.", *others, sep="\n")


def _method(flags: Train) -> str:
    methods = find_methods(flags.method)
    if len(methods) != 1:
        raise UserError(f"--method is {flags.method!r}; wanted one name (compare takes several).")
    return methods[0].name


def _trained(
    flags: Train, comparison: Comparison, spec: Spec
) -> tuple[Run, Mapping[str, str] | None]:
    """Trains and prints the run; returns it with the versions that a resumed run began with.

    Raises:
        Diverged: at a number that is not finite.
    """
    epochs = spec.config.epochs
    with keeping(flags.checkpoints, spec.resumed, epochs) as keeper:
        with progress(epochs, writes()) as (advance, say):
            for note in comparison.dataset(flags.seed).notes:
                say(note)
            run = comparison.trained(spec, keeper, advance, say)
            if run.diverged and not flags.skip_nonfinite:
                raise Diverged(
                    f"{spec}: {run.outcome}. The last good checkpoint: {keeper.last()}. "
                    "--skip-nonfinite leaves such updates out."
                )
            say(summary(run))
        if writes():  # Before a full disk ends the program.
            show_table(comparison_table([run]))
    return run, keeper.versions if isinstance(keeper, Keeper) else None


def _stored(
    store: Store, spec: Spec, run: Run, began: Mapping[str, str] | None, skips: bool
) -> int:
    """Stores a run unless it may leave updates out, or did before it was resumed.

    A spec does not tell of such updates. Returns their number.
    """
    skipped = 0 if run.state is None else int(run.state.skipped)
    if not (skips or skipped):
        store.add(spec, run, began)
    return skipped


def description(trainer: Trainer, dataset: Dataset) -> str:
    """Describes in a table which leaves are constrained, free and decayed."""
    raw = jax.eval_shape(inspect.unwrap(trainer.init), np.uint32(0), dataset.X_train).params
    return describe(raw, trainer.layout, decayed=decayed(trainer.context.kernels))


def check_folders(out: Path, checkpoints: CheckpointSettings) -> None:
    """Raises UserError for resuming from no folder, and for an --out inside a checkpoint."""
    folder = checkpoints.checkpoint_dir
    if folder is None:
        if checkpoints.resume or checkpoints.resume_from is not None:
            raise UserError(
                "--resume needs a folder; wanted --checkpoint-dir: give the one to resume from."
            )
        return
    results, saved = (Path(os.path.abspath(each)) for each in (out, folder))
    if results.is_relative_to(saved) and "".join(results.relative_to(saved).parts[:1]).isdigit():
        raise UserError(
            f"--out is {out}, among the checkpoints of {folder}, whose names are epochs; wanted "
            "another folder: results there would be deleted with the checkpoint."
        )
