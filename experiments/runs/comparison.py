"""The runs of a comparison: those in the store, and the others trained."""

import math
import pickle
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache, partial
from typing import Any

import jax

from experiments.config import HERE, Config, Workers
from experiments.data.dataset import Dataset
from experiments.data.load import load, of_one_state
from experiments.errors import UserError
from experiments.methods.table import METHODS
from experiments.models.own_code import is_from_file, own_code
from experiments.runs.files import as_argument
from experiments.runs.jobs import Make, Training, in_processes
from experiments.runs.processes import check_same, writes
from experiments.runs.progress import Advance, Say, is_quiet, progress, tell
from experiments.runs.spec import (
    IDENTITY,
    OFFSET,
    PROGRAMS,
    Changes,
    Spec,
    name_of,
    parts_beside,
    rows_digest,
    versions,
)
from experiments.runs.store import Store
from experiments.runs.tensorboard import EventFiles
from experiments.training.chance import explained
from experiments.training.devices import ONE_DEVICE, make_placement
from experiments.training.early import early_look
from experiments.training.epoch import Look, nothing
from experiments.training.fit import fit, start
from experiments.training.history import Checkpointer, NoCheckpoints
from experiments.training.initial import initial_checksums
from experiments.training.label_maps import MEAN_IOU, with_maps
from experiments.training.look import initial_signal
from experiments.training.parallel import as_groups_of_jit
from experiments.training.programs import check_repeats, program_digests
from experiments.training.run import DIVERGED, Diverged, Epoch, Run
from experiments.training.trainer import Trainer, Trainers, check_rows_apart
from jaxnorm import parameter_count

#: ``seed -> dataset``, and ``(load, seed) -> dataset``.
Load = Callable[[int], Dataset]
Derive = Callable[[Load, int], Dataset]

#: A method's name, the settings of this run alone, and the seed.
Task = tuple[str, Changes, int]


def silent(line: str) -> None:
    """Ignores a line of progress or a message."""


def telling(make: Callable[[], "Comparison"], say: Say) -> Training:
    """Returns a comparison of this process whose runs have a line to say."""
    return partial(make(), say=say)


