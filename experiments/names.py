"""The names that the help lists, apart from what they name: help needs no JAX."""

from collections.abc import Sequence

#: The networks, in the order of `experiments.models.registry.MODELS`.
MODELS = (
    *("mlp", "cnn4", "cnn9", "elu11", "nin", "sigmoid50", "vgg19", "resnet18", "resnet50"),
    *("resnet110", "wrn28x10", "dgcnn", "patches", "transformer", "transformer-unscaled"),
)

#: The activations, in the order of `experiments.models.style.ACTIVATIONS`.
ACTIVATIONS = (
    *("relu", "leaky_relu", "leaky_relu_0.2", "elu", "selu", "gelu", "silu", "sigmoid", "tanh"),
    "identity",
)

#: The augmentation whose name may be followed by ``:FILE``, in which published sub-policies are.
POLICIES = "fast-autoaugment-cutout"

#: Where the policies of Lim et al. 2019 are.
POLICIES_FILE = "archive.py"

#: The augmentations, in the order of `experiments.augmentation.table.AUGMENTATIONS`.
AUGMENTATIONS = (
    *("none", "flip", "crop-flip", "crop-flip-cutout", POLICIES),
    *("resized-crop-flip", "points", "points-scaled"),
)

#: The datasets that come with the package, in the order of `experiments.data.load.BUNDLED`.
BUNDLED = ("digits", "python")

#: The methods, in the order of `experiments.methods.table.METHODS`.
METHODS = (
    *("none", "bn", "ln", "gn", "rms", "cwo", "cwo-centre-sphere", "cwo-centre-noise"),
    *("cwo-centre", "cwo-sphere-noise", "cwo-sphere", "cwo-noise", "cwo-none", "cwo-step"),
    *("cwo-linear", "wn", "cwn", "sn", "lcw", "sl", "ws", "ws+bn", "ws+gn", "bn+wn", "bn+cwn"),
    *("bn+sn", "bn+lcw", "bn+sl", "normprop", "normprop-batch", "normprop-exact", "vcl", "pn"),
    *("pn+gamma-decay", "wn+gamma-decay", "wn+mean-only-bn", "wn+variance-only-bn", "bn+dropout"),
    *("wn+dropout", "nero", "hyperball", "adamp", "dyt", "derf", "agc", "cwo-first-free"),
    *("lcw-first-free", "cwn-first-free", "ws-first-free", "ngpt", "edm2", "stiefel"),
)

#: The methods that a comparison has by itself: those of `experiments.methods.table` that say so.
DEFAULT_METHODS = "none,bn,ln,gn,cwo,lcw,normprop,vcl"

#: The smallest side of an image that cnn9's two poolings leave something of.
CNN9_SIDE = 4


def network_for(shape: Sequence[int]) -> str:
    """The name of the network that inputs of this shape suggest."""
    images = len(shape) == 3 and min(shape[:2]) >= CNN9_SIDE
    return "cnn9" if images else "dgcnn" if len(shape) == 2 else "mlp"
