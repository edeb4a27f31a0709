"""Finished runs in one SQLite file, which several programs may write to at once."""

import contextlib
import datetime
import io
import json
import sqlite3
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Integer

from experiments.data.reading import reading
from experiments.errors import UserError
from experiments.runs.spec import PROGRAMS, Spec, versions, versions_digest, why_another
from experiments.training.run import Epoch, Run, other_draws, record_of

Result = TypeVar("Result")

#: The file, in the folder of the reports.
FILE = "runs.sqlite"

WAY_OUT = (
    "wanted a file of an earlier call: remove it, and its runs are trained again, or give another "
    "--out"
)

_TABLE = (
    "CREATE TABLE IF NOT EXISTS runs (digest TEXT PRIMARY KEY, spec TEXT NOT NULL, "
    "results TEXT NOT NULL, curve TEXT NOT NULL, versions TEXT NOT NULL, date TEXT NOT NULL)"
)
#: Predicted label maps, as a file of NumPy's.
_MAPS = "CREATE TABLE IF NOT EXISTS maps (digest TEXT PRIMARY KEY, maps BLOB NOT NULL)"
_COLUMNS = "digest, spec, results, curve, versions, date"

#: The seconds that a program waits while another writes.
_PATIENCE = 60.0


def now() -> str:
    """Returns the time, in UTC and whole seconds, as the store has it."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def patiently(action: Callable[[], Result]) -> Result:
    """Repeats an action while another program makes the file, when SQLite itself does not wait."""
    ends = time.monotonic() + _PATIENCE
    while True:
        try:
            return action()
        except sqlite3.OperationalError as error:
            if not _is_busy(error) or time.monotonic() > ends:
                raise
            time.sleep(0.05)


def _is_busy(error: sqlite3.OperationalError) -> bool:
    """Returns True for the error of a file that another program keeps locked."""
    return error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


class Row(NamedTuple):
    """A finished run.

    Attributes:
        spec: the training's `Spec.described`.
        run: the run, without the final state.
        versions: the versions of the software.
        date: the time of its end, in UTC.
        parts: the digests of the parts of its key; empty for a run of an earlier version.
    """

    spec: dict[str, Any]
    run: Run
    versions: dict[str, str]
    date: str
    parts: dict[str, str]

    @property
    def program(self) -> str:
        """A mark of its programs, which seeds share; empty for a run of an earlier version."""
        text = "".join(self.parts.get(name, "") for name in PROGRAMS)
        return f"{zlib.crc32(text.encode()):08x}" if text else ""


class _Results(NamedTuple):
    """Results of a run besides its curve and its scores."""

    method: str
    seed: int
    step_ms: float
    parameters: int
    outcome: str


class Store:
    """The finished runs of a folder.

    A run is written in one transaction. Each call opens the file and closes it. SQLite's log needs
    a local disk, or one program at a time.

    Args:
        folder: the folder of the file.
    """

    def __init__(self, folder: Path):
        self.path = folder / FILE

    def finished(self, specs: Iterable[Spec], alone: bool = False) -> dict[Spec, Run]:
        """Returns the finished runs among specs: on all processes those that process 0 finds.

        Args:
            specs: the specs.
            alone: if True, this process asks alone; else all processes must call it together.

        Raises:
            UserError: for a damaged file.
        """
        from experiments.runs.processes import gathered, writes

        specs, rows = dict.fromkeys(specs), dict[str, Any]()
        with reading(self.path, WAY_OUT):
            for spec in specs if alone or writes() else ():
                for row in self._rows("WHERE digest = ?", spec.digest):
                    rows[spec.digest] = row
            text = json.dumps(rows)
        rows = json.loads(text if alone else gathered(text)[0])
        with reading(self.path, WAY_OUT):
            found = {spec: _row(*rows[spec.digest]) for spec in specs if spec.digest in rows}
        return {spec: row.run._replace(changes=spec.changes) for spec, row in found.items()}

    def split(self, specs: Sequence[Spec], fresh: bool) -> tuple[dict[Spec, Run], list[Spec]]:
        """Returns the finished runs among specs, none of them if ``fresh``, and the other specs."""
        kept = self.finished(() if fresh else specs)
        return kept, [spec for spec in specs if spec not in kept]

    def why_not(self, specs: Iterable[Spec]) -> list[str]:
        """Returns a line for each reason why runs of these settings in the store are not kept."""
        reasons: dict[str, int] = {}
        rows = self.rows() if (specs := list(specs)) else []
        for spec in specs:
            found = [row for row in rows if spec.like(row.spec)]
            why = [why_another(spec, row.parts, row.versions) for row in found]
            if why and all(why):  # Else --fresh trains again what is stored.
                reasons[why[-1]] = reasons.get(why[-1], 0) + 1
        return [f"Trained again: {n} of {len(specs)}, as {why}." for why, n in reasons.items()]

    def others_since(self, specs: Sequence[Spec], since: str) -> list[Spec]:
        """Returns the specs in whose settings runs of other parts were stored since a time."""
        rows = [row for row in self.rows() if row.date >= since]
        return [
            spec
            for spec in specs
            if any(spec.like(row.spec) and spec.changed_parts(row.parts) for row in rows)
        ]

    def rows(self) -> list[Row]:
        """Returns all finished runs, the oldest first.

        Raises:
            UserError: for a damaged file.
        """
        with reading(self.path, WAY_OUT):
            return [_row(*row) for row in self._rows("ORDER BY rowid")]

    def until_complete(self, report: Callable[[], Result]) -> Result:
        """Calls ``report``, which writes what is stored, until no program stores runs meanwhile.

        Returns:
            the result of the last call.
        """
        before, result = self._dates(), report()
        while (after := self._dates()) != before:
            before, result = after, report()
        return result

    def _dates(self) -> list[tuple[Any, ...]]:
        """Returns a record of all runs, which another one changes."""
        return [(row.spec, row.date) for row in self.rows()]

    def check_writable(self) -> None:
        """Raises UserError, before hours of work, if the file is there and cannot be written."""
        if self.path.exists():
            with self._open() as database:
                database.execute("DELETE FROM runs WHERE 0")  # SQLite refuses no BEGIN.

    def add(self, spec: Spec, run: Run, began: Mapping[str, str] | None = None) -> None:
        """Stores a finished run, and replaces an earlier one of the same spec.

        Args:
            spec: the spec.
            run: its run.
            began: the versions that a resumed run began with; None for the present ones.

        Raises:
            UserError: for a damaged file, a full disk, or a run that drew other initial parameters
                than the earlier one; the file is then unchanged.
        """
        if began:
            spec = spec.made_of({"versions": versions_digest(began)})
        self._check_initial(spec, run)
        values = {name: getattr(run, name) for name in _Results._fields}
        beside = {"scores": dict(run.scores), "initial": dict(run.initial)}
        results = json.dumps({**values, **beside, "parts": dict(spec.parts)})
        texts = (json.dumps(spec.described), results, json.dumps(run.curve))
        row = (spec.digest, *texts, json.dumps(began or versions()), now())
        with self._open() as database:
            database.execute(f"INSERT OR REPLACE INTO runs ({_COLUMNS}) VALUES (?,?,?,?,?,?)", row)
            if run.maps is not None:
                np.save(content := io.BytesIO(), run.maps, allow_pickle=False)
                both = spec.digest, content.getvalue()
                database.execute("INSERT OR REPLACE INTO maps VALUES (?,?)", both)
            database.commit()

    def _check_initial(self, spec: Spec, run: Run) -> None:
        before = self.finished([spec], alone=True).get(spec)
        if before is None or not (before.initial and run.initial):
            return
        if others := other_draws(before.initial, run.initial):
            raise UserError(
                f"{spec} drew other initial parameters than the run in {self.path} of the same "
                f"programs, rows and settings: {', '.join(others[:3])}"
                f"{' and others' * (len(others) > 3)}; wanted the same draws for a seed, as one "
                "kind of machine gives them: give another --out, or remove that file."
            )

    def with_maps(self, runs: Iterable[tuple[Spec, Run]]) -> list[Run]:
        """Returns runs with their predicted label maps, which `finished` leaves in the file."""
        with self._open() as database:

            def maps(spec: Spec) -> Integer[np.ndarray, "images height width"] | None:
                query = "SELECT maps FROM maps WHERE digest = ?"
                found = database.execute(query, (spec.digest,)).fetchone()
                return found and np.load(io.BytesIO(found[0]), allow_pickle=False)

            return [run._replace(maps=maps(spec)) for spec, run in runs]

    def _rows(self, which: str, *values: str) -> list[tuple[Any, ...]]:
        """Returns rows without their digests."""
        if not self.path.exists():
            return []
        try:
            return patiently(lambda: self._read("mode=rw", which, values))
        except sqlite3.OperationalError as error:
            self.path.open("rb").close()  # If it cannot be read, the system says why.
            log = self.path.with_name(f"{FILE}-wal")
            if not log.exists() or not log.stat().st_size:
                # On a disk that cannot be written, SQLite cannot make its log.
                return self._read("immutable=1", which, values)
            if error.sqlite_errorcode & 0xFF not in (
                sqlite3.SQLITE_CANTOPEN,
                sqlite3.SQLITE_READONLY,
            ):
                raise
            raise UserError(
                f"cannot read {self.path}: {error}, and {log.name} beside it has its last runs; "
                "wanted a folder that can be written: copy both files to one."
            ) from None

    def _read(self, mode: str, which: str, values: Sequence[str]) -> list[tuple[Any, ...]]:
        """Returns rows of a file that is there."""
        place = f"{self.path.absolute().as_uri()}?{mode}"
        connection = sqlite3.connect(place, timeout=_PATIENCE, uri=True)
        with contextlib.closing(connection) as database:
            if not database.execute("SELECT 1 FROM sqlite_master").fetchone():
                return []  # Another program is about to make it.
            rows = database.execute(f"SELECT {_COLUMNS} FROM runs {which}", values)
            return [row[1:] for row in rows]

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with reading(self.path, WAY_OUT):
            try:
                with contextlib.closing(sqlite3.connect(self.path, timeout=_PATIENCE)) as database:
                    # Readers and a writer do not wait for each other.
                    patiently(lambda: database.execute("PRAGMA journal_mode = WAL"))
                    database.execute(_TABLE)
                    database.execute(_MAPS)
                    yield database
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode == sqlite3.SQLITE_ERROR:  # Tables of another program.
                    raise
                wanted = (
                    "no other program, such as a browser of databases, that keeps it locked"
                    if _is_busy(error)
                    else "a folder that is there, which can be written with its files, on a disk "
                    "with space: free it or change --out"
                )
                raise UserError(f"cannot use {self.path}: {error}; wanted {wanted}.") from None


def _row(spec: str, results: str, curve: str, versions: str, date: str) -> Row:
    """Reads a row of the database; a damaged one raises an error of any type."""
    stored = json.loads(results)
    values = record_of(_Results, {name: stored[name] for name in _Results._fields})
    scores = {name: 0.0 + score for name, score in stored["scores"].items()}
    epochs = [Epoch.of_list(epoch) for epoch in json.loads(curve)]
    if not epochs:
        raise ValueError("a run in it has no epoch")
    method, seed, step_ms, parameters, outcome = values
    initial = {name: (0.0 + a, 0.0 + b) for name, (a, b) in stored.get("initial", {}).items()}
    run = Run(method, seed, epochs, step_ms, parameters, None, outcome, (), scores, None, initial)
    described, made_by = (dict(json.loads(each)) for each in (spec, versions))
    return Row(described, run, made_by, str(date), dict(stored.get("parts", {})))
