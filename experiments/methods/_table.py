"""The methods by name: a new method is a new row."""

import itertools
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from experiments._errors import UserError, unknown
from experiments.methods._population import GammaDecay, Population
from experiments.methods._recipe import Recipe
from experiments.methods._variance_constancy import VarianceConstancy
from jaxnorm import (
    CenteredWeightNormalized,
    LinearlyConstrained,
    Scaled,
    SpectrallyNormalized,
    WeightNormalized,
    WeightStandardized,
)

#: Fields of a recipe that several rows share.
Parts = dict[str, Any]

#: The standard deviation of the noise on the scales, the same in every layer, as the paper has it
#: for networks without residual branches; it states no number for them, this one is ours.
NOISE = 0.1

#: The largest norm of a layer's gradient in constrained weight optimization; ours. Without it
#: training at the paper's rate explodes in the first epoch on photographs, with noise or without,
#: under one seed in three.
CLIP = 1.0

_NORMALIZERS = (
    Recipe("none", "no normalization", default=True),
    Recipe("bn", "batch normalization", norm="bn", default=True),
    Recipe("ln", "layer normalization", norm="ln"),
    Recipe("gn", "group normalization, 16 groups", norm="gn"),
)


def _constrained(centre: bool, sphere: bool, noise: bool) -> Recipe:
    """Constrained weight optimization, or what is left of it without some of its three parts."""
    chosen = {"centre": centre, "sphere": sphere, "noise": noise}
    parts = [part for part, wanted in chosen.items() if wanted]
    whole = len(parts) == len(chosen)
    return Recipe(
        name="cwo" if whole else "-".join(["cwo", *(parts or ["none"])]),
        summary="learned scale and bias" + "".join(f" + {part}" for part in parts),
        reparametrization=Scaled,
        centered=centre,
        squared_radius=2.0 if sphere else None,
        clip=CLIP,
        noise=NOISE if noise else None,
        default=whole,
    )


_ABLATIONS = tuple(
    _constrained(*parts) for parts in itertools.product([True, False], [True, False], [True, False])
)

_OTHER_NOISES = (
    replace(
        _constrained(True, True, True),
        name="cwo-step",
        summary="cwo with one draw of the noise a step, which all samples share",
        noise_per="step",
        default=False,
    ),
    replace(
        _constrained(True, True, True),
        name="cwo-linear",
        summary="cwo with noise that grows from layer to layer up to 1, for residual networks",
        noise=1.0,
        noise_grows=True,
        default=False,
    ),
)

_WN: Parts = {"reparametrization": WeightNormalized}
_CWN: Parts = {"reparametrization": CenteredWeightNormalized}
_SN: Parts = {"reparametrization": SpectrallyNormalized}
_LCW: Parts = {"reparametrization": LinearlyConstrained, "initializer": "variance-preserving"}
_WS: Parts = {"reparametrization": WeightStandardized}
_DATA: Parts = {"initializer": "data-dependent"}

_REPARAMETRIZATIONS = (
    Recipe("wn", "weight normalization", **_WN, **_DATA),
    Recipe("cwn", "centred weight normalization", **_CWN, **_DATA),
    Recipe("sn", "spectral normalization", **_SN),
    Recipe("lcw", "linearly constrained (zero-sum) weights", default=True, **_LCW),
    Recipe("sl", "standardization layer: bn without affine, after the activation", post_norm="sl"),
    Recipe("ws", "weight standardization", **_WS),
    Recipe("ws+bn", "weight standardization, then bn", norm="bn", **_WS),
    Recipe("ws+gn", "weight standardization, then gn", norm="gn", **_WS),
    Recipe("bn+wn", "bn on weight normalization", norm="bn", **_WN, **_DATA),
    Recipe("bn+cwn", "bn on centred weight normalization", norm="bn", **_CWN, **_DATA),
    Recipe("bn+sn", "bn on spectral normalization", norm="bn", **_SN),
    Recipe("bn+lcw", "bn on linearly constrained weights", norm="bn", **_LCW),
    Recipe("bn+sl", "bn before the activation, the standardization layer after", "bn", "sl"),
)

_NORMPROP: Parts = {"squared_radius": 1.0}
_PROPAGATION = (
    Recipe(
        "normprop",
        "normalization propagation: unit-norm weights, standardized activations",
        reparametrization=WeightNormalized,
        propagates=True,
        default=True,
        **_NORMPROP,
    ),
    Recipe(
        "normprop-batch",
        "normprop with each minibatch of the data normalized by its own statistics",
        reparametrization=WeightNormalized,
        propagates=True,
        input_norm="sl",
        **_NORMPROP,
    ),
    Recipe(
        "normprop-exact",
        "normprop that stays exact while biases are learned (rectifiers only)",
        norm="standardized-rectifier",
        activation="identity",
        **_NORMPROP,
    ),
)

_LOSSES = (
    Recipe(
        "vcl",
        "variance constancy loss of n = 5 samples, layers' gradients clipped at 1",
        variance_constancy=VarianceConstancy(),
        default=True,
    ),
)

_PN: Parts = {"norm": "pn", "population": Population()}
_DECAY: Parts = {"population": Population(), "gamma_decay": GammaDecay()}

_BATCH_NORM_IN_PIECES = (
    Recipe("pn", "population normalization, statistics refreshed every 10 steps", **_PN),
    Recipe("pn+gamma-decay", "pn and the decay of gamma that is implicit in bn", **_PN | _DECAY),
    Recipe("wn+gamma-decay", "wn and the decay of gamma implicit in bn", **_WN, **_DATA, **_DECAY),
    Recipe("wn+mean-only-bn", "wn, then bn without variances", norm="mean-only-bn", **_WN),
    Recipe("wn+variance-only-bn", "wn, then bn without means", norm="variance-only-bn", **_WN),
    Recipe("bn+dropout", "bn, and 0.1 of the activations dropped", norm="bn", dropout=0.1),
    Recipe("wn+dropout", "wn, and 0.2 of the activations dropped", dropout=0.2, **_WN, **_DATA),
)

METHODS: Mapping[str, Recipe] = MappingProxyType(
    {
        recipe.name: recipe
        for recipe in itertools.chain(
            _NORMALIZERS,
            _ABLATIONS,
            _OTHER_NOISES,
            _REPARAMETRIZATIONS,
            _PROPAGATION,
            _LOSSES,
            _BATCH_NORM_IN_PIECES,
        )
    }
)


def find_methods(names: str) -> list[Recipe]:
    """The recipes of comma-separated names, in their order; of an empty string the default ones."""
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    for name in wanted:
        if name not in METHODS:
            raise unknown("method", name, METHODS)
        if wanted.count(name) > 1:
            raise UserError(f"the method {name!r} is named twice; name each once.")
    if not wanted:
        return [recipe for recipe in METHODS.values() if recipe.default]
    return [METHODS[name] for name in wanted]
