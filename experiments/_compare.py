"""The comparison: each method under each seed, on the same splits."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from experiments._errors import Diverged
from experiments._progress import Advance, progress
from experiments._settings import Settings
from experiments.data import Dataset, load
from experiments.methods import Recipe, adjusted
from experiments.reports import (
    comparison_table,
    draw_curves,
    markdown,
    prepare_folder,
    provenance,
    show_table,
    write_curves,
    write_results,
    write_whole,
)
from experiments.training import (
    DIVERGED,
    Epoch,
    Run,
    Trainer,
    TrainingSettings,
    fit,
    join,
    make_trainer,
    start,
    writes,
)
from jaxnorm import parameter_count

HELP = (
    "A smaller --learning-rate may help; in code of your own also jaxnorm.clip_by_layer_norm, "
    "before the optimizer."
)

NOTE = (
    "Mean ± standard deviation over seeds. Accuracies are percentages here and fractions from 0 to "
    "1 in results.csv and curves.csv.\nTraining figures are the last epoch's, as the network was "
    "while it trained; test figures are in evaluation mode, without noise."
)


def compare(
    settings: Settings, recipes: Sequence[Recipe], seeds: Sequence[int], out: Path, command: str
) -> None:
    """Trains every method under every seed; writes and prints the results.

    Args:
        settings: what the methods share.
        recipes: the methods; the table counts points against the first.
        seeds: of the splits, the initializations, the batches and the noise.
        out: the folder for results.csv, curves.csv, curves.png and table.md.
        command: what the user typed, for table.md.
    """
    join(settings.coordinator, settings.processes, settings.process_id)
    training = settings.training()._replace(nonfinite="stop")
    if writes():
        prepare_folder(out)
    datasets = {seed: load(settings.dataset, seed, settings.train_rows) for seed in seeds}
    recipes = [adjusted(recipe, settings) for recipe in recipes]
    runs = run_all(training, recipes, datasets, out)
    if not writes():
        return
    of_seeds = f": mean and range of {len(seeds)} seeds" if len(seeds) > 1 else ""
    name = Path(settings.dataset).name
    model = training.model.on(datasets[seeds[0]].X_train.shape[1:])
    draw_curves(out / "curves.png", runs, f"{name}, {model.name}{of_seeds}")
    table = comparison_table(runs)
    write_whole(out / "table.md", f"{markdown(table)}\n\n{NOTE}\n\n{provenance(command)}")
    show_table(table)
    print(*said_of_failures(runs), sep="\n")
    print(f"\n{NOTE}\nWritten to {out}: results.csv, curves.csv, curves.png, table.md.")


def said_of_failures(runs: Sequence[Run]) -> list[str]:
    """A line for each run that did not train, and what may help."""
    said = [f"{run.method}, seed {run.seed}: {run.outcome}." for run in runs if run.outcome]
    return [*said, HELP] if said else []


def run_all(
    training: TrainingSettings,
    recipes: Sequence[Recipe],
    datasets: Mapping[int, Dataset],
    out: Path,
) -> list[Run]:
    """Trains every recipe on the data of every seed, and rewrites the CSV files after each run.

    Of several processes all train, and one writes and shows progress.
    """
    trainer_for = _trainers(training)
    for recipe in recipes:  # Whatever does not fit is told before any work is done.
        trainer_for(recipe, next(iter(datasets.values())))
    runs: list[Run] = []
    with progress(len(recipes) * len(datasets) * training.epochs, writes()) as (advance, say):
        for recipe in recipes:
            for seed, dataset in datasets.items():
                say_epoch = reporter(f"{recipe.name}, seed {seed}", training.epochs, advance)
                run = fit_or_diverge(trainer_for(recipe, dataset), dataset, seed, say_epoch)
                runs.append(run._replace(state=None))
                say(summary(run))
                if writes():
                    write_results(out / "results.csv", runs)
                    write_curves(out / "curves.csv", runs)
    return runs


def fit_or_diverge(
    trainer: Trainer, dataset: Dataset, seed: int, report: Callable[[Epoch], None]
) -> Run:
    """The run; of one that diverges the epochs before, and one of NaNs."""
    try:
        return fit(trainer, dataset, seed, report)
    except Diverged as error:
        lost = Epoch(len(error.curve) + 1, *[math.nan] * 4)
        for _ in range(trainer.settings.epochs - len(error.curve)):
            report(lost)
        parameters = parameter_count(start(trainer, seed, dataset.X_train).params)
        outcome = f"{DIVERGED}, {error}"
        curve = [*error.curve, lost]
        return Run(trainer.recipe.name, seed, curve, error.step_ms, parameters, None, outcome)


def _trainers(training: TrainingSettings) -> Callable[[Recipe, Dataset], Trainer]:
    """One trainer for each recipe and shape of data: every seed shares its compiled functions."""
    made: dict[tuple[object, ...], Trainer] = {}

    def trainer_for(recipe: Recipe, dataset: Dataset) -> Trainer:
        key = (recipe.name, dataset.X_train.shape, dataset.num_classes)
        if key not in made:
            made[key] = make_trainer(recipe, training, dataset)
        return made[key]

    return trainer_for


def reporter(name: str, epochs: int, advance: Advance) -> Callable[[Epoch], None]:
    """Moves the progress bar at each epoch of the run of that name."""
    return lambda entry: advance(f"{name}, epoch {entry.epoch} of {epochs}")


def summary(run: Run) -> str:
    """A finished run in a line."""
    last = run.curve[-1]
    if run.diverged:
        return f"{run.method}, seed {run.seed}: {run.outcome}"
    return (
        f"{run.method}, seed {run.seed}: test accuracy {100 * last.test_accuracy:.2f}%, "
        f"training loss {last.train_loss:.4g}, {run.step_ms:.2f} ms a step"
    )
