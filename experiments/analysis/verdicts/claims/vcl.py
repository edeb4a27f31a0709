"""Claims of Littwin and Wolf 2018, the variance constancy loss."""

from experiments.analysis.verdicts.claim import Claim, Paper, Source, Table, side, sides

ERRORS = Table("Table 2", "vcl/tab2", "CIFAR-10")
IMAGES = Table("section 5", "vcl/tab2", "CIFAR-10")

NAMES = {"vcl": "VCL", "bn": "BN", "none": "none"}


def helps(method: str, activation: str, folder: str) -> Claim:
    """Returns the claim that a normalization improves a network of that activation."""
    name = "ReLU" if activation == "relu" else "ELU"
    return Claim(
        f"vcl-{'' if method == 'vcl' else 'bn-'}helps-{activation}",
        f"{NAMES[method]} improves {name}",
        sides(folder, method, "none"),
        ERRORS(f"{name}+vcl (n = 5)" if method == "vcl" else f"{name}+bn", name),
    )


def wins(activation: str, better: str, worse: str, folder: str = "uci-ten-seeds") -> Claim:
    """Returns the claim that one normalization wins on more data sets than another."""
    word = "ReLU" if activation == "relu" else activation.upper()
    return Claim(
        f"vcl-wins-{activation}-{better}-{worse}",
        f"{word}: {NAMES[better]} wins on more UCI sets than {NAMES[worse]}",
        tuple(
            side(folder, name=NAMES[each], activation=activation, normalization=each)
            for each in (better, worse)
        ),
        Source("Table 4", "vcl/tab4", otherwise="2 GPU days for 37 sets (estimated)"),
        measure="wins",
        data="37 UCI sets",
    )


def modes(layer: str) -> Claim:
    """Returns the claim about the modes of a layer's units."""
    return Claim(
        f"vcl-modes-{layer}",
        f"units have fewer, clearer modes than with BN: a lower kurtosis (layer {layer})",
        tuple(side("uci/fig1", each, NAMES[each], layer=layer) for each in ("vcl", "bn")),
        Source("Figure 1", "vcl/fig1"),
        measure="kurtosis",
        data="UCI adult",
    )


CLAIMS = (
    Claim(
        "vcl-over-bn",
        "ELU + VCL is better than ELU + BN",
        sides("vcl-elu-ten-seeds", "vcl", "bn"),
        ERRORS("ELU+vcl (n = 5)", "ELU+bn"),
    ),
    helps("vcl", "relu", "vcl-relu-60"),
    helps("vcl", "elu", "vcl-elu"),
    Claim(
        "vcl-behind-bn-relu",
        "on images VCL with ReLU is worse than BN with ReLU",
        sides("vcl-relu-60", "bn", "vcl"),
        IMAGES("ReLU+bn", "ReLU+vcl (n = 5)"),
    ),
    helps("bn", "relu", "vcl-relu-60"),
    helps("bn", "elu", "vcl-elu"),
    wins("relu", "vcl", "bn"),
    wins("relu", "bn", "none"),
    wins("elu", "vcl", "bn", folder="uci"),
    wins("elu", "bn", "none"),
    wins("selu", "vcl", "bn"),
    wins("selu", "bn", "none"),
    modes("1"),
    modes("4"),
)

PAPER = Paper(
    "The variance constancy loss (Littwin and Wolf 2018)", "uci-ten-seeds/profile.png", CLAIMS
)
