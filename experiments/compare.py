"""The command ``compare``: trains each method under each seed, on the same splits, and reports."""

import contextlib
import shlex
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from experiments.analysis.comparison import comparison_table, conclusion, measure_of
from experiments.analysis.csv import write_curves, write_results
from experiments.analysis.curves import draw_curves
from experiments.analysis.masks import draw_masks
from experiments.analysis.measures import words
from experiments.analysis.pooled import HEADER as POOLED_HEADER
from experiments.analysis.pooled import NOTE as POOLED
from experiments.analysis.pooled import pooled_table
from experiments.analysis.table import Table, markdown, provenance, show_table
from experiments.analysis.tpu import NOTE as COSTS
from experiments.analysis.tpu import tpu_costs
from experiments.analysis.tuning.choose import Choice, Tuning, choose
from experiments.analysis.tuning.grid import WANTED, Grid, combinations, grid_of
from experiments.analysis.tuning.held_out import PARTS
from experiments.analysis.tuning.rates import FILE as RATES
from experiments.analysis.tuning.rates import RATE, draw_rates
from experiments.analysis.tuning.report import choices_at_ends, write_trials
from experiments.commands import Compare
from experiments.config import Config
from experiments.errors import UserError
from experiments.methods.method import Method
from experiments.methods.statistics import WORDS as STATISTICS
from experiments.methods.table import METHODS, find_methods
from experiments.models.own_code import is_from_file, own_code
from experiments.models.registry import with_network
from experiments.runs.comparison import (
    Comparison,
    Load,
    others_note,
    run_all,
    signal_lines,
    with_others,
)
from experiments.runs.files import prepare_folder, text_in, write_whole
from experiments.runs.lock import PATIENCE, alone_in, check_free
from experiments.runs.marks import mark
from experiments.runs.outputs import PAGE, check_outputs, check_own, earlier_note
from experiments.runs.processes import writes
from experiments.runs.spec import FREE, Spec, own_settings, shown
from experiments.runs.store import FILE, Store, now
from experiments.settings_file import flags_of, keep_settings, named, settings_of
from experiments.training.run import AT_CHANCE, NOTHING_FOUND, Run

DIVERGED = (
    "A smaller --learning-rate may help; in code of your own also jaxnorm.clip_by_layer_norm, "
    "before the optimizer."
)
UNTRAINED = "More --epochs may help, or the best of several rates: --tune learning-rate=0.01,0.1."

#: The words of the conclusion.
WORDS = (
    "Level: a difference within a point of 0; ahead, behind: beyond it. A word names every place\n"
    "that the interval leaves; open: all three. Another processor, thread count or JAX rounds\n"
    "differently, which moves every run: intervals include it, words near a point may change."
)

NOTE = (
    "Each figure is the mean ± standard deviation over seeds. Accuracies are percentages here,\n"
    "and fractions from 0 to 1 in results.csv and curves.csv. A difference is in points of {},\n"
    "from the first method's under the same seed. Training accuracies are the last epoch's, as\n"
    "the network was while it trained; test figures are in evaluation mode, without noise. A\n"
    "step's time is that of this machine, slowed by what else ran on it. Training losses and\n"
    "parameters are in results.csv."
)

#: The words on label maps.
MAPS = (
    "mIoU: the pixels that truth and prediction give to a class over those that either gives it,\n"
    "over all test images, averaged over the classes. Accuracies are shares of pixels. masks.png\n"
    "has the first test images of seed {}, their true maps and each method's."
)

#: The time of `compare` without flags, by the clock.
DEFAULT_TIME = "some three minutes on two idle CPU cores"

#: The ways on from a comparison.
NEXT = (
    "Next, with `python -m experiments compare --help` for all flags:\n"
    "  on your model: --model FILE.py:NAME, a function (rngs, shape, classes) -> network\n"
    "  on your data: --dataset FILE or FOLDER; `python -m experiments datasets` lists the formats\n"
    "  on several hosts: one call on each (docs/guides/clusters.md); --jobs N for N runs at once"
)

