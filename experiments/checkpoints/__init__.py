"""Checkpoints: a run's state on disk, whole or not there, and the way back from it."""

from experiments.checkpoints._arrays import abstract as abstract
from experiments.checkpoints._arrays import flatten as flatten
from experiments.checkpoints._arrays import unflatten as unflatten
from experiments.checkpoints._checkpoints import Checkpoints as Checkpoints
from experiments.checkpoints._config import check_config as check_config
from experiments.checkpoints._config import config_of as config_of
from experiments.checkpoints._keeper import CheckpointSettings as CheckpointSettings
from experiments.checkpoints._keeper import Keeper as Keeper
from experiments.checkpoints._keeper import keeping as keeping
from experiments.checkpoints._signals import Stopped as Stopped
from experiments.checkpoints._signals import noted_signals as noted_signals
