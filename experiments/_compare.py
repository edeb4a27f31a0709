"""The comparison: each method under each seed, on the same splits."""

from collections.abc import Callable, Sequence
from pathlib import Path

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
    Epoch,
    Run,
    Trainer,
    TrainingSettings,
    fit,
    join,
    make_trainer,
    writes,
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
    runs = run_all(settings, recipes, seeds, out)
    if not writes():
        return
    of_seeds = f": mean and range of {len(seeds)} seeds" if len(seeds) > 1 else ""
    name = Path(settings.dataset).name
    draw_curves(out / "curves.png", runs, f"{name}, {settings.model}{of_seeds}")
    table = comparison_table(runs)
    write_whole(out / "table.md", f"{markdown(table)}\n\n{NOTE}\n\n{provenance(command)}")
    show_table(table)
    print(f"\n{NOTE}\nWritten to {out}: results.csv, curves.csv, curves.png, table.md.")


def run_all(
    settings: Settings, recipes: Sequence[Recipe], seeds: Sequence[int], out: Path
) -> list[Run]:
    """Trains every recipe under every seed, and rewrites the CSV files after each run.

    Of several processes all train, and one writes and shows progress.
    """
    join(settings.coordinator, settings.processes, settings.process_id)
    training = settings.training()
    recipes = [adjusted(recipe, settings) for recipe in recipes]
    if writes():
        prepare_folder(out)
    datasets = {seed: load(settings.dataset, seed) for seed in seeds}
    trainer_for = _trainers(training)
    for recipe in recipes:  # Whatever does not fit is told before any work is done.
        trainer_for(recipe, datasets[seeds[0]])
    runs: list[Run] = []
    with progress(len(recipes) * len(seeds) * training.epochs, writes()) as (advance, say):
        for recipe in recipes:
            for seed in seeds:
                trainer = trainer_for(recipe, datasets[seed])
                say_epoch = reporter(f"{recipe.name}, seed {seed}", training.epochs, advance)
                run = fit(trainer, datasets[seed], seed, say_epoch)
                runs.append(run._replace(state=None))
                say(summary(run))
                if writes():
                    write_results(out / "results.csv", runs)
                    write_curves(out / "curves.csv", runs)
    return runs


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
    return (
        f"{run.method}, seed {run.seed}: test accuracy {100 * last.test_accuracy:.2f}%, "
        f"training loss {last.train_loss:.4g}, {run.step_ms:.2f} ms a step"
    )
