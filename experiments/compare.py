"""The comparison: each method under each seed, on the same splits."""

from collections.abc import Sequence
from pathlib import Path

from experiments.comparison import Comparison, run_all
from experiments.methods.method import Method
from experiments.reports.curves import draw_curves
from experiments.reports.files import prepare_folder, write_whole
from experiments.reports.show import show_table
from experiments.reports.table import comparison_table, markdown, provenance
from experiments.settings import Settings
from experiments.training.fit import Run
from experiments.training.processes import join, writes

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
    settings: Settings,
    methods: Sequence[Method],
    seeds: Sequence[int],
    out: Path,
    command: str,
    jobs: int = 1,
    resume: bool = False,
) -> None:
    """Trains every method under every seed; writes and prints the results.

    Args:
        settings: what the methods share.
        methods: the methods; the table counts points against the first.
        seeds: of the splits, the initializations, the batches and the noise.
        out: the folder for results.csv, curves.csv, curves.png, table.md and runs.json.
        command: what the user typed, for table.md.
        jobs: how many runs at once, each in a process with its share of the machine.
        resume: whether finished runs of an earlier call with the same settings are kept.
    """
    join(settings.coordinator, settings.processes, settings.process_id)
    if writes():
        prepare_folder(out)
    comparison = Comparison(settings)
    runs = run_all(comparison, methods, seeds, out, jobs, resume)
    if not writes():
        return
    of_seeds = f": mean and range of {len(seeds)} seeds" if len(seeds) > 1 else ""
    model = comparison.config.on(comparison.dataset(seeds[0]).X_train.shape[1:]).model
    name = Path(settings.dataset).name
    draw_curves(out / "curves.png", runs, f"{name}, {model}{of_seeds}")
    table = comparison_table(runs)
    write_whole(out / "table.md", f"{markdown(table)}\n\n{NOTE}\n\n{provenance(command)}")
    show_table(table)
    print(*said_of_failures(runs), sep="\n")
    print(f"\n{NOTE}\nWritten to {out}: results.csv, curves.csv, curves.png, table.md, runs.json.")


def said_of_failures(runs: Sequence[Run]) -> list[str]:
    """A line for each run that did not train, and what may help."""
    said = [f"{run.method}, seed {run.seed}: {run.outcome}." for run in runs if run.outcome]
    return [*said, HELP] if said else []
