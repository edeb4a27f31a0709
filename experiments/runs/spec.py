"""The spec of one training: what decides its numbers, and comparisons of it."""

import hashlib
import importlib.metadata
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from experiments import listed
from experiments.config import OF_PARTS, Config
from experiments.data.dataset import Dataset
from experiments.errors import UserError
from experiments.models.own_code import is_from_file

DEVICES = frozenset({"parallel", "mesh", "coordinator", "processes", "process_id", "join_timeout"})
#: Settings that change no number of a run: the devices, the reports, the number of seeds, and the
#: selection of a paper's cells. ``nonfinite`` is one, so that a run that diverged may resume
#: without the diverging updates.
FREE = DEVICES | {"tensorboard", "nonfinite", "seeds", "only_rows", "only_columns", "last"}

#: The name of JAX's options beside the versions; those that change a run's numbers, with defaults.
OPTIONS = "options"
JAX_OPTIONS: Mapping[str, Any] = {
    "jax_enable_x64": False,
    "jax_default_matmul_precision": None,
    "jax_default_prng_impl": "threefry2x32",
    "jax_threefry_partitionable": True,
    "jax_random_seed_offset": 0,
}

#: The packages that a run's numbers depend on, besides jaxnorm, whose programs tell of it.
PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy")

#: The parts of a run that are programs, and those that a checkpoint must share.
PROGRAMS = ("initialization", "step", "score")
RESUMED = (*PROGRAMS, "rows")

#: The settings that say where the data and the network are; "network" is of earlier versions.
IDENTITY = ("dataset", "data", "network")

#: The settings that the rows or the programs show; others belong to a run's key by name.
SHOWN = frozenset(
    {"method", "seed", "dataset", "data", "train_rows", "test_rows", "label", "resize", "held_out"}
    | {"model", "activation", "depth", "width", "channels", "constrain_head", "norm_at"}
    | {"optimizer", "rate_schedule", "rate_decay", "warm_up", "clip_layers"}
    | {"ghost_groups", "accumulate", "epsilon", "dtype", "alpha_dropout", "head_dropout"}
    | {"growing_noise", "squared_radius", *OF_PARTS}
)

#: The values of settings that a key leaves out, so that a setting which is added here with the
#: value that runs had before it keeps their keys. They stay as they are if a default moves.
LEFT_OUT: Mapping[str, Any] = {
    "epochs": 10,
    "batch_size": 64,
    "learning_rate": 0.05,
    "weight_decay": 1e-3,
    "augment": "none",
}

#: The settings that make no difference to a network of the user's own.
NOT_OF_OWN = ("activation", "depth", "width", "channels")

#: Added to the seed of a result for its trials: other initializations, batches and noise.
OFFSET = 1_000_000

#: The end of an error on a network, or rows, that a process has otherwise.
UNCHANGED = (
    "a file was edited meanwhile, or the network follows the clock, NumPy's random numbers or the "
    "order of a set, which are others in each process (sort it, and draw from rngs); finished "
    "runs are kept, and the same command begins with what is there now"
)