TUNED = (
    f"Each method chose its settings (last columns) under each seed, by training on all but one in "
    f"{PARTS} of that seed's training rows, from another initialization: the best accuracy on the "
    "rows held out. All trials: tuning.csv, tuning.png."
)

#: The words of --tune-seeds.
TUNED_FOR_ALL = (
    f"Each method chose its settings (last columns) by training on all but one in {PARTS} of the "
    "training rows, from other initializations: the best mean accuracy on the rows held out, over "
    "{} of the seeds. All trials: tuning.csv, tuning.png."
)


class Report(NamedTuple):
    """The page of one network's comparison, and what is printed of it.

    Attributes:
        page: the text of its page.
        table: the table on it.
        lines: what is printed below the table.
    """

    page: str
    table: Table
    lines: Sequence[str]


class Compared(NamedTuple):
    """Runs of a comparison of one network.

    Attributes:
        runs: the runs of its tables.
        trials: those of --tune.
        report: what is said of them, by the process that writes.
    """

    runs: Sequence[Run]
    trials: Sequence[Run]
    report: Report = Report("", ((), ()), ())


def compare(flags: Compare, command: str) -> None:
    """Trains every method on every network under every seed; writes and prints the results.

    Args:
        flags: the command's flags.
        command: the user's command, for table.md.
    """
    methods, tuning = find_methods(flags.methods), _tuning(flags)
    networks = of_networks(flags)
    if writes():
        check_own(flags.out)
        check_page(flags.out, len(networks))
        for each in networks.values():
            _check_outputs(each)
            check_free(each.out)
            prepare_folder(each.out)
    settings = settings_of(flags)
    comparisons = _comparisons(networks, methods, tuning.grid if tuning else {})
    pages = [flags.out / PAGE] * (len(networks) > 1)
    compared: dict[str, Compared] = {}
    for name, own in networks.items():
        if writes() and pages:
            print(f"# {name}\n")
        with own_code(own.config.model):
            comparison = comparisons.pop(name)
            keeps = None if pages else settings
            compared[name] = _of_network(own, command, methods, tuning, comparison, pages, keeps)
    if writes():
        if pages:
            with alone_in(flags.out, wait=PATIENCE):
                keep_settings(flags, settings)
                _report_networks(flags.out, compared, command, tuning)
        print(NEXT)


def of_networks(flags: Compare) -> dict[str, Compare]:
    """Returns the flags of each network by its name; several have folders in those of all."""
    models, config = network_names(flags.config.model), flags.config
    if len(models) == 1:
        return dict.fromkeys(models, flags)
    events = config.tensorboard
    return {
        name: replace(
            flags,
            config=config.changed(model=model, tensorboard=events and events / name),
            out=flags.out / name,
        )
        for name, model in models.items()
    }


def network_names(models: str) -> dict[str, str]:
    """Returns the networks of ``--model`` by the names of their folders.

    Raises:
        UserError: for a network that is named twice.
    """
    wanted = [model.strip() for model in models.split(",")]
    short = [model.rpartition(":")[2] for model in wanted]
    names = [
        name if short.count(name) == 1 else f"{Path(model.rpartition(':')[0]).stem}-{name}"
        for name, model in zip(short, wanted, strict=True)
    ]
    if len(set(names)) < len(names) or (len(names) > 1 and "" in names):
        raise UserError(
            f"--model is {models!r}; wanted each network once, with a name of its own, and one "
            "comma between two."
        )
    return dict(zip(names, wanted, strict=True))


