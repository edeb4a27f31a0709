"""The spec of one training: what decides its numbers, and comparisons of it."""

import ast
import hashlib
import importlib.metadata
import importlib.util
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from experiments import listed
from experiments.config import Config
from experiments.errors import UserError

DEVICES = frozenset({"parallel", "mesh", "coordinator", "processes", "process_id", "join_timeout"})
#: Settings that change no number of a run: the devices, the reports, the number of seeds, and the
#: selection of a paper's cells. ``nonfinite`` is one, so that a run that diverged may resume
#: without the diverging updates.
FREE = DEVICES | {"tensorboard", "nonfinite", "seeds", "only_rows", "only_columns", "last"}

#: The name of the digest of the sources beside the versions, and what differs if it does.
SOURCES, OTHER_SOURCES = "sources", "code of jaxnorm before an edit"

#: The name of JAX's options beside the versions; those that change a run's numbers, with defaults.
OPTIONS = "options"
JAX_OPTIONS: Mapping[str, Any] = {
    "jax_enable_x64": False,
    "jax_default_matmul_precision": None,
    "jax_default_prng_impl": "threefry2x32",
    "jax_threefry_partitionable": True,
    "jax_random_seed_offset": 0,
}

#: The packages besides jaxnorm that a run's numbers depend on.
PACKAGES = ("jax", "flax", "optax")

#: The folders of the experiments whose code decides a run's numbers, once its data are known.
DECIDE = ("augmentation", "methods", "models", "training")

#: The settings that say where and what the data and the network are, beside their names.
IDENTITY = ("dataset", "data", "network")

#: The reason if the files of a network are the same, and the network is another.
ANOTHER_NETWORK = (
    "the same files make another network in this process: sort what it takes from a set or from a "
    "folder, and key by names, not by hash() or id() (PYTHONHASHSEED=0 keeps the order of sets)"
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
        data: a checksum that tells the rows from those of another file of the same name.
        network: a digest of the programs that make and call a network of the user's own.
    """

    method: str
    seed: int
    config: Config
    changes: Changes = ()
    data: Any = ""
    network: str | None = None

    def __str__(self) -> str:
        return f"{self.name}, seed {self.seed}"

    @property
    def name(self) -> str:
        """The name that the runs of all seeds share."""
        return name_of(self.method, self.changes)

    @property
    def described(self) -> dict[str, Any]:
        """All settings that decide the numbers; those that are None have no entry."""
        flags = asdict(self.config) | dict(self.changes)
        identity = {name: getattr(self, name) for name in ("method", "seed", "data", "network")}
        kept = {name: value for name, value in flags.items() if name not in FREE}
        return {name: value for name, value in (kept | identity).items() if value is not None}

    def like(self, described: Mapping[str, Any], ignored: Iterable[str] = IDENTITY) -> bool:
        """Returns True if the settings of a stored run are this one's, some of them ignored."""
        return bool(_plain(self.described, ignored) == _plain(described, ignored))

    @property
    def digest(self) -> str:
        """The key of the training in a store: a digest of all settings that decide the numbers.

        The checksum tells the rows; where they lie decides nothing.
        """
        settings = self.described
        if self.data:
            settings.pop("dataset", None)
        text = json.dumps(settings, sort_keys=True)
        return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()


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


def versions() -> dict[str, str]:
    """Returns versions, jaxnorm's sources and JAX's options, which a run's numbers depend on."""
    return code_versions() | {OPTIONS: options()}


def code_versions() -> dict[str, str]:
    """Returns the versions of jaxnorm and of what it computes with, and its sources."""
    return {"jaxnorm": listed.version(), **package_versions(), SOURCES: sources()}


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


@cache
def sources() -> str:
    """Returns a digest of the code that decides a run's numbers, which an edit changes.

    A checkout keeps its version from edit to edit. Comments, docstrings and line ends do not count.
    """
    package = importlib.util.find_spec("jaxnorm")
    origin = package.origin if package is not None else None
    here = Path(__file__).parents[1]
    folders = [here / name for name in DECIDE]
    folders += [Path(origin).parent] if origin else []
    files = [(file.relative_to(folder.parent), file) for folder in folders for file in _py(folder)]
    number = 0
    for name, file in files:
        number = zlib.crc32(f"{name.as_posix()}\n{_code(file)}".encode(), number)
    return f"{number:08x}"


def _py(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.py"))


def _code(file: Path) -> str:
    """Returns the syntax of a file without its docstrings."""
    tree = ast.parse(file.read_bytes())
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and _is_text(body[0]):
            del body[0]
    return ast.dump(tree)


def _is_text(node: ast.AST) -> bool:
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def version_note(saved: Mapping[str, str]) -> str:
    """Names the versions that wrote a checkpoint, if they differ from the present ones."""
    words = {SOURCES: OTHER_SOURCES, OPTIONS: saved.get(OPTIONS) or "JAX's default options"}
    others = [
        words.get(name, f"{name} {saved.get(name)}")
        for name, now in versions().items()
        if saved.get(name, now) != now
    ]
    return f" of {' and '.join(others)}, which may differ in defaults and numbers" if others else ""


def check_config(saved: dict[str, Any], now: dict[str, Any], where: str) -> None:
    """Raises UserError naming every setting in which ``now`` differs from a checkpoint's.

    A missing setting has its default: it was added later, or left out. Data may lie elsewhere, and
    a run may become longer if nothing in it depends on its length.
    """
    defaults: dict[str, Any] = {each.name: each.default for each in fields(Config)}
    old, new = (_plain(defaults | each, ()) for each in (saved, now))
    if old.get("data") == new.get("data"):
        old["dataset"] = new["dataset"]
    epochs = old["epochs"]
    if epochs < new["epochs"]:
        old["epochs"] = new["epochs"]
    if apart := differences(old, new, "there", "here"):
        if old.get("data") == new.get("data") and old.get("network") != new.get("network"):
            apart += f"; {ANOTHER_NETWORK}"
        raise UserError(
            f"the checkpoint {where} has other settings: {apart}. Give the same, or another "
            "--checkpoint-dir."
        )
    if epochs < new["epochs"] and (not new["rate_decay"] or new["epsilon"] is not None):
        raise UserError(
            f"the checkpoint {where} is of a run of {epochs} epochs, on whose number its schedule "
            f"depends, and --epochs is {new['epochs']}; wanted the same number, or a run with "
            "--rate-decay and no --epsilon, which can be extended: give another --checkpoint-dir "
            "to begin one."
        )


def differences(one: Mapping[str, Any], other: Mapping[str, Any], here: str, there: str) -> str:
    """Returns the settings in which two records differ, with both values; "" if they are equal."""
    # Through JSON, which makes lists of tuples.
    old, new = (json.loads(json.dumps(record)) for record in (one, other))
    return "; ".join(
        f"{name.replace('_', '-')} {old.get(name)} {here} and {new.get(name)} {there}"
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    )
