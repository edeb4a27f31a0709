"""Readers of published sub-policies: lists in a file of Python code, which is parsed, not run."""

import ast
import warnings
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from experiments.augmentation.operations import OPERATIONS
from experiments.augmentation.policies import Policies
from experiments.data.reading import reading

#: The file with the policies of Lim et al. 2019, and its function with those found on CIFAR-10.
POLICIES_FILE = "archive.py"
POLICIES_SOURCE = "https://github.com/kakaobrain/fast-autoaugment, FastAutoAugment/archive.py"
POLICIES_FUNCTION = "fa_reduced_cifar10"


def read_policies(place: str) -> Policies:
    """Reads the sub-policies of a file.

    Args:
        place: ``PATH`` or ``PATH#FUNCTION``; without FUNCTION it is `POLICIES_FUNCTION`. The
            function assigns or returns lists of pairs of (operation, probability, level).

    Raises:
        UserError: if there is no such file or function, or something in it is no sub-policy.
    """
    path, _, function = place.partition("#")
    way_out = f"wanted its authors' file, as it is published: {POLICIES_SOURCE}"
    with reading(f"sub-policies from {place}", way_out), warnings.catch_warnings(action="ignore"):
        tree = ast.parse(Path(path).read_text(encoding="utf-8"))
        pairs = np.array(_pairs(_lists(tree, function or POLICIES_FUNCTION)), object)
        if not len(pairs):
            raise ValueError("there are no pairs of (operation, probability, level)")
        names, numbers = list(OPERATIONS), pairs[..., 1:].astype(np.float32)
        if not ((numbers >= 0) & (numbers <= 1)).all():
            found = f"{numbers.min():g} to {numbers.max():g}"
            raise ValueError(f"probabilities and levels are from 0 to 1, not from {found}")
        places = [[names.index(name) for name in pair] for pair in pairs[..., 0]]
    return Policies(*map(jnp.asarray, (places, numbers[..., 0], numbers[..., 1])))


def _lists(tree: ast.Module, function: str) -> list[Any]:
    """Returns the lists of constants that the function assigns or returns."""
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    lines = (line for line in functions[function].body if isinstance(line, ast.Assign | ast.Return))
    return [ast.literal_eval(line.value) for line in lines if isinstance(line.value, ast.List)]


def _pairs(tree: list[Any]) -> list[Any]:
    """Returns the sub-policies in nested lists of any depth."""
    if len(tree) == 2 and all(isinstance(each[0], str) for each in tree):
        return [tree]
    return [pair for branch in tree for pair in _pairs(branch)]
