"""The methods by name: a method is a row, a short list of parts."""

from collections.abc import Mapping

from experiments.errors import UserError, unknown
from experiments.methods.constrained import Centered, ClippedByLayer, FixedStep, Sphere
from experiments.methods.first_layer import Only
from experiments.methods.method import Method
from experiments.methods.normalizers import Dropout, Normalized
from experiments.methods.part import Part
from experiments.methods.population import GammaDecay, PopulationNorm
from experiments.methods.propagation import Propagated, StandardizedRectifier
from experiments.methods.reparametrized import Initialized, Reparametrized, SpectralNorm
from experiments.methods.rivals.adamp import TangentUpdates
from experiments.methods.rivals.adaptive_clipping import AdaptivelyClipped
from experiments.methods.rivals.edm2 import ForcedNorm, MagnitudePreserving
from experiments.methods.rivals.hyperball import Hyperball
from experiments.methods.rivals.nero import UnitwiseGradients
from experiments.methods.rivals.ngpt import Hypersphere
from experiments.methods.rivals.orthogonal import Stiefel
from experiments.methods.scale_noise import LearnedScale, ScaleNoise, StepNoise
from experiments.methods.shaped import Orthogonal, Shaped
from experiments.methods.variance_constancy import VarianceConstancy
from jaxnorm import (
    CenteredWeightNormalized,
    LinearlyConstrained,
    WeightNormalized,
    WeightStandardized,
    data_dependent_init,
    variance_preserving_init,
)

#: The methods of a comparison by default.
DEFAULT_METHODS = "bn,none,cwo-centre-sphere,lcw"

#: The largest norm of a layer's gradient in constrained weight optimization; ours. Without it no
#: seed of 13 diverges on photographs at the paper's rate, but some end lower (results/unclipped).
_CLIP = ClippedByLayer(1.0)

#: The paper states no sigma for networks without residual branches; this one is ours.
_NOISE = ScaleNoise(0.1)

_SCALE = LearnedScale()
_CWO = (Sphere(2.0), _SCALE, _CLIP)
_UNCENTRED = Sphere(2.0, centered=False)

_DATA = Initialized(data_dependent_init)
_WN = (Reparametrized(WeightNormalized), _DATA)
_CWN = (Reparametrized(CenteredWeightNormalized), _DATA)
_SN = (SpectralNorm(),)
_LCW = (Reparametrized(LinearlyConstrained), Initialized(variance_preserving_init))
_WS = (Reparametrized(WeightStandardized),)
_BN = (Normalized("bn"),)

_UNIT_NORM = Sphere(1.0, centered=False)
_PROPAGATED = (_UNIT_NORM, Reparametrized(WeightNormalized), Propagated())

_PN = (PopulationNorm(),)
_DECAY = (GammaDecay(),)


def _first_free(name: str, parts: tuple[Part, ...]) -> Method:
    """Replaces the first layer's centred weights by weight normalization."""
    summary = f"{name}, the first layer weight normalized, not centred"
    first = (Only(parts[0], first=False), Only(_WN[0], first=True))
    return Method(f"{name}-first-free", summary, (*first, *parts[1:]))


