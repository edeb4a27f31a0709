"""Misspelt names and flags of a command, refused before anything that takes long is imported."""

import difflib
from collections.abc import Sequence
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from tyro.conf import Positional, Suppress

from experiments import listed
from experiments.bench.compiled.flags import Compiled
from experiments.commands import ALL, Bench, Paper
from experiments.config import Config
from experiments.data.bundled import BUNDLED
from experiments.data.load import find_source
from experiments.errors import UserError, check_known, unknown

#: Flags of other commands that people try, and the way to the same.
ELSEWHERE = {
    ("compare", "resume"): "compare goes on by itself with the same --out",
    ("compare", "data-dir"): "give the path as --dataset",
    ("train", "data-dir"): "give the path as --dataset",
    ("compare", "seed"): "compare takes the number of seeds, --seeds",
    ("train", "seeds"): "train takes one, --seed",
    ("compare", "method"): "compare takes several, --methods",
    ("train", "methods"): "train takes one, --method",
}

#: Other names of activations.
SYNONYMS = {"swish": "silu", "linear": "identity", "none": "identity", "logistic": "sigmoid"}


def check_names(command: Any) -> None:
    """Raises UserError for the first name in a command's flags that no table has."""
    if isinstance(config := getattr(command, "config", None), Config):
        _check_config(config)
    if isinstance(command, Paper):
        check_known("paper item", command.item, (*listed.paper_items(), ALL))
    if isinstance(command, Bench):
        check_known("benchmark", command.name, (*listed.benchmarks(), "compiled"))
    if not isinstance(command, Compiled):  # Its methods depend on the kind of program.
        names = f"{getattr(command, 'methods', '')},{getattr(command, 'method', '')}"
        for name in filter(None, map(str.strip, names.split(","))):
            if name not in (known := listed.methods()):
                raise unknown("method", name, known, known)


def _check_config(config: Config) -> None:
    if ":" not in config.model:  # FILE.py:NAME.
        if config.model.endswith(".py"):
            raise UserError(
                f"--model is {config.model!r}, a file; wanted FILE.py:NAME, with the name of the "
                "class or function that makes the network."
            )
        check_known("model", config.model, listed.models())
    if config.activation not in (known := listed.activations()):
        raise unknown("activation", config.activation, known, synonyms=SYNONYMS)
    if config.augment.partition(":")[0] not in (known := listed.augmentations()):
        raise unknown("augmentation", config.augment, known)
    find_source(config.dataset)


def check_flags(command: Any, arguments: Sequence[str], program: str) -> None:
    """Raises UserError for the first argument that is no flag of a command, or an empty value.

    Args:
        command: the record of the flags.
        arguments: the arguments behind the command's name.
        program: the command as it is called, for the message.
    """
    known, name = flags_of(command), program.split()[-1]
    positional = _positional(command)
    last = ""
    for argument in arguments:
        if argument.startswith("--") and argument != "--":
            flag, equals, value = argument[2:].partition("=")
            last = flag.replace("_", "-")
            if last not in known:
                raise _no_flag(name, last, known, program)
            if equals:
                _check_value(last, value)
                last = ""
            elif known[last]:
                last = ""
        elif last:
            _check_value(last, argument)
            last = last if _takes_many(command, last) else ""
        elif positional:
            if not argument.strip():
                raise UserError(f"the {positional[0]} is {argument!r}; wanted a name or a path.")
            positional = positional[1:]
        elif not argument.startswith("-") or argument[1:2].isalpha():
            raise _no_place(name, argument, known, program)


def flags_of(command: Any) -> dict[str, bool]:
    """Returns the flags of a command by name, with hyphens; True for one that takes no value."""
    found: dict[str, bool] = {}
    hints = get_type_hints(command, include_extras=True)
    for field in fields(command):
        default = field.default
        if field.default_factory is not MISSING:
            default = field.default_factory()
        if is_dataclass(default):
            found |= flags_of(type(default))
        elif not _marked(hints[field.name], Positional) and not _marked(
            hints[field.name], Suppress
        ):
            name = field.name.replace("_", "-")
            found[name] = isinstance(default, bool)
            if found[name]:
                found[f"no-{name}"] = True
    return found


def _marked(hint: Any, mark: Any) -> bool:
    """Returns True if an annotation has one of tyro's marks."""
    wanted = get_args(mark[int])[1:]
    return any(each in wanted for each in get_args(hint)[1:]) if get_origin(hint) else False


def _positional(command: Any) -> list[str]:
    hints = get_type_hints(command, include_extras=True)
    return [each.name for each in fields(command) if _marked(hints[each.name], Positional)]


def _takes_many(command: Any, name: str) -> bool:
    hint = get_type_hints(command).get(name.replace("-", "_"))
    return any(get_origin(each) is tuple for each in (hint, *get_args(hint)))


def _check_value(flag: str, value: str) -> None:
    if not value.strip():
        raise UserError(
            f"--{flag} is {value!r}, as an unset variable is; wanted a value: set it, or leave the "
            "flag out."
        )


def _no_flag(name: str, flag: str, known: dict[str, bool], program: str) -> UserError:
    if way := ELSEWHERE.get((name, flag)):
        return UserError(f"{name} has no --{flag}: {way}.")
    near = [each for each in known if _initials(each) == flag.replace("-", "")]
    near += difflib.get_close_matches(flag, known, n=3, cutoff=0.6)
    near += [each for each in known if flag in each.split("-") or each in flag.split("-")]
    shown = " or ".join(f"--{each}" for each in list(dict.fromkeys(near))[:3])
    guess = f"did you mean {shown}? " if near else ""
    return UserError(f"{name} has no --{flag}: {guess}{program} --help lists its flags.")


def _initials(flag: str) -> str:
    return "".join(word[0] for word in flag.split("-") if word)


def _no_place(name: str, argument: str, known: dict[str, bool], program: str) -> UserError:
    """Makes the error for a word that belongs to no flag, with the flag that takes it."""
    kinds = {
        "dataset": argument in BUNDLED or Path(argument).exists(),
        "methods": argument.partition(",")[0] in listed.methods(),
        "method": argument in listed.methods(),
        "model": argument in listed.models() or ".py:" in argument,
    }
    meant = [f"--{flag} {argument}" for flag, fits in kinds.items() if fits and flag in known]
    guess = f"did you mean {meant[0]}? " if meant else ""
    return UserError(
        f"{argument!r} belongs to no flag of {name}: {guess}{program} --help lists its flags."
    )
