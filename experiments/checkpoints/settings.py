"""What a command says about its checkpoints."""

from dataclasses import dataclass


@dataclass(frozen=True)
class CheckpointSettings:
    """Where checkpoints go, and from which to resume.

    Attributes:
        folder: of the run.
        keep: how many stay.
        every: the epochs between two; the last epoch is always saved.
        seconds: that lie at least between two, however short the epochs are; with several processes
            0, since each has a clock of its own.
        resume: whether to go on from the newest.
        resume_from: or from this epoch's; the later ones are deleted.
    """

    folder: str
    keep: int = 3
    every: int = 1
    seconds: float = 0.0
    resume: bool = False
    resume_from: int | None = None
