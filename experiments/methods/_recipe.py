"""What a method is made of."""

from dataclasses import dataclass

from experiments.methods._population import GammaDecay, Population
from experiments.methods._variance_constancy import VarianceConstancy
from jaxnorm import Reparametrization


@dataclass(frozen=True)
class Recipe:
    """One method: what it changes in the network, in the parameters and in the optimizer.

    Attributes:
        name: what the command line calls it.
        summary: what it does, in a few words.
        norm: the normalization layer before each activation, by name, or None.
        post_norm: the normalization layer after each activation, by name, or None.
        activation: the activation, by name; None for the one that the user chose.
        reparametrization: what stands in the place of each constrained kernel, or None.
        propagates: whether activations are standardized under a Gaussian, and the initial scale
            of reparametrized kernels makes up for their Jacobian (normalization propagation).
        input_norm: the normalization layer of the data, by name; None for the data as they come,
            standardized on the training rows.
        dropout: the rate at which activations are dropped in training.
        variance_constancy: the settings of the variance constancy loss, or None.
        population: when population statistics and decay strengths are taken anew, or None.
        gamma_decay: how the strength of gamma decay is estimated, or None for no such decay.
        initializer: what fits the initial weights to a minibatch, by name, or None.
        centered: whether each unit's weights are kept zero-mean.
        squared_radius: the value at which each unit's ||w||^2 is kept, or None for free norms.
        noise: the standard deviation of the noise on the scales in training, or None.
        noise_grows: whether it is that of the last layer, and layer l of L has l / L of it.
        default: whether ``compare`` runs it when no methods are named.
    """

    name: str
    summary: str
    norm: str | None = None
    post_norm: str | None = None
    activation: str | None = None
    reparametrization: type[Reparametrization] | None = None
    propagates: bool = False
    input_norm: str | None = None
    dropout: float = 0.0
    variance_constancy: VarianceConstancy | None = None
    population: Population | None = None
    gamma_decay: GammaDecay | None = None
    initializer: str | None = None
    centered: bool = False
    squared_radius: float | None = None
    noise: float | None = None
    noise_grows: bool = False
    default: bool = False

    @property
    def constrained(self) -> bool:
        """Whether the method keeps kernels on a set."""
        return self.centered or self.squared_radius is not None
