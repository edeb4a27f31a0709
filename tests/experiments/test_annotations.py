"""The annotations of `experiments` are executed: what they do not describe is an error."""

import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import TypeCheckError

from experiments.config import Config
from experiments.data.dataset import split_by_mask
from experiments.methods.reparametrized import subsample
from experiments.reports.picture import colour_of
from experiments.runs.analyse import interval
from experiments.training.evaluate import in_chunks
from experiments.training.step import microbatches, score
from experiments.tuning.report import said_of_ends

ROWS = jnp.zeros((4, 3))


@pytest.mark.parametrize(
    ("function", "wrong"),
    [
        (score, (ROWS, jnp.zeros(3, jnp.int32))),  # a label too few
        (score, (ROWS, jnp.zeros(4))),  # labels that are no class numbers
        (in_chunks, (ROWS, jnp.zeros(3, jnp.int32), 2)),
        (microbatches, (np.zeros((4, 3)), 2)),  # inside of a compiled step there is no NumPy
        (split_by_mask, (np.zeros((4, 3)), np.zeros(4, int), np.zeros(3, bool))),
        (subsample, (ROWS, 2.5)),
        (interval, (np.zeros((2, 2)),)),
        (colour_of, ("first",)),
        (said_of_ends, ({"noise": [0.1]}, ["a run"])),
        (Config, (1,)),
    ],
)
def test_what_does_not_fit_is_refused(function, wrong) -> None:
    with pytest.raises(TypeCheckError):
        function(*wrong)
