"""One run: a method under a seed, with checkpoints."""

import contextlib
from pathlib import Path
from typing import Any

from experiments._comparison import reporter, summary
from experiments._errors import Diverged
from experiments._progress import progress
from experiments._settings import Settings
from experiments.checkpoints import CheckpointSettings, config_of, keeping
from experiments.data import load
from experiments.methods import Recipe, adjusted
from experiments.reports import (
    comparison_table,
    prepare_folder,
    show_table,
    write_curves,
    write_results,
)
from experiments.training import Keeps, KeepsNothing, NonFinite, fit, join, make_trainer, writes


def train(
    settings: Settings,
    recipe: Recipe,
    seed: int,
    out: Path,
    checkpoints: CheckpointSettings | None = None,
    nonfinite: NonFinite = "stop",
) -> None:
    """Trains one method under one seed; writes results.csv and curves.csv, and prints a table.

    Args:
        settings: of the run.
        recipe: the method.
        seed: of the split, the initialization, the batches and the noise.
        out: the folder for results.csv and curves.csv.
        checkpoints: where they go, and from which to resume; None for none.
        nonfinite: what is done about a step that would make something not finite.
    """
    join(settings.coordinator, settings.processes, settings.process_id)
    training = settings.training()._replace(nonfinite=nonfinite)
    recipe = adjusted(recipe, settings)
    if writes():
        prepare_folder(out)
    dataset = load(settings.dataset, seed, settings.train_rows)
    trainer = make_trainer(recipe, training, dataset)
    config = config_of(settings, *dataset[:4])
    with (
        progress(training.epochs, writes()) as (advance, say),
        _kept(checkpoints, config, training.epochs) as keeper,
    ):
        report = reporter(f"{recipe.name}, seed {seed}", training.epochs, advance)
        try:
            run = fit(trainer, dataset, seed, report, keeper)
        except Diverged as error:
            raise Diverged(
                f"{recipe.name}, seed {seed}: {error}. The last good checkpoint: {keeper.last()}. "
                "--skip-nonfinite leaves such updates out."
            ) from error
        say(summary(run))
    if not writes():
        return
    write_results(out / "results.csv", [run])
    write_curves(out / "curves.csv", [run])
    show_table(comparison_table([run]))
    if nonfinite == "skip":
        print(f"\nUpdates left out, as something was not finite: {int(run.state.skipped)}.")
    print(f"\nWritten to {out}: results.csv, curves.csv.")


def _kept(
    checkpoints: CheckpointSettings | None, config: dict[str, Any], epochs: int
) -> contextlib.AbstractContextManager[Keeps]:
    if checkpoints is None:
        return contextlib.nullcontext(KeepsNothing())
    return keeping(checkpoints, config, epochs)