def _comparisons(
    networks: Mapping[str, Compare], methods: Sequence[Method], grid: Grid
) -> dict[str, Comparison]:
    """Returns the comparison of each network, on the same rows, once every network was made."""
    comparisons: dict[str, Comparison] = {}
    load: Load | None = None
    for name, own in networks.items():
        config = own.config.changed(nonfinite="stop")
        with own_code(config.model):
            comparison = Comparison(config, loader=load)
            load = comparison.load
            for method in methods:
                first = Spec(method.name, 0, config, combinations(method, grid)[0])
                comparison.trainer(first, comparison.dataset(0))
        comparisons[name] = comparison
    return comparisons


def check_page(out: Path, count: int) -> None:
    """Raises UserError if a comparison of several networks would replace one's page, or reversed.

    Args:
        out: the folder of the page.
        count: the number of networks.
    """
    lines = text_in(page := out / PAGE).splitlines()
    pooled = any(line.startswith(f"| {POOLED_HEADER}") for line in lines)
    if lines and pooled != (count > 1):
        kinds = "one network", "several networks"
        raise UserError(
            f"{page} is of {kinds[pooled]}, and would be replaced by that of {kinds[not pooled]}; "
            "wanted another --out."
        )


def _of_network(
    flags: Compare,
    command: str,
    methods: Sequence[Method],
    tuning: Tuning | None,
    comparison: Comparison,
    pages: Sequence[Path],
    settings: str | None,
) -> Compared:
    """Compares the methods on one network, whose runs are also in these pages.

    The settings are kept beside its files, if there are any.
    """
    workers, store, began = flags.workers, Store(flags.out), now()
    pages = [flags.out / PAGE, *pages]
    specs, choice = _specs_of(flags, methods, tuning, comparison, partial(mark, pages))
    kept, missing = store.split(specs, flags.fresh)
    if not kept and replace(flags, out=Compare.out) == Compare():
        print(f"{len(specs)} runs of {comparison.config.epochs} epochs: {DEFAULT_TIME}.")
    if not workers.uses_processes:
        for line in signal_lines(comparison, missing):
            print(line)
    if missing:
        mark(pages)
    grid, trials = tuning.grid if tuning else {}, choice.trials if choice else ()

    def write(runs: Sequence[Run]) -> None:
        shown = with_others(comparison, store, specs, runs, grid)
        with _writing(flags, shown, pages):
            pass

    runs = run_all(comparison, specs, store, kept, workers, write=write)

    def report() -> Compared:
        shown = with_others(comparison, store, specs, runs, grid)
        earlier = len(kept) + len(shown) - len(runs)
        with _writing(flags, shown, pages):
            if settings is not None:
                keep_settings(flags, settings)
            if choice is not None:
                write_trials(flags.out, grid, choice.trials, choice.chosen)
            said = _report(comparison, shown, flags.out, command, tuning, earlier)
        return Compared(shown, trials, said)

    if not writes():
        return Compared(runs, trials)
    compared = store.until_complete(report)
    show_table(compared.report.table)
    print(*compared.report.lines, sep="\n")
    if store.others_since(specs, began):
        mark(pages)
    return compared


def _specs_of(
    flags: Compare,
    methods: Sequence[Method],
    tuning: Tuning | None,
    comparison: Comparison,
    before: Callable[[], None],
) -> tuple[list[Spec], Choice | None]:
    """Returns the specs of the results, each at its choice if there is one, and the choice.

    ``before`` is called before trials are trained, if some are.
    """
    seeds, is_own = range(flags.seeds), is_from_file(comparison.config.model)
    if tuning is None:
        return comparison.specs([(each.name, (), seed) for each in methods for seed in seeds]), None
    first = [(each.name, combinations(each, tuning.grid)[0], 0) for each in methods]
    began = comparison.specs(first) if is_own else []
    store, workers = Store(flags.out), flags.workers
    choice = choose(comparison, methods, seeds, tuning, store, workers, flags.fresh, before)
    specs = comparison.specs(choice.tasks)
    for spec in began:  # Else trials of one network would choose for another.
        comparison.check_unchanged(spec, anew=True)
    return specs, choice


