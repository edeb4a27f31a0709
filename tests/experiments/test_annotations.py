"""Execution of the annotations of `experiments`: a value of another type is an error."""

import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import TypeCheckError

from experiments.config import Config
from experiments.training.step import microbatches, score

ROWS = jnp.zeros((4, 3))


@pytest.mark.parametrize(
    ("function", "wrong"),
    [
        (score, (ROWS, jnp.zeros(3, jnp.int32))),  # a label too few
        (microbatches, (np.zeros((4, 3)), 2)),  # inside of a compiled step there is no NumPy
        (Config, (1,)),
    ],
)
def test_what_does_not_fit_is_refused(function, wrong) -> None:
    with pytest.raises(TypeCheckError):
        function(*wrong)
