"""The library's errors on a network, as a user's."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import jax
from jaxtyping import PyTree

from experiments.errors import UserError
from experiments.methods.method import Method
from experiments.methods.part import Context
from jaxnorm import Layout


@contextmanager
def _keeps_batch_normalization() -> Iterator[None]:
    """Silences the library's hint at batch normalization, which networks have on purpose here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the model still has batch normalization", UserWarning)
        yield


@contextmanager
def _needs_kernels(method: Method, context: Context | None) -> Iterator[None]:
    """Turns an error on a network without a kernel that the method may change into a user's."""
    try:
        yield
    except ValueError as error:
        if context is None or _has_kernels(context.layout, context.functional.params):
            raise
        raise UserError(
            f"{method.name} does not fit this network: its only kernel is the classifier's, "
            "which methods leave free; wanted hidden layers, or --constrain-head, which "
            "constrains the classifier, too."
        ) from error


@contextmanager
def library_refusals(method: Method, context: Context | None = None) -> Iterator[None]:
    """Turns the library's errors into a user's; they name the parameter and the reason."""
    try:
        with _keeps_batch_normalization(), _needs_kernels(method, context):
            yield
    except UserError:
        raise
    except ValueError as error:
        raise UserError(f"{method.name} does not fit this network: {error}") from error


def _has_kernels(layout: Layout, params: PyTree) -> bool:
    axes = jax.tree.leaves(layout(params), is_leaf=lambda each: isinstance(each, tuple))
    return any(isinstance(each, tuple) for each in axes)