def _report_networks(
    out: Path, compared: Mapping[str, Compared], command: str, tuning: Tuning | None
) -> None:
    """Writes and prints the differences over all networks, and each network's table."""
    runs = {name: each.runs for name, each in compared.items()}
    pooled = pooled_table(runs)
    parts = [markdown(pooled), POOLED.format(words(measure_of(next(iter(runs.values())))))]
    for name, of_network in runs.items():
        parts += [f"## {name}", f"[Files]({name}/{PAGE})", markdown(comparison_table(of_network))]
    drawn = RATES in _files_of(tuning)
    parts += earlier_note(out, [RATES] * drawn)
    if drawn:
        draw_rates(out / RATES, {name: each.trials for name, each in compared.items()})
    write_whole(out / PAGE, "\n\n".join([*parts, provenance(command)]))
    if any(text_in(out / name / PAGE) != each.report.page for name, each in compared.items()):
        mark([out / PAGE])  # Another call has written there meanwhile.
    print(f"\n# {len(runs)} networks\n")
    show_table(pooled)
    files = f"{PAGE}, " + f"{RATES}, " * drawn + ", ".join(f"{name}/" for name in runs)
    print(f"\n{parts[1]}\nWritten to {out}: {files}.")


def _tuning(flags: Compare) -> Tuning | None:
    """Returns the settings that each method chooses first; None for none."""
    if flags.tune == ():
        raise UserError(f"--tune is empty; {WANTED}, or leave it out.")
    if flags.tune_epochs is not None and not flags.tune:
        raise UserError(
            f"--tune-epochs is {flags.tune_epochs}, the length of trials; wanted --tune with "
            "it, or --epochs in its place."
        )
    if flags.tune_seeds is not None and not flags.tune:
        raise UserError(
            f"--tune-seeds is {flags.tune_seeds}, the seeds of trials; wanted --tune with it, or "
            "--seeds in its place."
        )
    if not flags.tune:
        return None
    is_of_file = flags.settings and {*flags.tune} <= {*flags_of(flags.settings)}
    with named(flags.settings if is_of_file else None):
        grid = grid_of(flags.tune)
    return Tuning(grid, flags.tune_epochs, flags.tune_seeds)


def _report(
    comparison: Comparison,
    runs: Sequence[Run],
    out: Path,
    command: str,
    tuning: Tuning | None,
    kept: int,
) -> Report:
    """Writes the pictures and the page of the runs; returns what is to be said."""
    seeds = dict.fromkeys(run.seed for run in runs)
    seeds_note = f": mean and range of {len(seeds)} seeds" if len(seeds) > 1 else ""
    dataset = comparison.dataset(runs[0].seed)
    shape = dataset.X_train.shape[1:]
    config = with_network(comparison.config, shape, dataset.has_label_maps)
    name = Path(config.dataset).name
    costs = tpu_costs(config, shape)
    draw_curves(out / "curves.png", runs, f"{name}, {config.model}{seeds_note}", costs)
    table, concluded = comparison_table(runs, costs), "\n".join(conclusion(runs))
    of_seed = [run for run in runs if run.seed == runs[0].seed]
    maps = {run.method: run.maps for run in of_seed if run.maps is not None}
    if maps:
        count = len(next(iter(maps.values())))
        rows = dataset.X_test[:count], dataset.y_test[:count]
        draw_masks(out / "masks.png", *rows, maps, dataset.classes)
    notes = [
        *[WORDS] * ("\n- " in concluded),
        NOTE.format(words(measure_of(runs))),
        *statistics_note(runs),
        *[MAPS.format(runs[0].seed)] * bool(maps),
        *[COSTS] * bool(costs),
        *tuned_note(tuning),
        *earlier_note(out, [*["masks.png"] * bool(maps), *_files_of(tuning)]),
    ]
    note = "\n".join([*notes, *kept_note(kept, runs)])
    origin = provenance(command) + other_settings(config, command, runs)
    failed = "\n".join(f"- {line}" for line in failure_lines(runs))
    page = "\n\n".join(filter(None, (markdown(table), failed, concluded, note, origin)))
    write_whole(out / PAGE, page)
    drawn = "masks.png, " * bool(maps)
    lines = [
        *failure_lines(runs),
        *[f"\n{concluded}"] * bool(concluded),
        *(choices_at_ends(tuning.grid, runs) if tuning is not None else ()),
        "",
        *notes,
        f"Written to {out}: results.csv, curves.csv, curves.png, {drawn}table.md, {FILE}.",
        *others_note(Store(out), runs),
    ]
    return Report(page, table, lines)


