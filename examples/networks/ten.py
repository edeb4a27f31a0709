"""Ten networks with batch normalization, or with it taken out."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import haiku as hk
import jax
import jax.numpy as jnp
from flax import nnx

import jaxnorm as jn
from examples.networks.bottleneck import BottleneckResNet
from examples.networks.built import form_of, of_linen
from examples.networks.densenet import DenseNet
from examples.networks.inception import network as inception
from examples.networks.mobilenet import MobileNetV2
from examples.networks.resnet18 import ResNet18
from examples.networks.resnet18_v2 import ResNet18V2
from examples.networks.signals import SignalResNet
from examples.networks.statistics import Apply, Estimate, estimate_by, keep
from examples.networks.unet import UNet
from examples.networks.vgg import VGG
from examples.networks.wide_resnet import WideResNet


class Network(NamedTuple):
    """A network as a pure function, with its random parameters and its state.

    Attributes:
        apply: ``apply(params, state, x, train=...) -> (logits, state)``.
        params: trained.
        state: running statistics and random counters.
        estimate: batch normalization's statistics anew, or `keep`.
    """

    apply: Callable[..., tuple[jax.Array, Any]]
    params: Any
    state: Any
    estimate: Estimate

    def logits(self, params: Any, x: jax.Array) -> jax.Array:
        """Returns the logits in training mode."""
        return self.apply(params, self.state, x, train=True)[0]


class Row(NamedTuple):
    """A network of the table.

    Attributes:
        library: in which it is written.
        build: ``build(seed, x, classes, batch_norm) -> Network``.
    """

    library: str
    build: Callable[[int, jax.Array, int, bool], Network]


def of_nnx(make: Callable[..., nnx.Module]) -> Callable[..., Network]:
    """Returns the builder of an NNX network, which `replace_batch_norm` edits."""

    def build(seed: int, x: jax.Array, classes: int, batch_norm: bool) -> Network:
        model = make(nnx.Rngs(seed), x.shape[1:], classes)
        if not batch_norm:
            model = jn.nnx.replace_batch_norm(model, x[:1])
        return Network(*jn.nnx.functionalize(model), form_of(model, batch_norm).estimate)

    return build


def bottleneck(seed: int, x: jax.Array, classes: int, batch_norm: bool) -> Network:
    """Returns the Linen network."""
    model = BottleneckResNet(classes, batch_norm=batch_norm)
    variables = dict(jax.jit(model.init)(jax.random.key(seed), x[:1]))
    params = variables.pop("params")
    forgetful = of_linen(model.clone(momentum=0.0), batch_norm)
    estimate = estimate_by(forgetful) if batch_norm else keep
    return Network(of_linen(model, batch_norm), params, variables, estimate)


def from_zeros(apply: Apply) -> Apply:
    """Returns a network whose running statistics are the last batch's.

    The averages of Haiku and Equinox are debiased: from zeros they have nothing else after a batch.
    """

    def forgetful(params: Any, state: Any, x: jax.Array, train: bool) -> tuple[jax.Array, Any]:
        return apply(params, jax.tree.map(jnp.zeros_like, state), x, train=train)

    return forgetful


def of_haiku(seed: int, x: jax.Array, classes: int, batch_norm: bool) -> Network:
    """Returns the Haiku network."""

    def forward(x: jax.Array, train: bool) -> jax.Array:
        return inception(x, train, classes, batch_norm)

    pure = hk.without_apply_rng(hk.transform_with_state(forward))
    params, state = jax.jit(pure.init, static_argnums=2)(jax.random.key(seed), x[:1], True)

    def apply(params: Any, state: Any, x: jax.Array, train: bool) -> tuple[jax.Array, Any]:
        return pure.apply(params, state, x, train)

    return Network(apply, params, state, estimate_by(from_zeros(apply)) if batch_norm else keep)


def of_equinox(seed: int, x: jax.Array, classes: int, batch_norm: bool) -> Network:
    """Returns the Equinox network, which reads the pixels of an image one by one as a signal."""
    model, state = eqx.nn.make_with_state(SignalResNet)(
        x.shape[-1], classes, batch_norm, jax.random.key(seed)
    )
    params, static = eqx.partition(model, eqx.is_inexact_array)

    def apply(params: Any, state: Any, x: jax.Array, train: bool) -> tuple[jax.Array, Any]:
        model = eqx.nn.inference_mode(eqx.combine(params, static), not train)
        signals = jnp.moveaxis(x.reshape(len(x), -1, x.shape[-1]), -1, 1)
        batched = jax.vmap(model, axis_name="batch", in_axes=(0, None), out_axes=(0, None))
        return batched(signals, state)

    return Network(apply, params, state, estimate_by(from_zeros(apply)) if batch_norm else keep)


NETWORKS: Mapping[str, Row] = {
    "ResNet-18": Row("NNX", of_nnx(ResNet18)),
    "VGG": Row("NNX", of_nnx(VGG)),
    "DenseNet": Row("NNX", of_nnx(DenseNet)),
    "ResNet-18 v2": Row("NNX", of_nnx(ResNet18V2)),
    "bottleneck ResNet": Row("Linen", bottleneck),
    "WRN with dropout": Row("NNX", of_nnx(WideResNet)),
    "MobileNetV2": Row("NNX", of_nnx(MobileNetV2)),
    "U-Net": Row("NNX", of_nnx(UNet)),
    "Inception": Row("Haiku", of_haiku),
    "1-D ResNet": Row("Equinox", of_equinox),
}
