"""The names that the help lists, in a module that imports no JAX."""

from collections.abc import Mapping

from experiments.methods.table import METHODS

#: The sets of kernels, in the order of `experiments.bench.compiled.kernels.KERNELS`.
KERNELS = ("conv3x3", "dense", "resnet50", "wrn28x10", "decoder")

#: Flax's own layers, in the order of `experiments.bench.compiled.step.PEERS`.
PEERS = ("nnx.BatchNorm", "nnx.LayerNorm")

#: The ending of a method's name for private training: per-row gradients, clipped, and noise.
PRIVATE = "+private"

#: The optimizers, in the order of `experiments.bench.compiled.update.OPTIMIZERS`.
OPTIMIZERS = (
    *("sgd", "adam", "constrain", "constrain+clip", "adam+constrain", "unit-norm"),
    *("centered_gradient", "clip_by_layer_norm", "optax.clip_by_global_norm", "optax.centralize"),
    *("optax.adaptive_grad_clip", "optax.contrib.muon", "nero", "hyperball", "muon+stiefel"),
)

#: The reparametrizations, in the order of `experiments.bench.compiled.effective.MAKERS`.
MAKERS = (
    *("plain", "cwo", "lcw", "wn", "cwn", "ws", "sn", "nnx.WeightNorm", "nnx.SpectralNorm"),
    "paramax.WeightNormalization",
)

#: The names that --methods takes, by --what.
KNOWN: Mapping[str, tuple[str, ...]] = {
    "step": (*METHODS, *PEERS),
    "update": OPTIMIZERS,
    "effective": MAKERS,
}
