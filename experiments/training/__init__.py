"""Training: one pure step, an epoch of them as one compiled scan, and the loop over epochs."""

from experiments.training._ahead import Ahead as Ahead
from experiments.training._epoch import batch_order as batch_order
from experiments.training._epoch import make_epoch as make_epoch
from experiments.training._epoch import make_indexed_step as make_indexed_step
from experiments.training._epoch import steps_per_epoch as steps_per_epoch
from experiments.training._evaluate import make_evaluate as make_evaluate
from experiments.training._fit import Epoch as Epoch
from experiments.training._fit import Run as Run
from experiments.training._fit import fit as fit
from experiments.training._padded import Padded as Padded
from experiments.training._padded import Part as Part
from experiments.training._padded import Sizes as Sizes
from experiments.training._padded import padded as padded
from experiments.training._padded import sizes_of as sizes_of
from experiments.training._state import Metrics as Metrics
from experiments.training._state import TrainState as TrainState
from experiments.training._step import make_step as make_step
from experiments.training._stepwise import Stepwise as Stepwise
from experiments.training._sweep import Curve as Curve
from experiments.training._sweep import make_sweep as make_sweep
from experiments.training._trainer import Trainer as Trainer
from experiments.training._trainer import TrainingSettings as TrainingSettings
from experiments.training._trainer import make_trainer as make_trainer
