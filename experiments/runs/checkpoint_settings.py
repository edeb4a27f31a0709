"""The settings of a run's checkpoints."""

from dataclasses import dataclass


@dataclass(frozen=True)
class CheckpointSettings:
    """Settings of a run's checkpoints.

    Attributes:
        folder: the folder of the run's checkpoints.
        keep: the number of checkpoints to keep.
        every: the epochs between two checkpoints; the last epoch is always saved.
        seconds: the least seconds between two checkpoints; must be 0 with several processes,
            because each has its own clock.
        resume: if True, resumes from the newest checkpoint.
        resume_from: the epoch to resume from instead; later checkpoints are deleted.
    """

    folder: str
    keep: int = 3
    every: int = 1
    seconds: float = 0.0
    resume: bool = False
    resume_from: int | None = None