def _files_of(tuning: Tuning | None) -> list[str]:
    """Returns the names of the files on trials that a comparison writes."""
    if tuning is None:
        return []
    return ["tuning.csv", "tuning.png", *[RATES] * (RATE in tuning.grid)]


def tuned_note(tuning: Tuning | None) -> list[str]:
    """Says how the methods chose their settings, if they did."""
    if tuning is None:
        return []
    return [TUNED if tuning.seeds is None else TUNED_FOR_ALL.format(tuning.seeds)]


def statistics_note(runs: Sequence[Run]) -> list[str]:
    """Says which statistics batch normalization is scored with, if a method has some."""
    known = any(METHODS[run.method].has_statistics for run in runs if run.method in METHODS)
    return [textwrap.fill(STATISTICS, 100)] if known else []


def _check_outputs(flags: Compare) -> None:
    """Raises UserError if the comparison of a network would replace files of another origin."""
    check_own(flags.out)
    config = flags.config
    check_outputs(flags.out, config.dataset, {"--tensorboard": config.tensorboard})


@contextlib.contextmanager
def _writing(flags: Compare, runs: Sequence[Run], pages: Sequence[Path]) -> Iterator[None]:
    """Writes the tables of runs, and then what else is written, while no other program writes.

    Until they follow, the pages say that they are of earlier runs. If a file cannot be written, the
    runs are shown.
    """
    table = comparison_table(runs)
    try:
        with alone_in(flags.out, wait=PATIENCE):
            _check_outputs(flags)
            mark(pages, False, markdown(table))
            write_results(flags.out / "results.csv", runs)
            write_curves(flags.out / "curves.csv", runs)
            yield
    except UserError:
        show_table(table)
        raise


def other_settings(config: Config, command: str, runs: Sequence[Run]) -> str:
    """Lists the settings that decide the figures, and that neither command nor table names."""
    words = (word.partition("=")[0] for word in shlex.split(command))
    named = {word.removeprefix("--").replace("-", "_") for word in words}
    named |= FREE | set(own_settings(run.changes for run in runs))
    others = {name: value for name, value in asdict(config).items() if name not in named}
    settings = [f"{k}={shown(v)}" for k, v in others.items() if v not in (None, "", ())]
    return f"- settings besides the command's: {', '.join(settings)}\n"


def kept_note(kept: int, runs: Sequence[Run]) -> list[str]:
    """Says that the provenance does not hold for all runs, if some are from earlier calls."""
    if not kept:
        return []
    return [
        f"{kept} of these {len(runs)} runs are kept from earlier calls, perhaps with "
        "other versions and on other hardware, where their step times were taken; the lines below "
        "are of the last call."
    ]


def failure_lines(runs: Sequence[Run]) -> list[str]:
    """Returns a line per run that did not train, with what was found, and advice."""
    lines = [f"{run.method}, seed {run.seed}: {run.outcome}." for run in runs if run.outcome]
    # A run of an earlier version was not looked at.
    if any(run.outcome in (AT_CHANCE, f"{AT_CHANCE}, {NOTHING_FOUND}") for run in runs):
        lines.append(UNTRAINED)
    return [*lines, DIVERGED] if any(run.diverged for run in runs) else lines