_ALL = (
    Method("none", "no normalization"),
    Method("bn", "batch normalization", _BN),
    Method("ln", "layer normalization", (Normalized("ln"),)),
    Method("gn", "group normalization, 16 groups", (Normalized("gn"),)),
    Method("rms", "root mean square normalization", (Normalized("rms"),)),
    # Constrained weight optimization, and what is left of it without some of its three ideas.
    Method("cwo", "learned scale and bias + centre + sphere + noise", (*_CWO, _NOISE)),
    Method("cwo-centre-sphere", "learned scale and bias + centre + sphere", _CWO),
    Method(
        "cwo-centre-noise",
        "learned scale and bias + centre + noise",
        (Centered(), _SCALE, _CLIP, _NOISE),
    ),
    Method("cwo-centre", "learned scale and bias + centre", (Centered(), _SCALE, _CLIP)),
    Method(
        "cwo-sphere-noise",
        "learned scale and bias + sphere + noise",
        (_UNCENTRED, _SCALE, _CLIP, _NOISE),
    ),
    Method("cwo-sphere", "learned scale and bias + sphere", (_UNCENTRED, _SCALE, _CLIP)),
    Method("cwo-noise", "learned scale and bias + noise", (_SCALE, _CLIP, _NOISE)),
    Method("cwo-none", "learned scale and bias", (_SCALE, _CLIP)),
    Method(
        "cwo-centre-tangent",
        "cwo-centre-sphere, steps without their part along the weights",
        (Sphere(2.0, tangent=True), _SCALE, _CLIP),
    ),
    Method(
        "cwo-angle",
        "cwo-centre-sphere, each unit turned by the learning rate",
        (FixedStep(), *_CWO),
    ),
    Method(
        "cwo-step",
        "cwo with one draw of the noise a step, which all samples share",
        (*_CWO, StepNoise(0.1)),
    ),
    Method(
        "cwo-linear",
        "cwo, noise that grows with depth to 0.3, for residual networks",
        # Chosen on held-out rows (results/sigma-residual); the paper's wide network has 1.
        (*_CWO, ScaleNoise(0.3, grows=True)),
    ),
    # Kernels computed from others.
    Method("wn", "weight normalization", _WN),
    Method("cwn", "centred weight normalization", _CWN),
    Method("sn", "spectral normalization", _SN),
    Method("lcw", "linearly constrained (zero-sum) weights", _LCW),
    Method(
        "sl",
        "standardization layer: bn without affine, after the activation",
        (Normalized(after="sl"),),
    ),
    Method("ws", "weight standardization", _WS),
    Method("ws+bn", "weight standardization, then bn", _BN + _WS),
    Method("ws+gn", "weight standardization, then gn", (Normalized("gn"), *_WS)),
    Method("bn+wn", "bn on weight normalization", _BN + _WN),
    Method("bn+cwn", "bn on centred weight normalization", _BN + _CWN),
    Method("bn+sn", "bn on spectral normalization", _BN + _SN),
    Method("bn+lcw", "bn on linearly constrained weights", _BN + _LCW),
    Method(
        "bn+sl",
        "bn before the activation, the standardization layer after",
        (Normalized("bn", "sl"),),
    ),
    # Normalization propagation, and the loss.
    Method(
        "normprop", "normalization propagation: unit norms, standardized activations", _PROPAGATED
    ),
    # Activations that are shaped for the depth, and what is left of them without one of two ideas.
    Method("tat", "tailored activations, orthogonal weights", (Shaped("tat"), Orthogonal())),
    Method("dks", "deep kernel shaping, orthogonal weights", (Shaped("dks"), Orthogonal())),
    Method("tat-normal", "tailored activations, normally distributed weights", (Shaped("tat"),)),
    Method("orthogonal", "orthogonal initial weights, no normalization", (Orthogonal(),)),
    Method(
        "normprop-batch",
        "normprop, each minibatch of the data by its own statistics",
        (*_PROPAGATED, Normalized(data="sl")),
    ),
    Method(
        "normprop-exact",
        "normprop, exact while biases are learned (rectifiers only)",
        (_UNIT_NORM, StandardizedRectifier()),
    ),
    Method(
        "vcl",
        "variance constancy loss, n = 5, layers' gradients clipped at 1",
        (VarianceConstancy(),),
    ),
    # Batch normalization in pieces.
    Method("pn", "population normalization, statistics refreshed every 10 steps", _PN),
    Method("pn+gamma-decay", "pn and the decay of gamma that is implicit in bn", _PN + _DECAY),
    Method("wn+gamma-decay", "wn and the decay of gamma implicit in bn", _WN + _DECAY),
    Method("wn+mean-only-bn", "wn, then bn without variances", (Normalized("mean-only-bn"), *_WN)),
    Method(
        "wn+variance-only-bn", "wn, then bn without means", (Normalized("variance-only-bn"), *_WN)
    ),
    Method("bn+dropout", "bn, and 0.1 of the activations dropped", (*_BN, Dropout(0.1))),
    Method("wn+dropout", "wn, and 0.2 of the activations dropped", (*_WN, Dropout(0.2))),
    # Rivals.
    Method(
        "nero",
        "Nero: weights on the sphere, gradients of units over their size",
        (Sphere(2.0), _SCALE, UnitwiseGradients()),
    ),
    Method(
        "hyperball",
        "Hyperball: fixed norms, steps of a fixed relative length",
        (Hyperball(),),
    ),
    Method("adamp", "AdamP (with sgd: SGDP): tangent updates", (TangentUpdates(),)),
    Method("dyt", "Dynamic Tanh in the place of a normalizer", (Normalized("dyt"),)),
    Method("derf", "Derf in the place of a normalizer", (Normalized("derf"),)),
    Method("agc", "adaptive gradient clipping at 0.01", (AdaptivelyClipped(),)),
    # The same but for a first layer that sees the sum of the features, too.
    Method(
        "cwo-first-free",
        "cwo, the first layer not centred",
        (Only(Sphere(2.0), first=False), Only(_UNCENTRED, first=True), _SCALE, _CLIP, _NOISE),
    ),
    Method("lcw-first-free", "lcw, the first layer free", (Only(_LCW[0], first=False), _LCW[1])),
    _first_free("cwn", _CWN),
    _first_free("ws", _WS),
    # Constraints that were published since, of which the library has the projections.
    Method("ngpt", "nGPT: tokens and matrices on the unit sphere (transformer)", (Hypersphere(),)),
    Method(
        "edm2",
        "EDM2: forced norms, magnitude-preserving activations and sums",
        (MagnitudePreserving(), ForcedNorm()),
    ),
    Method(
        "stiefel",
        "kernels of equal singular values, learned scale and bias",
        (Stiefel(2.0), _SCALE, _CLIP),
    ),
)
METHODS: Mapping[str, Method] = {method.name: method for method in _ALL}


def find_methods(names: str) -> list[Method]:
    """Returns the methods of comma-separated names, in their order; the defaults for no name."""
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    wanted = wanted or DEFAULT_METHODS.split(",")
    for name in wanted:
        if name not in METHODS:
            summaries = {each.name: each.summary for each in METHODS.values()}
            raise unknown("method", name, METHODS, summaries)
        if wanted.count(name) > 1:
            raise UserError(f"the method {name!r} is named twice; name each once.")
    return [METHODS[name] for name in wanted]
