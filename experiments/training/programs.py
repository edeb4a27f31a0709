"""Digests of a network's programs: what is trained, whatever set, file or clock it was made of."""

import hashlib
import inspect
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal

from experiments.data.dataset import Dataset
from experiments.errors import UserError
from experiments.models.from_file import executed_afresh, is_jaxpr
from experiments.training.trainer import Trainer, abstract_network
from jaxnorm.nnx import Functional, functionalize


def check_repeats(trainer: Trainer, dataset: Dataset) -> None:
    """Raises UserError for a network that differs from one made with the same seed.

    Such a network draws from NumPy's global generator, reads the clock or counts its calls, there
    or when its file is executed; a program that makes it, or calls it, is another each time.
    """
    # The method refuses here a network that it does not fit.
    jax.eval_shape(inspect.unwrap(trainer.init), np.uint32(0), dataset.X_train[:2])
    digests = [network_digest(trainer, dataset) for _ in range(2)]
    with executed_afresh(trainer.config.model):  # Where a count of calls begins again.
        model = abstract_network(trainer.network, trainer.placement)
        again = trainer.context._replace(functional=functionalize(model, mixed_precision=True))
        digests.append(network_digest(trainer._replace(context=again), dataset))
    if len({*digests}) > 1:
        raise UserError(
            f"{trainer.config.model} is another network each time that it is made or called, or "
            "that its file is executed; wanted draws from its argument rngs alone, as "
            "jax.random.normal(rngs.params(), shape), and neither the clock nor NumPy's random "
            "numbers."
        )


def network_digest(trainer: Trainer, dataset: Dataset) -> str:
    """Returns a digest of the programs that make a trainer's network and call it.

    Args:
        trainer: the trainer; its method decides nothing but the normalization of the network.
        dataset: has the shape of the rows.
    """
    shape, network = (trainer.config.batch_size, *dataset.X_train.shape[1:]), trainer.network
    rows = jax.ShapeDtypeStruct(shape, dataset.X_train.dtype)
    functional: Functional = trainer.context.functional
    variables = functional.params, functional.state

    def make(key: Any) -> Any:
        made = functionalize(network(key))
        return made.params, made.state

    calls: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [(make, (jax.random.key(0),))]
    # JAX traces a function once, so that each call has functions of its own.
    for train in (True, False):
        calls.append(
            (lambda *x, train=train: functional.apply(*x, train=train), (*variables, rows))
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Training gives them.
        programs = [jax.make_jaxpr(function)(*inputs) for function, inputs in calls]
    structure = jax.tree.structure(variables)
    return _digest("\n".join([str(structure), *map(program_digest, programs)]))


def program_digest(program: Any) -> str:
    """Returns a digest of a jaxpr: its equations in their order, with all constants by value.

    Names of variables, addresses of functions and the order of sets do not count.
    """
    return _digest("\n".join(_lines(getattr(program, "jaxpr", program), program)))


def _lines(jaxpr: Any, closed: Any) -> Iterator[str]:
    """Yields the constants, the arguments, the equations and the results of a jaxpr."""
    numbers: dict[Any, int] = {}

    def name(atom: Any) -> str:
        is_number = isinstance(atom, Literal)
        shown = _text(atom.val) if is_number else numbers.setdefault(atom, len(numbers))
        return f"{shown}:{atom.aval}"

    def named(atoms: Any) -> str:
        return " ".join(map(name, atoms))

    yield " ".join(map(_text, getattr(closed, "consts", ())))
    yield named([*jaxpr.constvars, *jaxpr.invars])
    for equation in jaxpr.eqns:
        inputs, outputs = named(equation.invars), named(equation.outvars)
        yield f"{equation.primitive.name} {_text(equation.params)} {inputs} to {outputs}"
    yield named(jaxpr.outvars)


def _text(value: Any) -> str:
    """Returns a parameter of an equation, or a constant, as text that another process repeats."""
    if is_jaxpr(value):
        return program_digest(value)
    if isinstance(value, dict):
        return f"{sorted((str(name), _text(each)) for name, each in value.items())}"
    if isinstance(value, set | frozenset):
        return f"{sorted(map(_text, value))}"
    if isinstance(value, tuple | list):
        return f"{[*map(_text, value)]}"
    if hasattr(value, "__array__"):
        return _array_text(value)
    if callable(value):
        return f"{type(value).__name__} {getattr(value, '__name__', '')}"
    return re.sub("0x[0-9a-f]+", "", str(value))


def _array_text(value: Any) -> str:
    is_key = jnp.issubdtype(value.dtype, jax.dtypes.prng_key)
    array = np.asarray(jax.random.key_data(value) if is_key else value)
    return f"{value.dtype}{array.shape} {_digest(array.tobytes())}"


def _digest(content: str | bytes) -> str:
    encoded = content.encode(errors="surrogateescape") if isinstance(content, str) else content
    return hashlib.sha256(encoded).hexdigest()[:16]
