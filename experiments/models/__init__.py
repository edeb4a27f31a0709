"""Networks to train: NNX modules that take a style, normalizers and an activation."""

from experiments.models._activations import ACTIVATIONS as ACTIVATIONS
from experiments.models._cnn9 import CNN9 as CNN9
from experiments.models._mlp import MLP as MLP
from experiments.models._noisy_scales import PRE_ACTIVATION as PRE_ACTIVATION
from experiments.models._norms import NORMS as NORMS
from experiments.models._norms import MakeNorm as MakeNorm
from experiments.models._registry import HEAD as HEAD
from experiments.models._registry import MODELS as MODELS
from experiments.models._registry import ModelSettings as ModelSettings
from experiments.models._registry import Noise as Noise
from experiments.models._registry import build as build
from experiments.models._style import Activation as Activation
from experiments.models._style import Style as Style
