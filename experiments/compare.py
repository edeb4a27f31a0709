"""The comparison: trains each method under each seed, on the same splits, and reports."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from experiments.analysis.comparison import comparison_table, conclusion
from experiments.analysis.csv import write_curves, write_results
from experiments.analysis.curves import draw_curves
from experiments.analysis.table import markdown, provenance, show_table
from experiments.analysis.tpu import NOTE as COSTS
from experiments.analysis.tpu import tpu_costs
from experiments.comparison import Comparison, Task, run_all, signal_lines
from experiments.methods.method import Method
from experiments.runs.files import prepare_folder, write_whole
from experiments.runs.processes import join, writes
from experiments.runs.store import FILE, Store
from experiments.settings import HERE, Settings, Workers
from experiments.training.fit import Run
from experiments.tuning.choose import Tuning, choose
from experiments.tuning.held_out import PARTS
from experiments.tuning.report import choices_at_ends

HELP = (
    "A smaller --learning-rate may help; in code of your own also jaxnorm.clip_by_layer_norm, "
    "before the optimizer."
)

NOTE = (
    "Each figure is the mean ± standard deviation over seeds. Accuracies are percentages here,\n"
    "and fractions from 0 to 1 in results.csv and curves.csv. A difference is in points of test\n"
    "accuracy, from the first method's under the same seed. Training accuracies are the last\n"
    "epoch's, as the network was while it trained; test figures are in evaluation mode, without\n"
    "noise. Training losses, parameters and times of a step are in results.csv."
)

TUNED = (
    f"Each method chose its settings (last columns) under each seed, by training on all but one in "
    f"{PARTS} of that seed's training rows, from another initialization: the best accuracy on the "
    "rows held out. All trials: tuning.csv, tuning.png."
)


def compare(
    settings: Settings,
    methods: Sequence[Method],
    seeds: Sequence[int],
    out: Path,
    command: str,
    workers: Workers = HERE,
    fresh: bool = False,
    tuning: Tuning | None = None,
) -> None:
    """Trains every method under every seed; writes and prints the results.

    Args:
        settings: the settings that the methods share.
        methods: the methods; the table has differences from the first.
        seeds: the seeds of the splits, the initializations, the batches and the noise.
        out: the folder for results.csv, curves.csv, curves.png, table.md and the store of runs.
        command: the user's command, for table.md.
        workers: the processes, or the cluster, of the runs.
        fresh: if True, runs that are in the store are trained again.
        tuning: the settings that each method chooses first; None for none.
    """
    join(settings.coordinator, settings.processes, settings.process_id)
    if writes():
        prepare_folder(out)
    comparison = Comparison(settings)
    tasks: Sequence[Task] = [(method.name, (), seed) for method in methods for seed in seeds]
    if tuning is not None:
        tasks = choose(comparison, methods, seeds, tuning, out, workers, fresh)
    specs, write, store = comparison.specs(tasks), partial(_write, out), Store(out)
    if not workers.uses_processes:
        missing = [spec for spec in specs if fresh or store.find(spec) is None]
        for line in signal_lines(comparison, missing):
            print(line)
    runs = run_all(comparison, specs, store, workers, fresh, write=write)
    if writes():
        _report(comparison, runs, out, command, tuning)


def _report(
    comparison: Comparison, runs: Sequence[Run], out: Path, command: str, tuning: Tuning | None
) -> None:
    """Writes and prints the results of the runs."""
    seeds = dict.fromkeys(run.seed for run in runs)
    seeds_note = f": mean and range of {len(seeds)} seeds" if len(seeds) > 1 else ""
    model = comparison.config.on(comparison.dataset(runs[0].seed).X_train.shape[1:]).model
    name = Path(comparison.settings.dataset).name
    costs = tpu_costs(model)
    draw_curves(out / "curves.png", runs, f"{name}, {model}{seeds_note}", costs)
    table, concluded = comparison_table(runs, costs), "\n".join(conclusion(runs))
    notes = [NOTE, *[COSTS] * bool(costs), *[TUNED] * (tuning is not None)]
    note = "\n".join([*notes, *kept_note(comparison, runs)])
    text = f"{markdown(table)}\n\n{concluded}\n\n{note}\n\n{provenance(command)}"
    write_whole(out / "table.md", text)
    show_table(table)
    print(*failure_lines(runs), f"\n{concluded}", sep="\n")
    if tuning is not None:
        print(*choices_at_ends(tuning.grid, runs), sep="\n")
    print("", *notes, sep="\n")
    print(f"Written to {out}: results.csv, curves.csv, curves.png, table.md, {FILE}.")


def _write(out: Path, runs: Sequence[Run]) -> None:
    write_results(out / "results.csv", runs)
    write_curves(out / "curves.csv", runs)


def kept_note(comparison: Comparison, runs: Sequence[Run]) -> list[str]:
    """Says that the provenance does not hold for all runs, if some are from earlier calls."""
    if not comparison.kept:
        return []
    return [
        f"{comparison.kept} of these {len(runs)} runs are kept from earlier calls, perhaps with "
        "other versions and on other hardware, where their step times were taken; the lines below "
        "are of the last call."
    ]


def failure_lines(runs: Sequence[Run]) -> list[str]:
    """Returns a line per run that did not train, and advice."""
    lines = [f"{run.method}, seed {run.seed}: {run.outcome}." for run in runs if run.outcome]
    return [*lines, HELP] if lines else []
