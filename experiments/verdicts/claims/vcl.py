"""Littwin and Wolf 2018, the variance constancy loss."""

from experiments.verdicts.claim import Claim, Decider, Side, of_rows

PAPER = "The variance constancy loss (Littwin and Wolf 2018)"
PICTURE = "uci/profile.png"

_UCI, _FIG1 = "uci/results.csv", "uci/fig1/results.csv"
_LAYERS = 4
_ACTIVATIONS = {"relu": "ReLU", "elu": "ELU", "selu": "SELU"}
_NAMES = {"none": "none", "bn": "BN", "vcl": "VCL"}


def _photographs(word: str, says: str, better: str, worse: str, place: str = "Table 2") -> Claim:
    return of_rows(f"vcl-{word}", place, says, "vcl/tab2", better, worse, "CIFAR-10")


def _normalized(activation: str, name: str) -> Side:
    return Side(_NAMES[name], {"activation": activation, "normalization": name})


def _wins(activation: str, better: str, worse: str) -> Claim:
    return Claim(
        f"vcl-wins-{activation}-{better}-{worse}",
        "Table 4",
        f"{_ACTIVATIONS[activation]}: {_NAMES[better]} wins on more UCI sets than {_NAMES[worse]}",
        _UCI,
        _normalized(activation, better),
        _normalized(activation, worse),
        measure="wins",
        data="37 UCI sets",
        decider=Decider("vcl/tab4"),
    )


def _kurtosis(layer: int) -> Claim:
    def side(name: str) -> Side:
        return Side(_NAMES[name], {"method": name, "layer": str(layer)})

    return Claim(
        f"vcl-modes-{layer}",
        "Figure 1",
        f"units have fewer, clearer modes than with BN: a lower kurtosis (layer {layer})",
        _FIG1,
        side("vcl"),
        side("bn"),
        measure="kurtosis",
        data="UCI adult",
        decider=Decider("vcl/fig1"),
    )


CLAIMS = (
    _photographs("over-bn", "ELU + VCL is better than ELU + BN", "ELU+vcl (n = 5)", "ELU+bn"),
    _photographs("helps-relu", "VCL improves ReLU", "ReLU+vcl (n = 5)", "ReLU"),
    _photographs("helps-elu", "VCL improves ELU", "ELU+vcl (n = 5)", "ELU"),
    _photographs(
        "behind-bn-relu",
        "on images VCL with ReLU is worse than BN with ReLU",
        "ReLU+bn",
        "ReLU+vcl (n = 5)",
        "section 5",
    ),
    _photographs("bn-helps-relu", "BN improves ReLU", "ReLU+bn", "ReLU"),
    _photographs("bn-helps-elu", "BN improves ELU", "ELU+bn", "ELU"),
    *(
        _wins(activation, *pair)
        for activation in _ACTIVATIONS
        for pair in (("vcl", "bn"), ("bn", "none"))
    ),
    _kurtosis(1),
    _kurtosis(_LAYERS),
)
