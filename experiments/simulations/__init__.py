"""Simulations of what the papers' theory predicts: pure JAX, compiled, over seeds at once."""

from experiments.simulations._covariance import Canonical as Canonical
from experiments.simulations._covariance import canonical_errors as canonical_errors
from experiments.simulations._covariance import jacobian_grams as jacobian_grams
from experiments.simulations._covariance import unit_rows as unit_rows
from experiments.simulations._finite import Outcome as Outcome
from experiments.simulations._finite import simulate_training as simulate_training
from experiments.simulations._mixture import Mixture as Mixture
from experiments.simulations._mixture import mixture_samples as mixture_samples
from experiments.simulations._mixture import train_unit as train_unit
from experiments.simulations._online import simulate_online as simulate_online
from experiments.simulations._sample_variances import sample_variances as sample_variances
from experiments.simulations._sigmoid_chain import Chain as Chain
from experiments.simulations._sigmoid_chain import pooled_ratio as pooled_ratio
from experiments.simulations._sigmoid_chain import sigmoid_chain as sigmoid_chain
from experiments.simulations._student import Method as Method
from experiments.simulations._student import Student as Student
from experiments.simulations._student import Unit as Unit