#: Settings by the names of their fields.
Changes = tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Spec:
    """One training: a method, a seed, data and settings.

    Attributes:
        method: the name of the method.
        seed: the seed of the split, the initialization, the batches and the noise.
        config: the settings that several specs share.
        changes: the settings of this spec alone, as (field, value).
        data: the name of the data among those of a paper's table.
        parts: (name, digest) of what is trained: `PROGRAMS`, rows, settings and versions.
    """

    method: str
    seed: int
    config: Config
    changes: Changes = ()
    data: str = ""
    parts: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return f"{self.name}, seed {self.seed}"

    @property
    def name(self) -> str:
        """The name that the runs of all seeds share."""
        return name_of(self.method, self.changes)

    @property
    def described(self) -> dict[str, Any]:
        """All settings that are not free; those that are None have no entry."""
        flags = asdict(self.config) | dict(self.changes)
        identity = {name: getattr(self, name) for name in ("method", "seed", "data")}
        kept = {name: value for name, value in flags.items() if name not in FREE}
        return {name: value for name, value in (kept | identity).items() if value is not None}

    def like(self, described: Mapping[str, Any], ignored: Iterable[str] = IDENTITY) -> bool:
        """Returns True if the settings of a stored run are this one's, some of them ignored.

        A file of the user's may be given by another path.
        """
        both = [self.described, described]
        if is_from_file(self.config.model):
            ignored = (*ignored, *NOT_OF_OWN)
            both = [{**each, "model": Path(str(each.get("model"))).name} for each in both]
        mine, other = (_plain(each, ignored) for each in both)
        return bool(mine == other)

    @property
    def digest(self) -> str:
        """The key of the training in a store: a digest of its method's name, its seed and parts."""
        text = json.dumps([self.method, self.seed, sorted(self.parts)])
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def resumed(self) -> dict[str, Any]:
        """The settings and digests that a checkpoint and the run that goes on from it share."""
        return self.described | {name: each for name, each in self.parts if name in RESUMED}

    def made_of(self, parts: Mapping[str, str]) -> "Spec":
        """Returns the spec with these parts in the place of its own."""
        return replace(self, parts=tuple({**dict(self.parts), **parts}.items()))

    def changed_parts(self, parts: Mapping[str, str]) -> list[str]:
        """Returns the names of this spec's parts that are others there."""
        return [name for name, digest in self.parts if parts.get(name) != digest]

    def check_unchanged(self, parts: Mapping[str, str]) -> None:
        """Raises UserError if the parts, as a process has them, are no longer the spec's."""
        if changed := self.changed_parts(parts):
            differ = "differ" if len(changed) > 1 or changed[0].endswith("s") else "differs"
            raise UserError(
                f"{self} cannot be trained: its {_words(changed)} {differ} here from what the "
                f"command began with; {UNCHANGED}."
            )


def _plain(settings: Mapping[str, Any], ignored: Iterable[str]) -> Any:
    """Returns settings as JSON has them, without those that are ignored."""
    kept = {name: value for name, value in settings.items() if name not in ignored}
    return json.loads(json.dumps(kept))


def name_of(method: str, changes: Changes) -> str:
    """Returns the method's name with the changed settings."""
    return " ".join([method, *(f"{name}={shown(value)}" for name, value in changes)])


def shown(value: object) -> str:
    """Returns a setting as text; a number in six digits, or in as many as identify it."""
    if not isinstance(value, int | float):
        return str(value)
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def own_settings(changes: Iterable[tuple[tuple[str, float], ...]]) -> tuple[str, ...]:
    """Returns the names of all changed fields."""
    return tuple(dict.fromkeys(name for each in changes for name, _ in each))


def checksum(*arrays: np.ndarray, names: Iterable[str] = ()) -> int:
    """Returns a checksum of arrays and names, which tells data sets apart."""
    number = zlib.crc32("\n".join(names).encode(errors="surrogateescape"))
    for array in arrays:
        number = zlib.crc32(repr(array.shape).encode(), number)
        number = zlib.crc32(np.ascontiguousarray(array).data, number)
    return number


def parts_beside(described: Mapping[str, Any], rows: str) -> dict[str, str]:
    """Returns what no program of a run shows: the digests of its rows, settings and versions.

    Settings count by their values, except those of `LEFT_OUT`.
    """
    settings = {
        name: value
        for name, value in described.items()
        if name not in SHOWN and not (name in LEFT_OUT and value == LEFT_OUT[name])
    }
    return {
        "rows": rows,
        "settings": _digest(settings | {OPTIONS: options()}),
        "versions": versions_digest(package_versions()),
    }


def rows_digest(dataset: Dataset) -> str:
    """Returns a digest of rows, labels and names of classes.

    For a stream it is one of its sample and of its files' names, sizes and times of change.
    """
    stream, moments = dataset.stream, (dataset.mean, dataset.scale)
    streamed = [] if stream is None else [len(stream.train), len(stream.test), stream.files()]
    arrays = [np.asarray(each) for each in (*moments, streamed) if each is not None]
    return f"{checksum(*dataset[:4], *arrays, names=dataset.classes):08x}"


def versions_digest(versions: Mapping[str, str]) -> str:
    """Returns the digest of the versions of `PACKAGES` in a record of versions."""
    return _digest([versions.get(name) for name in PACKAGES])


def _digest(record: Any) -> str:
    text = json.dumps(record, sort_keys=True)
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:16]


def versions() -> dict[str, str]:
    """Returns the versions and JAX's options of this process, which are stored beside a run."""
    return {"jaxnorm": listed.version(), **package_versions(), OPTIONS: options()}


@cache
def package_versions() -> dict[str, str]:
    """Returns the versions of `PACKAGES`, read once: they are those that this process imports."""
    return {name: importlib.metadata.version(name) for name in PACKAGES}