class Comparison:
    """Trains methods by name; the seeds of a method share its compiled functions.

    Args:
        config: the settings that the methods share.
        derive: ``(load, seed) -> dataset``, derives the dataset of a seed from the loaded one; None
            for the loaded one itself.
        loader: loads and caches the dataset of a seed; None to load the one that the config names.
    """

    def __init__(
        self,
        config: Config,
        derive: Derive | None = None,
        loader: Load | None = None,
    ):
        self.config, self.derive = config, derive
        self._looked_at, self._traced = set[str](), set[object]()
        self._events = EventFiles(config.tensorboard if writes() else None)
        self._placement = make_placement(config.parallel, config.mesh)
        rows = config.train_rows, config.test_rows, config.label, config.resize
        self.load = loader or cache(
            of_one_state(config.dataset, lambda seed: load(config.dataset, seed, *rows))
        )
        self.dataset = self.load if derive is None else cache(partial(derive, self.load))
        # Under jit the groups of a loss follow the devices; otherwise ghost groups stand for them.
        grouped = self._placement if self._placement.axis_name is None else ONE_DEVICE
        self._trainers = Trainers(self._placement)
        self._of_one_device = Trainers(grouped=grouped)
        self._programs: dict[object, dict[str, str]] = {}
        self._compiled: dict[object, Trainer] = {}
        self._rows = cache(lambda seed: rows_digest(self.dataset(seed)))

    def factory(self) -> Callable[[], "Comparison"]:
        """Returns a picklable function that makes this comparison in another process."""
        return partial(Comparison, self.config, self.derive)

    def specs(self, tasks: Sequence[Task]) -> list[Spec]:
        """Returns the specs of runs with their parts, once all processes have the same."""
        config = as_groups_of_jit(self.config, self._placement)
        specs = [Spec(method, seed, config, changes) for method, changes, seed in tasks]
        specs = [spec.made_of(self.parts(spec)) for spec in specs]
        if is_from_file(self.config.model):
            compiled = {self._compiled_as(spec): spec for spec in specs}.values()
            trainers = [self.trainer(spec, self.dataset(spec.seed)) for spec in compiled]
            check_rows_apart(trainers, self.dataset(specs[0].seed))
        data = {str(spec): dict(spec.parts) for spec in specs}
        own = dict.fromkeys(("dataset", "tensorboard", "coordinator", "process_id", "join_timeout"))
        work = asdict(self.config) | {"data": data, "runs": [str(spec) for spec in specs]}
        check_same(work | versions() | own)
        return specs

    def parts(self, spec: Spec, anew: bool = False) -> dict[str, str]:
        """Returns the parts of a spec's key, as this process has them, or makes them anew."""
        programs = self._program_digests(spec, self.dataset(spec.seed), anew)
        return programs | self.parts_beside(spec)

    def parts_beside(self, spec: Spec) -> dict[str, str]:
        """Returns the parts of a spec's key that are no programs."""
        return parts_beside(spec.described, self._rows(spec.seed))

    def _key(self, spec: Spec, dataset: Dataset) -> object:
        """Returns what the seeds of a method, which have one program, share."""
        return spec.method, spec.changes, dataset.signature

    def _program_digests(self, spec: Spec, dataset: Dataset, anew: bool = False) -> dict[str, str]:
        """Returns the digests of a method's programs, on one device, which its seeds share.

        If they are made anew, so is the network.
        """
        key = self._key(spec, dataset)
        if key in self._programs and not anew:
            return self._programs[key]
        config = as_groups_of_jit(self.config, self._placement).changed(nonfinite="stop")
        of_one = self._placement == ONE_DEVICE and config == self.config
        trainers = self._trainers if of_one else self._of_one_device
        trainer = self._trainer(trainers.empty() if anew else trainers, config, spec, dataset)
        digests = program_digests(trainer, dataset)
        if anew:
            return digests
        self._programs[key] = digests
        if is_from_file(config.model) and len(self._programs) == 1:
            check_repeats(trainer, dataset, digests)
        return digests

    def trainer(self, spec: Spec, dataset: Dataset) -> Trainer:
        """Returns the trainer of the spec, for any seed, on data of that shape.

        Specs of one method with equal programs, which differ in their rates, share what is
        compiled.
        """
        trainer = self._trainer(self._trainers, self.config, spec, dataset)
        return trainer.by(self._compiled.setdefault(self._compiled_as(spec), trainer))

    def _compiled_as(self, spec: Spec) -> object:
        """Returns what specs that share their compiled functions have in common."""
        programs = tuple(part for part in spec.parts if part[0] in PROGRAMS)
        return (spec.method, programs) if programs else spec

    def _trainer(self, trainers: Trainers, config: Config, spec: Spec, dataset: Dataset) -> Trainer:
        config = config.changed(**dict(spec.changes))
        return trainers.of(METHODS[spec.method].adjusted(config), config, dataset)

    def __call__(
        self,
        spec: Spec,
        keeper: Checkpointer,
        advance: Advance = silent,
        say: Say = silent,
    ) -> Run:
        """Trains a spec, and returns the run without its final state.

        Raises:
            UserError: if the spec's rows or programs are others in this process.
        """
        with own_code(self.config.model):  # Another process has no command around it.
            self.check_unchanged(spec, self._compiled_as(spec) not in self._traced)
            return self.trained(spec, keeper, advance, say)._replace(state=None)

    def trained(
        self,
        spec: Spec,
        keeper: Checkpointer,
        advance: Advance = silent,
        say: Say = silent,
    ) -> Run:
        """Trains a spec; a run that diverges has the epochs before, then NaNs.

        ``advance`` is called with a line after each epoch, and ``say`` with one for a method whose
        rate kills the network within the first hundred updates of its first run.
        """
        dataset, compiled_as = self.dataset(spec.seed), self._compiled_as(spec)
        is_first = compiled_as not in self._traced
        with self._events.of(spec.name, spec.seed) as log:

            def report(entry: Epoch) -> None:
                log(entry)
                if compiled_as not in self._traced:  # By now its programs are, but that of maps.
                    self.check_unchanged(spec, anew=True)
                    self._traced.add(compiled_as)
                advance(f"{spec}, epoch {entry.epoch} of {self.config.epochs}")

            trainer = self.trainer(spec, dataset)
            look = self._look(spec, trainer, dataset, say)
            run = _fit_or_diverge(trainer, dataset, spec.seed, report, keeper, look)
        run = with_maps(run, trainer, dataset)._replace(changes=spec.changes)
        # A resumed run is reported before it is traced, maps are traced for each seed, and the rows
        # of a stream are read until its end.
        is_resumable = is_first and not isinstance(keeper, NoCheckpoints)
        if is_resumable or dataset.has_label_maps or dataset.stream:
            self.check_unchanged(spec, anew=True)
        return run

    def check_unchanged(self, spec: Spec, anew: bool) -> None:
        """Raises UserError if a spec's rows or programs, perhaps made anew, are others by now.

        What a network of the user's reads when it is made or called, as a file, may be edited until
        a method's programs are traced, and the files of a stream until its last row is read.
        """
        if anew and self.dataset(spec.seed).stream:
            self._rows.cache_clear()
        spec.check_unchanged(self.parts(spec, anew and is_from_file(self.config.model)))

    def known(self, spec: Spec, parts: Mapping[str, str], own: Spec) -> Spec | None:
        """Returns the spec of a stored run with its parts; None if they cannot be those stored.

        So it is if the rows are others, or if the files that rows and network are read from were
        edited since those of ``own`` were read.

        Args:
            spec: a spec of the kind of ``own``, without parts.
            parts: the parts of the stored run.
            own: a spec of this comparison.
        """
        before = dict(self._programs)
        try:
            if not self.parts_beside(spec).items() <= parts.items():
                return None
            made = spec.made_of(self.parts(spec))
            if len(self._programs) > len(before):
                self.check_unchanged(own, anew=True)
        except UserError:
            self._programs = before
            return None
        return made

    def _look(self, spec: Spec, trainer: Trainer, dataset: Dataset, say: Say) -> Look:
        """Returns the look at a method's first run; nothing for others, and if nobody reads it."""
        if say is silent or is_quiet() or spec.name in self._looked_at:
            return nothing
        self._looked_at.add(spec.name)
        return early_look(trainer, dataset, say)


