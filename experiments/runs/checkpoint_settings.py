"""The flags of a run's checkpoints."""

from dataclasses import dataclass


@dataclass(frozen=True)
class CheckpointSettings:
    """The folder of a run's checkpoints, how often it saves, and where it resumes from."""

    checkpoint_dir: str | None = None
    """The folder for checkpoints, which holds one folder for each epoch. With this flag, SIGTERM
    and Ctrl-C save the run at the end of the current epoch and end it; a second signal ends it at
    once."""
    checkpoint_every: int = 1
    """The epochs between two checkpoints; the last epoch is always saved."""
    keep: int = 3
    """The number of checkpoints that are kept: the newest."""
    checkpoint_seconds: float = 0.0
    """The least seconds between two checkpoints, for epochs that are shorter than a checkpoint
    takes (about 0.1 s). The flag is for runs in one process."""
    resume: bool = False
    """Go on from the newest checkpoint, or say that there is none and begin. All settings that
    change numbers must be the checkpoint's; the devices, and where the data are, may differ. (Under
    shard_map or pmap, the groups of batch normalization are the devices' rows; on other devices,
    --ghost-groups keeps their number.)"""
    resume_from: int | None = None
    """Go on from the checkpoint of this epoch, and delete the later ones."""