def options() -> str:
    """Returns those of `JAX_OPTIONS` that are not the default, from variables or the user's code.

    Matrix products in float32 on a TPU, random bits and the type of numbers follow from them.
    """
    import jax

    values = {name: getattr(jax.config, name, usual) for name, usual in JAX_OPTIONS.items()}
    others = {name: value for name, value in values.items() if value != JAX_OPTIONS[name]}
    return " ".join(f"{name}={value}" for name, value in others.items())


def version_note(saved: Mapping[str, str]) -> str:
    """Names the versions that wrote a checkpoint, if they differ from the present ones."""
    words = {OPTIONS: saved.get(OPTIONS) or "JAX's default options"}
    others = [
        words.get(name, f"{name} {saved.get(name)}")
        for name, now in versions().items()
        if saved.get(name, now) != now
    ]
    return f" of {' and '.join(others)}, which may differ in defaults and numbers" if others else ""


def check_config(saved: dict[str, Any], now: dict[str, Any], where: str) -> None:
    """Raises UserError naming the settings and parts in which ``now`` differs from a checkpoint's.

    A missing setting has its default: it was added later, or left out. Data may lie elsewhere, and
    a run may become longer if nothing in it depends on its length.
    """
    defaults: dict[str, Any] = {each.name: each.default for each in fields(Config)}
    ignored = (*IDENTITY, *RESUMED)
    old, new = (_plain(defaults | each, ignored) for each in (saved, now))
    epochs, is_longer = old["epochs"], old["epochs"] < new["epochs"]
    if is_longer:
        old["epochs"] = new["epochs"]
    if apart := differences(old, new, "there", "here"):
        raise UserError(
            f"the checkpoint {where} has other settings: {apart}. Give the same, or another "
            "--checkpoint-dir."
        )
    if is_longer and (not new["rate_decay"] or new["epsilon"] is not None):
        raise UserError(
            f"the checkpoint {where} is of a run of {epochs} epochs, on whose number its schedule "
            f"depends, and --epochs is {new['epochs']}; wanted the same number, or a run with "
            "--rate-decay and no --epsilon, which can be extended: give another --checkpoint-dir "
            "to begin one."
        )
    if changed := [name for name in RESUMED if saved.get(name) != now.get(name)]:
        raise UserError(
            f"the checkpoint {where} has the same settings, and its {_words(changed)} are others "
            "than here: code or data were edited since, the devices are others (the variance "
            "constancy loss has one group per device), or the network is another in each process "
            "(over a set, for example); undo that, or give another --checkpoint-dir."
        )


def check_options(saved: Mapping[str, str], where: str) -> None:
    """Raises UserError if the options of JAX that a checkpoint was trained with are others here."""
    before, here = saved.get(OPTIONS), options()
    if before is not None and before != here:
        usual = "the default ones"
        raise UserError(
            f"the checkpoint {where} was trained with other options of JAX: {before or usual} "
            f"there and {here or usual} here. Give the same, or another --checkpoint-dir."
        )


def _words(names: Sequence[str]) -> str:
    """Returns names as words: a, b and c."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def why_another(spec: Spec, parts: Mapping[str, str], versions: Mapping[str, str]) -> str:
    """Says in what a stored run of a spec's settings differs from it; empty if in nothing.

    Args:
        spec: the spec.
        parts: the digests of the stored run's parts; none for a run of an earlier version.
        versions: its versions and JAX's options.
    """
    if not parts:
        return "the stored ones are of an earlier version, which kept no digests of programs"
    changed = spec.changed_parts(parts)
    note = version_note({n: each for n, each in versions.items() if n in (*PACKAGES, OPTIONS)})
    reasons = [f"the stored ones are{note.partition(',')[0]}"] * bool(note and changed)
    if changed := [name for name in changed if not note or name not in ("settings", "versions")]:
        reasons.insert(0, f"their {_words(changed)} changed")
    return ", and ".join(reasons)


def differences(one: Mapping[str, Any], other: Mapping[str, Any], here: str, there: str) -> str:
    """Returns the settings in which two records differ, with both values; "" if they are equal."""
    # Through JSON, which makes lists of tuples.
    old, new = (json.loads(json.dumps(record)) for record in (one, other))
    return "; ".join(
        f"{name.replace('_', '-')} {old.get(name)} {here} and {new.get(name)} {there}"
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    )