def run_all(
    comparison: Comparison,
    specs: Sequence[Spec],
    store: Store,
    kept: Mapping[Spec, Run],
    workers: Workers = HERE,
    tested: str = "test",
    write: Callable[[Sequence[Run]], object] = lambda runs: None,
) -> list[Run]:
    """Returns the run of every spec, kept or trained.

    All processes of several hosts train; one of them writes and shows progress.

    Args:
        comparison: trains the specs.
        specs: the runs that are wanted, in their order.
        store: the store of the runs that are trained.
        kept: the runs that an earlier call finished, which are not trained again.
        workers: the processes of the runs.
        tested: the name of the rows on which runs are evaluated: test, or held-out.
        write: called after each run with the finished runs, in the order of the specs.

    Raises:
        UserError: before any work, for settings that do not fit.
    """
    dataset, epochs = comparison.dataset(specs[0].seed), comparison.config.epochs
    for each in {spec.name: spec for spec in specs}.values():
        comparison.trainer(each, dataset)
    done = dict(kept)
    missing = [spec for spec in specs if spec not in done]
    with progress(len(missing) * epochs, writes()) as (advance, say):
        for note in dataset.notes:
            say(note)
        if done:
            say(f"{len(done)} of {len(specs)} runs are kept from an earlier call.")
            if comparison.config.tensorboard is not None:
                say("--tensorboard gets the curves of runs that are trained now, not theirs.")
        for line in store.why_not(missing):
            say(line)
        here = partial(comparison, advance=advance, say=say)
        there = partial(telling, comparison.factory(), silent if is_quiet() else tell)
        make = there if workers.uses_processes else lambda: here
        ends = [time.perf_counter()]
        for spec, run, is_stored in execute(missing, make, store, workers, say):
            done[spec] = run
            say(summary(run, tested))
            ends.append(time.perf_counter())
            if len(ends) == 3 < len(missing) and not workers.uses_processes:
                say(f"About {seconds_left(ends, missing):.0f} seconds to go.")
            for _ in range(epochs if workers.uses_processes else 0):
                advance(str(spec))
            if writes() and is_stored:
                write([done[spec] for spec in specs if spec in done])
    return [done[spec] for spec in specs]


