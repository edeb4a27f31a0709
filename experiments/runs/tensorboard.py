"""The curves as TensorBoard's event files, written while the runs train."""

import contextlib
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from experiments.errors import library
from experiments.runs.files import prepare_folder
from experiments.training.run import Epoch


class EventFiles:
    """Event files with the curves of curves.csv, under the same names.

    Args:
        folder: the folder above those of the runs, METHOD/seed-SEED; None writes nothing.

    Raises:
        UserError: if the folder cannot be written to, or the library is not installed.
    """

    def __init__(self, folder: Path | None):
        self._folder = folder
        if folder is not None:
            self._library = library(
                "tensorboardX",
                "--tensorboard",
                "tensorboard",
                "without the flag, curves.csv has the same numbers",
            )
            prepare_folder(folder, "--tensorboard")

    @contextlib.contextmanager
    def of(self, method: str, seed: int) -> Iterator[Callable[[Epoch], None]]:
        """Yields a function that writes an epoch of the run."""
        if self._folder is None:
            yield lambda entry: None
            return
        path = str(self._folder / method / f"seed-{seed}")
        # A resumed run reports its epochs from the first; purge_step hides those of earlier files.
        with self._library.SummaryWriter(path, purge_step=1, flush_secs=1) as writer:
            yield lambda entry: _write(writer, entry)


def _write(writer: Any, entry: Epoch) -> None:
    for name, value in zip(entry._fields[1:], entry[1:], strict=True):
        if math.isfinite(value):  # The library warns about other values.
            writer.add_scalar(name, value, entry.epoch)
