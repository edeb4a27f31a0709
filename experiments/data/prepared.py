"""Where a prepared TensorFlow dataset lies, and that nothing is run to read it."""

import fnmatch
import importlib
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from experiments.errors import UserError
from experiments.reading import AnyPath, reading

#: NAME, NAME/CONFIG, with :VERSION or a pattern of versions after either.
NAME = re.compile(r"(\w+)(?:/(\w[\w.+-]*))?(?::([\d*]+(?:\.[\d*]+){2}))?")

FEATURES = "features.json"

Part = TypeVar("Part")

#: What a class of features may be called: those of TensorFlow Datasets itself, which are data.
OWN_FEATURES = re.compile(r"tensorflow_datasets\.core\.features\.[\w.]+")
#: The keys, old and new, whose value is imported to find a class.
CLASS_KEYS = ("pythonClassName", "python_class_name", "type")


def data_dir() -> AnyPath:
    """The folder in which TensorFlow Datasets keep their files; it may be ``gs://BUCKET/FOLDER``."""
    place = os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"
    # Of etils, which TensorFlow Datasets bring: the paths of pathlib, also where no disk is.
    return importlib.import_module("etils.epath").Path(place).expanduser()


def find_prepared(name: str) -> AnyPath | None:
    """The folder of a prepared dataset's newest version, or of the one that is named.

    Raises:
        UserError: for a name whose loader would download or run code of others.
    """
    namespace, colon, rest = name.partition(":")
    if colon and not re.fullmatch(r"[\d.*]+", rest):
        raise UserError(
            f"{name} is of the registry {namespace!r}, whose loader downloads and runs code; "
            "wanted the name of a TensorFlow dataset that is prepared: give one without a colon."
        )
    parts = NAME.fullmatch(name)
    if parts is None:
        return None
    folder, version = data_dir() / parts[1], parts[3] or "*.*.*"
    config = parts[2] or _default_config(folder)
    found = [
        path
        for path in (folder / config if config else folder).glob("*.*.*")
        if re.fullmatch(r"\d+\.\d+\.\d+", path.name) and fnmatch.fnmatch(path.name, version)
        if (path / FEATURES).is_file()
    ]
    return max(found, key=lambda path: [int(part) for part in path.name.split(".")], default=None)


def _default_config(folder: AnyPath) -> str:
    """The configuration that its author made the default; empty where there are none."""
    metadata = folder / ".config" / "metadata.json"
    if not metadata.is_file():
        return ""
    with reading(metadata, "wanted a configuration: name it, as in --dataset NAME/CONFIG"):
        name = json.loads(metadata.read_text(encoding="utf-8")).get("default_config_name") or ""
        if not re.fullmatch(r"(\w[\w.+-]*)?", name):
            raise ValueError(f"its default_config_name is {name!r}")
        return name


def labelled(parts: Sequence[Part], label_of_first: Callable[[Part], Any]) -> Part:
    """The first of several parts that has labels: ImageNet's test part has -1 for all of them.

    Args:
        parts: at least one; the first of all where none has labels.
        label_of_first: that of a part's first row.
    """
    return next((part for part in parts if label_of_first(part) >= 0), parts[0])


def refuse_foreign_classes(folder: AnyPath) -> None:
    """Raises UserError if the metadata name a class outside of TensorFlow Datasets.

    Reading them would import its module, whatever that does.
    """
    path = folder / FEATURES
    with reading(path, "wanted the features as JSON: prepare the dataset anew"):
        named = list(_classes(path.read_text(encoding="utf-8")))
    foreign = next((name for name in named if not OWN_FEATURES.fullmatch(name)), None)
    if foreign is not None:
        raise UserError(
            f"{path} names the class {foreign[:80]!r}, which would be imported; wanted features "
            "of TensorFlow Datasets alone: prepare the dataset with those, or save it as FILE.npz."
        )


def _classes(text: str) -> Iterator[str]:
    """The names of classes in a text of JSON, and in the texts of JSON that it holds."""
    found: list[str] = []

    def pairs(items: list[tuple[str, Any]]) -> None:
        for key, value in items:
            if not isinstance(value, str):  # A feature may be called type: it is not one.
                continue
            if value.lstrip().startswith(("{", "[")):
                found.extend(_classes(value))
            elif key in CLASS_KEYS:
                found.append(value)

    # Every pair, also of a key that comes twice.
    json.loads(text, object_pairs_hook=pairs)
    return iter(found)
