"""Digests of the programs of a training, which are traced and not run."""

import hashlib
import inspect
import re
import warnings
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal

from experiments.data.dataset import Dataset
from experiments.errors import UserError
from experiments.methods.optimizer import Rates
from experiments.models.from_file import is_jaxpr, primitives
from experiments.training.epoch import make_epoch
from experiments.training.evaluate import make_evaluate
from experiments.training.federated import Federated
from experiments.training.label_maps import make_confusion
from experiments.training.state import StepMetrics, TrainState
from experiments.training.trainer import Trainer

#: Parameters of equations that are names of functions and places in files, and compute nothing.
NAMES = ("name", "debug_info", "name_and_src_info")


def program_digests(trainer: Trainer, dataset: Dataset) -> dict[str, str]:
    """Returns digests of the programs that train and score any seed on rows of these shapes.

    They are ``initialization``, ``step`` (an epoch of steps, with its batches, augmentation and
    refreshes) and ``score``, each a digest of `program_digest`. The seed, the learning rate and the
    weight decay are arguments of the programs, and nothing is computed.

    Args:
        trainer: the trainer, on one device.
        dataset: has the shapes of the rows.

    Raises:
        UserError: for a program that calls the host, whose results no digest tells.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Training gives them.
        programs = dict(_programs(trainer, dataset))
    for program in programs.values():
        _refuse_callbacks(trainer.config.model, program)
    return {name: program_digest(program) for name, program in programs.items()}


def check_repeats(trainer: Trainer, dataset: Dataset, digests: dict[str, str]) -> None:
    """Raises UserError if programs that are traced anew differ from the first ones' digests.

    Their network draws from NumPy's global generator, reads the clock or counts its calls.
    """
    if program_digests(trainer, dataset) != digests:
        raise UserError(
            f"{trainer.config.model} is another network each time that it is made or called; "
            "wanted draws from its argument rngs alone, as jax.random.normal(rngs.params(), "
            "shape), and neither the clock nor NumPy's random numbers."
        )


def _programs(trainer: Trainer, dataset: Dataset) -> Iterator[tuple[str, Any]]:
    """Yields the names and the jaxprs; each is traced anew, of a function of its own."""
    # The rows of a stream are a sample, which may be less than a batch.
    least = 0 if dataset.stream is None else trainer.config.batch_size
    rows = [
        jax.ShapeDtypeStruct((max(least, len(each)), *each.shape[1:]), each.dtype)
        for each in dataset[:4]
    ]
    train, test = rows[:2], rows[2:]
    init, epoch, score = _functions(trainer, dataset)
    seed, number = (jax.ShapeDtypeStruct((), dtype) for dtype in (np.uint32, np.float32))
    rates: Any = [number, number]
    arguments = seed, train[0], Rates(*rates)
    initialization, state = jax.make_jaxpr(init, return_shape=True)(*arguments)
    yield "initialization", initialization
    step, (state, metrics) = jax.make_jaxpr(epoch, return_shape=True)(state, *train)
    yield "step", step
    yield "score", jax.make_jaxpr(score)(state, metrics, train, test)


def _functions(trainer: Trainer, dataset: Dataset) -> tuple[Any, Any, Any]:
    """Returns the initialization, an epoch and the score, as functions that JAX has not traced."""
    of_clients = isinstance(trainer.epoch, Federated)
    epoch = inspect.unwrap(trainer.epoch) if of_clients else make_epoch(trainer.plan)
    evaluate = make_evaluate(trainer.method, trainer.context.functional.apply)
    init, watch = inspect.unwrap(trainer.init), inspect.unwrap(trainer.watch)
    settle = inspect.unwrap(trainer.settle)

    def score(state: TrainState, metrics: StepMetrics, train: Any, test: Any) -> Any:
        state = settle(state, *train)
        results = watch(state, metrics), evaluate(state, *test)
        if dataset.has_label_maps:
            return results, make_confusion(trainer, dataset.num_classes)(state, *test)
        return results

    return lambda *each: init(*each), lambda *each: epoch(*each), score


def _refuse_callbacks(model: str, program: Any) -> None:
    for name in primitives(program.jaxpr):
        if "callback" in name or name == "debug_print":
            raise UserError(
                f"{model} calls the host while it computes ({name}), and what the host returns "
                "decides a run without standing in its program; wanted JAX's functions alone: "
                "leave out io_callback, pure_callback and jax.debug, or compute before and keep "
                "the result as an array."
            )


def program_digest(program: Any) -> str:
    """Returns a digest of a jaxpr: its equations in their order, with all constants by value.

    Names of variables and functions, addresses, lines of files and the order of sets do not count.
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
        params = {key: value for key, value in equation.params.items() if key not in NAMES}
        yield f"{equation.primitive.name} {_text(params)} {inputs} to {outputs}"
    yield named(jaxpr.outvars)


def _text(value: Any) -> str:
    """Returns a parameter of an equation, or a constant, as text that another process repeats.

    Functions among parameters are rules of derivatives, which stand in the program where they are
    taken.
    """
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
    if callable(value) or hasattr(value, "call_wrapped"):
        return ""
    return re.sub("0x[0-9a-f]+", "", str(value))


def _array_text(value: Any) -> str:
    is_key = jnp.issubdtype(value.dtype, jax.dtypes.prng_key)
    array = np.asarray(jax.random.key_data(value) if is_key else value)
    return f"{value.dtype}{array.shape} {_digest(array.tobytes())}"


def _digest(content: str | bytes) -> str:
    encoded = content.encode(errors="surrogateescape") if isinstance(content, str) else content
    return hashlib.sha256(encoded).hexdigest()[:16]
