"""Sub-policies as their authors publish them: lists in a file of code, which is not run."""

import ast
import reprlib
import warnings
from pathlib import Path
from typing import Any

import jax.numpy as jnp

from experiments.augmentation.operations import OPERATIONS
from experiments.augmentation.policies import Policies
from experiments.errors import UserError, unknown
from experiments.reading import reading

#: Where the policies of Lim et al. 2019 are, and the function whose list was found on CIFAR-10.
POLICIES_SOURCE = "https://github.com/kakaobrain/fast-autoaugment, FastAutoAugment/archive.py"
POLICIES_FUNCTION = "fa_reduced_cifar10"


def read_policies(place: str) -> Policies:
    """The sub-policies of a file.

    Args:
        place: ``PATH`` or ``PATH#FUNCTION``; without FUNCTION it is `POLICIES_FUNCTION`. The
            function assigns or returns lists of pairs of (operation, probability, level).

    Raises:
        UserError: if there is no such file or function, or something in it is no sub-policy.
    """
    path, _, function = place.partition("#")
    pairs = _pairs(_lists(Path(path), function or POLICIES_FUNCTION))
    if not pairs:
        raise UserError(
            f"{place} holds no pairs of (operation, probability, level); wanted lists of them, as "
            f"they are published: {POLICIES_SOURCE}."
        )
    names = list(OPERATIONS)
    for name, *numbers in (step for pair in pairs for step in pair):
        if name not in OPERATIONS:
            raise unknown(f"operation in {place}", name, OPERATIONS)
        if not all(_is_fraction(number) for number in numbers):
            raise UserError(
                f"{place}: probabilities and levels are from 0 to 1; got "
                f"{reprlib.repr(numbers)}: mend the file, or take the published one."
            )
    operations, probabilities, levels = (
        [[step[part] for step in pair] for pair in pairs] for part in range(3)
    )
    places = [[names.index(name) for name in pair] for pair in operations]
    return Policies(*map(jnp.asarray, (places, probabilities, levels)))


def _lists(path: Path, function: str) -> list[Any]:
    """The lists of constants that the function assigns or returns."""
    with (
        reading(
            f"sub-policies from {path}",
            f"wanted its authors' file, as it is published: {POLICIES_SOURCE}",
        ),
        warnings.catch_warnings(action="ignore"),
    ):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        if function not in functions:
            raise unknown(f"function in {path}", function, functions)
        lines = [
            node for node in functions[function].body if isinstance(node, ast.Assign | ast.Return)
        ]
        return [ast.literal_eval(line.value) for line in lines if isinstance(line.value, ast.List)]


def _pairs(tree: list[Any]) -> list[Any]:
    """The sub-policies in nested lists, at whatever depth."""
    if len(tree) == 2 and all(_is_step(each) for each in tree):
        return [tree]
    return [pair for branch in tree if isinstance(branch, list) for pair in _pairs(branch)]


def _is_step(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) == 3 and isinstance(value[0], str)


def _is_fraction(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
