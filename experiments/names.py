"""Misspelt names of a command, refused before anything that takes long is imported."""

from collections.abc import Sequence
from typing import Any

from experiments import listed
from experiments.bench.compiled.flags import Compiled
from experiments.commands import ALL, Bench, Paper, Train
from experiments.config import Config
from experiments.data.load import find_source
from experiments.errors import UserError, check_known, unknown


def check_names(command: Any) -> None:
    """Raises UserError for the first name in a command's flags that no table has."""
    if isinstance(config := getattr(command, "config", None), Config):
        _check_config(config)
        if isinstance(command, Train) and "," in config.model:
            raise UserError(
                f"--model is {config.model!r}; wanted one network: compare takes several."
            )
    if isinstance(command, Paper):
        check_known("paper item", command.item, (*listed.paper_items(), ALL))
    if isinstance(command, Bench):
        check_known("benchmark", command.name, (*listed.benchmarks(), "compiled"))
    if not isinstance(command, Compiled):  # Its methods depend on the kind of program.
        names = f"{getattr(command, 'methods', '')},{getattr(command, 'method', '')}"
        for name in map(str.strip, names.split(",")):
            check_known("method", name, listed.methods())


def _check_config(config: Config) -> None:
    for model in map(str.strip, config.model.split(",")):
        _check_model(model)
    if config.activation not in (known := listed.activations()):
        raise unknown("activation", config.activation, known)
    if config.augment.partition(":")[0] not in (known := listed.augmentations()):
        raise unknown("augmentation", config.augment, known)
    find_source(config.dataset)


def _check_model(model: str) -> None:
    if ":" in model:  # FILE.py:NAME.
        return
    if model.endswith(".py"):
        raise UserError(
            f"--model is {model!r}, a file; wanted FILE.py:NAME, with the name of the class or "
            "function that makes the network."
        )
    check_known("model", model, listed.models())


def check_values(arguments: Sequence[str]) -> None:
    """Raises UserError for an empty argument, which would be a folder or a default."""
    for before, argument in zip(["", *arguments], arguments, strict=False):
        flag, equals, value = argument.partition("=")
        if not argument.strip() or (argument.startswith("--") and equals and not value.strip()):
            named, shown = (flag, value) if equals else (before or "the argument", argument)
            raise UserError(
                f"{named} is {shown!r}, as an unset variable is; wanted a value: set it, or leave "
                "the flag out."
            )
