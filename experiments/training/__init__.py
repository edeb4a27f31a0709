"""Training: one pure step, an epoch of them as one compiled scan, and the loop over epochs."""

from experiments.training._ahead import Ahead as Ahead
from experiments.training._epoch import batch_order as batch_order
from experiments.training._epoch import make_epoch as make_epoch
from experiments.training._epoch import make_indexed_step as make_indexed_step
from experiments.training._epoch import steps_per_epoch as steps_per_epoch
from experiments.training._evaluate import make_evaluate as make_evaluate
from experiments.training._fit import Run as Run
from experiments.training._fit import fit as fit
from experiments.training._fit import start as start
from experiments.training._guard import NonFinite as NonFinite
from experiments.training._guard import guarded as guarded
from experiments.training._history import Epoch as Epoch
from experiments.training._history import History as History
from experiments.training._history import Keeps as Keeps
from experiments.training._history import KeepsNothing as KeepsNothing
from experiments.training._mesh import make_placement as make_placement
from experiments.training._placement import Placement as Placement
from experiments.training._processes import join as join
from experiments.training._processes import writes as writes
from experiments.training._state import Metrics as Metrics
from experiments.training._state import TrainState as TrainState
from experiments.training._step import make_step as make_step
from experiments.training._stepwise import Stepwise as Stepwise
from experiments.training._trainer import Trainer as Trainer
from experiments.training._trainer import TrainingSettings as TrainingSettings
from experiments.training._trainer import make_trainer as make_trainer
