"""Learned scales in place of batch normalization, and noise on them in training."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, PyTree

import jaxnorm
from experiments.methods.part import Context, Forward, Optimizer, Part
from experiments.models.registry import NetworkStyle, Noise
from experiments.models.residual import Residual


@dataclass(frozen=True)
class LearnedScale(Part):
    """A scale and a bias per unit, in place of batch normalization.

    After a kernel the scale belongs to the kernel's node. Before a branch, in networks with
    pre-activation, scale and bias are layers, so that the residual stream is not scaled or noisy.

    Scales start at 1, except at the ends of the B branches of a residual network with the
    activation after the sum, which start at 1 / sqrt(B): otherwise each branch would double the
    variance, and 54 branches would raise it to the order of 1e8.
    """

    def style(self, style: NetworkStyle) -> NetworkStyle:
        """Adds scale-and-bias layers, in networks with pre-activation."""
        return style._replace(scale_layers=Noise()) if style.pre_activation else style

    def parameters(self, params: PyTree, context: Context, X: Array) -> PyTree:
        """Adds scales to the kernels, if scales are not layers."""
        if context.style.scale_layers is not None:
            return params
        raw = jaxnorm.reparametrize(params, jaxnorm.Scaled, context.layout)
        return quieted(raw, params, context)


def quieted(raw: PyTree, params: PyTree, context: Context) -> PyTree:
    """Multiplies the scales at the ends of residual branches by `jaxnorm.residual_factors`.

    Only networks of `Residual` blocks are changed; the transformer has factors of its own.

    Args:
        raw: the parameters with scales.
        params: the network's parameters.
        context: the context, whose network has the branches.
    """
    if not any(isinstance(each, Residual) for _, each in nnx.iter_modules(context.model)):
        return raw
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), params)
    x = jax.ShapeDtypeStruct((1, *context.shape), jnp.float32)
    return jaxnorm.scale_branches(
        raw, jaxnorm.residual_factors(jaxnorm.read(context.logits, shapes, x))
    )


@dataclass(frozen=True)
class ScaleNoise(Part):
    """Noise on the scales, one draw per sample and unit.

    Attributes:
        noise: sigma.
        grows: if True, sigma is the last layer's, and layer l of L has l / L of it.
    """

    noise: float = 0.1
    grows: bool = False

    def style(self, style: NetworkStyle) -> NetworkStyle:
        """Adds noise to the layers, if scales are layers."""
        if style.scale_layers is None:
            return style
        return style._replace(scale_layers=Noise(self.noise, self.grows))

    def forward(
        self, forward: Forward, raw: PyTree, state: PyTree, keys: Array, context: Context
    ) -> Forward:
        """Adds noise to the hidden kernels' products, if scales belong to the kernels."""
        if context.style.scale_layers is not None:
            return forward
        stddev = self.stddev_of_kernels(context)
        return partial(jaxnorm.with_scale_noise(forward, stddev, layout=context.hidden), keys)

    def stddev_of_kernels(self, context: Context) -> PyTree:
        """Returns the noise of each kernel: a number for all, or a tree of numbers."""
        if not self.grows:
            return self.noise
        logits = partial(context.logits, train=False)
        x = jax.ShapeDtypeStruct((2, *context.shape), jnp.float32)
        params = context.functional.params
        return jaxnorm.linear_stddev(
            jaxnorm.read(logits, params, x), self.noise, layout=context.hidden
        )


@dataclass(frozen=True)
class StepNoise(Part):
    """Noise on the scales themselves, one draw per step: the ablation of `ScaleNoise`.

    Attributes:
        noise: sigma.
    """

    noise: float = 0.1

    def style(self, style: NetworkStyle) -> NetworkStyle:
        """Keeps scales on the kernels: the optimizer sees parameters, not layers."""
        return style._replace(scale_layers=None)

    def optimizer(self, optimizer: Optimizer, context: Context, seed: Any) -> Optimizer:
        """Wraps the optimizer so that it leaves noisy scales behind."""
        return jaxnorm.noise_injection(optimizer, self.noise, seed=seed)

    def clean(self, raw: PyTree, optimizer_state: PyTree) -> PyTree:
        """Removes the noise."""
        return jaxnorm.clean_parameters(optimizer_state, raw)
