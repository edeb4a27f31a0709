"""Littwin and Wolf 2018, the variance constancy loss."""

from experiments.verdicts.claim import Claim, Decider, Side, method, of, row

PAPER = "The variance constancy loss (Littwin and Wolf 2018)"
PICTURE = "uci/profile.png"

_TAB2, _UCI, _FIG1 = "cifar10-jpeg/vcl-tab2/results.csv", "uci/results.csv", "uci/fig1/results.csv"
_DATA = "CIFAR-10"
#: Rates chosen on held-out rows; few rows, which are fitted; by n.
_TUNED = {n: f"elu4/{n}/results.csv" for n in (2, 5, 9)}
_LAYERS = 4
_ACTIVATIONS = {"relu": "ReLU", "elu": "ELU", "selu": "SELU"}
_NAMES = {"none": "none", "bn": "BN", "vcl": "VCL"}


def _photographs(word: str, says: str, better: str, worse: str, place: str = "Table 2") -> Claim:
    return Claim(
        f"vcl-{word}",
        place,
        says,
        _TAB2,
        row(better, _DATA),
        row(worse, _DATA),
        decider=Decider("vcl/tab2", ((better, _DATA), (worse, _DATA))),
    )


def _elu(word: str, says: str, better: str, worse: str) -> Claim:
    names = {"none": "ELU", "bn": "ELU+bn", "vcl": "ELU+vcl (n = 5)"}
    return Claim(
        f"vcl-{word}",
        "Table 2",
        f"{says} (four convolutions, rates tuned)",
        _TUNED[5],
        method(better),
        method(worse),
        decider=Decider("vcl/tab2", tuple((names[each], _DATA) for each in (better, worse))),
    )


def _samples(more: int) -> Claim:
    few, many = (of(method("vcl"), _TUNED[n], f"n = {n}") for n in (2, more))
    return Claim(
        f"vcl-n-{more}",
        "section 4",
        f"ELU + VCL: n = 2 is better than n = {more} (four convolutions, rates tuned)",
        _TUNED[2],
        few,
        many,
        decider=Decider("vcl/tab2", tuple((f"ELU+vcl (n = {n})", _DATA) for n in (2, more))),
    )


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
    _elu("over-bn", "ELU + VCL is better than ELU + BN", "vcl", "bn"),
    _photographs("helps-relu", "VCL improves ReLU", "ReLU+vcl (n = 5)", "ReLU"),
    _elu("helps-elu", "VCL improves ELU", "vcl", "none"),
    _photographs(
        "behind-bn-relu",
        "on images VCL with ReLU is worse than BN with ReLU",
        "ReLU+bn",
        "ReLU+vcl (n = 5)",
        "section 5",
    ),
    _photographs("bn-helps-relu", "BN improves ReLU", "ReLU+bn", "ReLU"),
    _elu("bn-helps-elu", "BN improves ELU", "bn", "none"),
    _samples(5),
    _samples(9),
    *(
        _wins(activation, *pair)
        for activation in _ACTIVATIONS
        for pair in (("vcl", "bn"), ("bn", "none"))
    ),
    _kurtosis(1),
    _kurtosis(_LAYERS),
)
