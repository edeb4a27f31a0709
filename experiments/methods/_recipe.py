"""What a method is made of."""

from dataclasses import dataclass, replace
from typing import Literal

from experiments.methods._population import GammaDecay, Population
from experiments.methods._variance_constancy import VarianceConstancy
from experiments.models import PRE_ACTIVATION
from jaxnorm import Reparametrization, Scaled


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
        clip: the largest norm of a layer's gradient, or None.
        noise: the standard deviation of the noise on the scales in training, or None.
        noise_per: what shares a draw: a sample and unit, or a step and unit.
        noise_grows: whether it is that of the last layer, and layer l of L has l / L of it.
        scale_layers: whether scale and bias are layers where batch normalization stood, and not
            parts of the kernels; see `placed_in`.
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
    clip: float | None = None
    noise: float | None = None
    noise_per: Literal["sample", "step"] = "sample"
    noise_grows: bool = False
    scale_layers: bool = False
    default: bool = False

    @property
    def constrained(self) -> bool:
        """Whether the method keeps kernels on a set."""
        return self.centered or self.squared_radius is not None

    @property
    def noisy_parameters(self) -> bool:
        """Whether the parameters themselves carry noise, drawn once a step."""
        return self.noise is not None and self.noise_per == "step"

    def placed_in(self, model: str) -> "Recipe":
        """The method in a network: scale and bias stand where batch normalization stood.

        After a kernel they are the kernel's own. Before a branch, in networks with pre-activation,
        they are layers, so that nothing in the residual stream is scaled or noisy.
        """
        if self.reparametrization is not Scaled or model not in PRE_ACTIVATION:
            return self
        if self.noise_per == "step":
            return self
        return replace(self, reparametrization=None, scale_layers=True)