def execute(
    specs: Sequence[Spec],
    make: Make,
    store: Store,
    workers: Workers = HERE,
    say: Say = silent,
) -> Iterator[tuple[Spec, Run, bool]]:
    """Trains specs and stores each run as it ends: in order, or with several jobs in any order.

    Yields each spec with its run, and whether it is stored: if not, the error comes next.

    Args:
        specs: the trainings, the seeds of one method after each other.
        make: returns the function from a spec to its run; called once per process, and picklable.
        store: the store of the runs.
        workers: the number of processes; each gets its share of the processor's cores, and of the
            GPUs if CUDA_VISIBLE_DEVICES names them.
        say: receives a line for each process that the system kills.

    Raises:
        UserError: before any work if the store cannot be written; if the last of the processes is
            killed.
    """
    if specs and writes():
        store.check_writable()
    for spec, run in _trained(specs, make, workers, say):
        try:
            if writes():
                store.add(spec, run)
        except UserError as error:
            yield spec, run, False  # The caller shows it before the error.
            raise UserError(f"{spec} is not kept: {error}") from error
        yield spec, run, True


def _trained(
    specs: Sequence[Spec], make: Make, workers: Workers, say: Say
) -> Iterator[tuple[Spec, Run]]:
    jobs = min(workers.jobs, len(specs))
    if jobs > 1:
        yield from in_processes(specs, pickle.dumps(make), jobs, say)
    elif specs:
        training = make()
        yield from ((spec, training(spec, NoCheckpoints())) for spec in specs)


def with_others(
    comparison: Comparison,
    store: Store,
    specs: Sequence[Spec],
    runs: Sequence[Run],
    grid: Mapping[str, Sequence[Any]] = {},
) -> list[Run]:
    """Returns runs and all others of the store of their kind, whoever trained them.

    They are of one kind if they differ in method and seed alone. If several are of one method and
    seed, the newest counts. Methods stay in the order of ``runs``; seeds are sorted. Runs whose
    settings were chosen stand alone: how those of the store came to theirs, no run says.

    Args:
        comparison: the comparison of the runs.
        store: the store.
        specs: the specs of the runs.
        runs: the finished runs, which need not be in the store.
        grid: the values of settings that each method chose from; empty without a choice.
    """
    found = {(run.method, run.seed): run for run in runs}
    others: dict[tuple[str, int], Spec] = {}
    # The programs tell a network of the user's, whatever the path to its file.
    ignored = (*IDENTITY, "model") if is_from_file(specs[0].config.model) else IDENTITY
    for row in () if grid else store.rows():
        place = row.run.method, row.run.seed
        spec = replace(specs[0], method=place[0], seed=place[1], parts=())
        if place[0] not in METHODS or place in found or not spec.like(row.spec, ignored):
            continue
        if (known := comparison.known(spec, row.parts, specs[0])) is not None:
            others[place] = known
    finished = store.finished(others.values(), alone=True)  # One process reports.
    found |= {(spec.method, spec.seed): run for spec, run in finished.items()}
    if comparison.dataset(specs[0].seed).has_label_maps:
        stored = {(spec.method, spec.seed): spec for spec in (*specs, *finished)}
        without = [place for place, run in found.items() if run.maps is None]
        shown = store.with_maps((stored[place], found[place]) for place in without)
        found |= dict(zip(without, shown, strict=True))
    methods = list(dict.fromkeys(method for method, _ in found))
    order = sorted(found, key=lambda place: (methods.index(place[0]), place[1]))
    return [found[place] for place in order]


