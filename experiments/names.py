"""The names that the help lists, in a module that imports no JAX."""

from collections.abc import Mapping, Sequence

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

#: The augmentation whose name may be followed by ``:FILE``, a file of published sub-policies.
POLICIES = "fast-autoaugment-cutout"

#: The file with the policies of Lim et al. 2019.
POLICIES_FILE = "archive.py"

#: The augmentations, in the order of `experiments.augmentation.table.AUGMENTATIONS`.
AUGMENTATIONS = (
    *("none", "flip", "crop-flip", "crop-flip-cutout", POLICIES),
    *("resized-crop-flip", "points", "points-scaled"),
)

#: The items of each paper, in the order of `paper --list`.
PAPERS: Mapping[str, str] = {
    "vcl": "fig1 fig2 tab1 tab2 tab3 tab4 tab5 fig3",
    "lcw": "fig1 fig2 fig3 fig4 fig5 tab1 fig6",
    "cwo": "signal tab1 tab2 tab3 radius tab4 fig2 tab5 tab6",
    "normprop": "jacobian bound depth fig1 fig2 fig3 fig4 tab1 speed",
    "bn": "fig1a fig1b tab1 fig2ab fig2cd fig2ef fig2gh fig3 fig4",
}
ITEMS = tuple(f"{paper}/{item}" for paper, items in PAPERS.items() for item in items.split())

#: The benchmarks, in the order of `experiments.bench.registry.BENCHMARKS`.
BENCHMARKS = ("step", "input", "papers")

#: The name for all items or benchmarks.
ALL = "all"

#: The datasets that come with the package, in the order of `experiments.data.load.BUNDLED`.
BUNDLED = ("digits", "python")

#: The methods, in the order of `experiments.methods.table.METHODS`.
METHODS = (
    *("none", "bn", "ln", "gn", "rms", "cwo", "cwo-centre-sphere", "cwo-centre-noise"),
    *("cwo-centre", "cwo-sphere-noise", "cwo-sphere", "cwo-noise", "cwo-none"),
    *("cwo-centre-tangent", "cwo-angle", "cwo-step", "cwo-linear", "wn", "cwn", "sn", "lcw"),
    *("sl", "ws", "ws+bn", "ws+gn", "bn+wn", "bn+cwn"),
    *("bn+sn", "bn+lcw", "bn+sl", "normprop", "tat", "dks", "tat-normal", "orthogonal"),
    *("normprop-batch", "normprop-exact", "vcl", "pn"),
    *("pn+gamma-decay", "wn+gamma-decay", "wn+mean-only-bn", "wn+variance-only-bn", "bn+dropout"),
    *("wn+dropout", "nero", "hyperball", "adamp", "dyt", "derf", "agc", "cwo-first-free"),
    *("lcw-first-free", "cwn-first-free", "ws-first-free", "ngpt", "edm2", "stiefel"),
)

#: The methods of a comparison by default.
DEFAULT_METHODS = "none,bn,ln,gn,cwo,lcw,normprop,vcl"

#: The smallest side of an image that survives cnn9's two poolings.
CNN9_SIDE = 4


def is_from_file(model: str) -> bool:
    """Returns True for FILE.py:NAME, a network of the user's own."""
    return ":" in model


def network_for(shape: Sequence[int]) -> str:
    """Returns the name of the network that inputs of this shape suggest."""
    images = len(shape) == 3 and min(shape[:2]) >= CNN9_SIDE
    return "cnn9" if images else "dgcnn" if len(shape) == 2 else "mlp"
