"""The samples that the figures of section 3 and 4 pass through networks."""

from pathlib import Path

import jax.numpy as jnp
from jaxtyping import Array, Float

from experiments.data.dataset import Dataset
from experiments.data.load import load
from experiments.papers.data import find

#: How the cpu presets differ from the paper's protocol.
DIGITS = "digits for CIFAR-10, unless --data-dir holds it"


def dataset(data_dir: Path | None) -> Dataset:
    """CIFAR-10 in a folder, or the bundled digits as they are."""
    return load("digits" if data_dir is None else find(data_dir, "cifar10"), 0)


def inputs(data_dir: Path | None, samples: int) -> Float[Array, "samples features"]:
    """The first training rows, standardized and flattened."""
    rows = dataset(data_dir).X_train[:samples]
    return jnp.asarray(rows.reshape(len(rows), -1))
