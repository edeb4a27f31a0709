"""Methods: each a row of data that says how a network is normalized, not a code path."""

from experiments.methods._hidden import constrained_layout as constrained_layout
from experiments.methods._noise import noisy as noisy
from experiments.methods._noise import stddev_of_kernels as stddev_of_kernels
from experiments.methods._optimizer import OptimizerSettings as OptimizerSettings
from experiments.methods._optimizer import make_optimizer as make_optimizer
from experiments.methods._overrides import Overrides as Overrides
from experiments.methods._overrides import adjusted as adjusted
from experiments.methods._parameters import initial_parameters as initial_parameters
from experiments.methods._parameters import spread as spread
from experiments.methods._population import GammaDecay as GammaDecay
from experiments.methods._population import Population as Population
from experiments.methods._population import decay_strengths as decay_strengths
from experiments.methods._population import scales_and_biases as scales_and_biases
from experiments.methods._recipe import Recipe as Recipe
from experiments.methods._table import METHODS as METHODS
from experiments.methods._table import find_methods as find_methods
from experiments.methods._variance_constancy import BETAS as BETAS
from experiments.methods._variance_constancy import VarianceConstancy as VarianceConstancy
from experiments.methods._variance_constancy import forward_with_loss as forward_with_loss
from experiments.methods._variance_constancy import without_betas as without_betas