def others_note(store: Store, shown: Sequence[Run]) -> list[str]:
    """Returns a line if a store has results besides those shown, whose tables they replaced."""
    known = {(run.method, run.seed) for run in shown}
    rows = [row for row in store.rows() if row.run.seed < OFFSET]  # Not trials of --tune.
    count = len(rows) - len(known)
    if count <= 0:
        return []
    return [
        f"{count} more runs in {store.path}, of other settings, rows, versions or of the network "
        f"before or after an edit, are in none of these files: python -m experiments runs "
        f"{as_argument(store.path.parent)} lists them. The command that trained them writes their "
        "files again, best with another --out, if the network, the data and the versions are those "
        "of then."
    ]


def seconds_left(ends: Sequence[float], specs: Sequence[Spec]) -> float:
    """Estimates the time of all runs but two, one after the other; a method's first run compiles.

    Args:
        ends: the times at the start, and after the first and the second run.
        specs: all runs, in their order.
    """
    first, second = ends[1] - ends[0], ends[2] - ends[1]
    compiling = {spec.name for spec in specs[2:]} - {spec.name for spec in specs[:2]}
    return len(compiling) * first + (len(specs) - 2 - len(compiling)) * second


def signal_lines(comparison: Comparison, specs: Sequence[Spec]) -> list[str]:
    """Returns a line per method whose initial network, of its first seed, has something off.

    No network is looked at if nothing is printed, or if several processes hold its parameters.
    """
    if is_quiet() or jax.process_count() > 1:
        return []
    first = {spec.name: spec for spec in reversed(specs)}
    lines = []
    for name, spec in first.items():
        dataset = comparison.dataset(spec.seed)
        if signal := initial_signal(comparison.trainer(spec, dataset), dataset, spec.seed):
            lines.append(f"{name}, before training: {signal}")
    return lines


def _fit_or_diverge(
    trainer: Trainer,
    dataset: Dataset,
    seed: int,
    report: Callable[[Epoch], None],
    keeper: Checkpointer,
    look: Look,
) -> Run:
    try:
        return explained(fit(trainer, dataset, seed, report, keeper, look), trainer, dataset)
    except Diverged as error:
        lost = Epoch(len(error.curve) + 1, *[math.nan] * (len(Epoch._fields) - 1))
        for _ in range(trainer.config.epochs - len(error.curve)):
            report(lost)
        first = start(trainer, seed, dataset.X_train).params
        parameters, initial = parameter_count(first), initial_checksums(first)
        outcome = f"{DIVERGED}, {error}"
        curve = [*error.curve, lost]
        run = Run(trainer.method.name, seed, curve, error.step_ms, parameters, None, outcome)
        return run._replace(initial=initial)


def summary(run: Run, tested: str = "test") -> str:
    """Describes a finished run in a line; ``tested`` names the rows that it did not train on."""
    last, name = run.curve[-1], name_of(run.method, run.changes)
    if run.diverged:
        return f"{name}, seed {run.seed}: {run.outcome}"
    overlap = f"mIoU {100 * run.scores[MEAN_IOU]:.2f}%, " if MEAN_IOU in run.scores else ""
    return (
        f"{name}, seed {run.seed}: {overlap}{tested} accuracy {100 * last.test_accuracy:.2f}%, "
        f"training loss {last.train_loss:.4g}, {run.step_ms:.2f} ms per step"
    )
