"""What the codes of the methods mean: function, paper, formula, when to use each, what it needs.

What a method does in a few words stands in `table.py` and is not repeated here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Entry:
    """A method as a reader looks it up.

    Attributes:
        name: the method's name, spelled out.
        functions: the public names that make it, without ``jaxnorm.``; empty for what only the
            experiments have.
        source: paper and equation.
        formula: in LaTeX; empty where there is none.
        when: a clause that begins with "when", or the purpose.
        needs: what it needs of the model.
    """

    name: str
    functions: tuple[str, ...]
    source: str
    formula: str
    when: str
    needs: str


_IKAMI = "Ikami et al. 2021"
_LUO = "Luo et al. 2019"
_ARPIT = "Arpit et al. 2016"
_KERNELS = "Kernels whose fan-in axes a layout names; any activation."
_ROWS = "Several rows that do not depend on each other in each minibatch."
_NOTHING_OF_BATCHES = "Normalized activations; the rows of a minibatch do not meet."
_RIVAL = "for comparison; the library does not have it."

GLOSSARY: Mapping[str, Entry] = MappingProxyType(
    {
        "cwo": Entry(
            "constrained weight optimization",
            ("constrain", "with_scale_noise", "clip_by_layer_norm"),
            f"{_IKAMI}, Eqs. 2, 6, 7 and 11; the clipping is ours",
            r"y = \gamma (1 + n)\, w^\top x + b, \quad 1^\top w = 0, \quad \lVert w \rVert^2 = 2, "
            r"\quad n \sim N(0, \sigma^2)",
            "when the network stays at chance without normalization at the rate that you want, and "
            "the rows of a minibatch must not see each other.",
            "A fan-in of at least two; noise needs a model that can be traced, or "
            "`nnx.ScaleAndBias` layers. Leave the classifier out.",
        ),
        "lcw": Entry(
            "linearly constrained (zero-sum) weights",
            ("linearly_constrain", "LinearlyConstrained", "variance_preserving_init"),
            "Kutsuna 2019, sections 3.1 and 3.2",
            r"w = B v, \quad 1^\top w = 0",
            "when a deep network saturates, as one of sigmoids does; also for ReLU networks that "
            "train without normalization.",
            f"{_KERNELS} One example batch, for the initial sizes.",
        ),
        "normprop": Entry(
            "normalization propagation",
            ("propagate_normalization", "standardized", "jacobian_factor"),
            f"{_ARPIT}, Eq. 6 and section 3.4",
            r"o = \frac{f(\gamma\, w^\top x / \lVert w \rVert + \beta) - \mu_f}{s_f}, \quad "
            r"\mu_f = E f(z), \quad s_f^2 = \mathrm{Var} f(z), \quad z \sim N(0, 1)",
            "when a batch has one row, as in online learning.",
            "Standardized inputs, and activations that `standardized` wraps.",
        ),
        "vcl": Entry(
            "variance constancy loss",
            ("variance_constancy_loss", "collect_preactivations", "clip_by_layer_norm"),
            "Littwin and Wolf 2018, Eq. 17",
            r"L = \left(1 - \frac{s_1^2}{s_2^2 + \beta}\right)^2",
            "when the model may not change, but its loss may.",
            "A model that can be traced, and 2n rows in a minibatch.",
        ),
        "wn": Entry(
            "weight normalization",
            ("WeightNormalized", "reparametrize", "data_dependent_init"),
            "Salimans and Kingma 2016",
            r"w = g\, v / \lVert v \rVert",
            "when you had it in another library.",
            _KERNELS,
        ),
        "cwn": Entry(
            "centred weight normalization",
            ("CenteredWeightNormalized", "reparametrize", "data_dependent_init"),
            "Huang et al. 2017",
            r"w = g\, \frac{v - \bar v}{\lVert v - \bar v \rVert}",
            "when you want zero-sum weights with a learned scale for each unit.",
            _KERNELS,
        ),
        "ws": Entry(
            "weight standardization",
            ("WeightStandardized", "reparametrize"),
            f"Qiao et al. 2019; {_IKAMI}, Eqs. 15 to 19",
            r"w = g\, \frac{v - \bar v}{\mathrm{std}(v)}",
            "when group or batch normalization follows.",
            _KERNELS,
        ),
        "sn": Entry(
            "spectral normalization",
            ("SpectrallyNormalized", "power_iteration", "attach_singular_vectors"),
            "Miyato et al. 2018, Algorithm 1",
            r"W / \sigma_{\max}(W)",
            "when the network's Lipschitz constant matters.",
            f"{_KERNELS} Singular vectors that the training carries.",
        ),
        "none": Entry(
            "no normalization", (), "", r"y = w^\top x + b", "as the baseline.", "Nothing."
        ),
        "bn": Entry(
            "batch normalization",
            ("nnx.BatchNorm", "nnx.fold_batch_norm"),
            "Ioffe and Szegedy 2015",
            r"y = \gamma\, \frac{x - \mu_B}{\sqrt{\sigma_B^2 + \epsilon}} + \beta",
            "when minibatches are large and their rows independent. Fold it for inference.",
            _ROWS,
        ),
        "ln": Entry(
            "layer normalization",
            (),
            "Ba et al. 2016; the layer is Flax's",
            r"y = \gamma\, \frac{x - \mu_{\mathrm{row}}}{\sigma_{\mathrm{row}}} + \beta",
            _RIVAL,
            _NOTHING_OF_BATCHES,
        ),
        "gn": Entry(
            "group normalization",
            (),
            "Wu and He 2018; the layer is Flax's",
            r"y = \gamma\, \frac{x - \mu_{\mathrm{group}}}{\sigma_{\mathrm{group}}} + \beta",
            _RIVAL,
            f"{_NOTHING_OF_BATCHES} Channels in groups.",
        ),
        "rms": Entry(
            "root mean square normalization",
            (),
            "Zhang and Sennrich 2019; the layer is Flax's",
            r"y = \gamma\, x / \sqrt{\overline{x^2} + \epsilon}",
            _RIVAL,
            _NOTHING_OF_BATCHES,
        ),
        "sl": Entry(
            "standardization layer",
            ("nnx.Standardization",),
            "Gulcehre and Bengio 2016; Kutsuna 2019, section 5",
            r"y = \frac{f(x) - \mu_B}{\sqrt{\sigma_B^2 + \epsilon}}",
            _RIVAL,
            _ROWS,
        ),
        "pn": Entry(
            "population normalization",
            ("nnx.PopulationNorm", "population_statistics"),
            f"{_LUO}, sections 2 and 5",
            r"y = \gamma\, \frac{x - \mu_P}{\sigma_P} + \beta",
            "to study batch normalization without its noise.",
            "A pass over more rows every few steps, for the statistics.",
        ),
        "pn+gamma-decay": Entry(
            "population normalization with gamma decay",
            ("nnx.PopulationNorm", "gamma_decay", "gamma_decay_strength"),
            f"{_LUO}, Eq. 3",
            r"L + \sum_i \zeta_i \gamma_i^2",
            "to study the regularization in batch normalization.",
            "Scales, and a gradient for each row of a sample.",
        ),
        "nero": Entry("Nero", (), "Liu et al. 2021", "", _RIVAL, _KERNELS),
        "hyperball": Entry(
            "Hyperball",
            (),
            "Wen et al. 2025",
            r"\lVert W \rVert_F = \lVert W_0 \rVert_F",
            _RIVAL,
            _KERNELS,
        ),
        "adamp": Entry("AdamP", (), "Heo et al. 2021", "", _RIVAL, _KERNELS),
        "agc": Entry(
            "adaptive gradient clipping",
            (),
            "Brock et al. 2021",
            r"\lVert g_i \rVert \le \lambda\, \lVert w_i \rVert",
            _RIVAL,
            _KERNELS,
        ),
        "dyt": Entry(
            "Dynamic Tanh",
            (),
            "Zhu et al. 2025",
            r"y = \gamma \tanh(\alpha x) + \beta",
            _RIVAL,
            "A place for a layer where the normalizer stood.",
        ),
        "derf": Entry(
            "Derf",
            (),
            "Chen et al. 2025",
            r"y = \gamma\, \mathrm{erf}(\alpha x + s) + \beta",
            _RIVAL,
            "A place for a layer where the normalizer stood.",
        ),
        "ngpt": Entry(
            "nGPT, the normalized transformer",
            ("project", "sphere_projection", "layout_from_rules"),
            "Loshchilov et al. 2024, Eqs. 10 to 21",
            r"h \leftarrow \frac{h'}{\lVert h' \rVert}, \quad h' = h + \alpha \left( "
            r"\frac{b}{\lVert b \rVert} - h \right), \quad \lVert W_i \rVert = 1",
            "when you may write the transformer anew; the library has its weights' constraint.",
            "A transformer of its own form: tokens, queries and keys on the sphere, and scales.",
        ),
        "edm2": Entry(
            "EDM2's forced weight normalization",
            ("WeightNormalized", "sphere_projection", "standardized"),
            "Karras et al. 2024, Eqs. 47, 66, 81 and 88",
            r"w = v / \lVert v \rVert, \quad \lVert v \rVert^2 = \text{fan-in}, \quad "
            r"f(x) / \sqrt{E f(z)^2}, \quad z \sim N(0, 1), \quad "
            r"\frac{(1 - t)\, x + t\, b}{\sqrt{(1 - t)^2 + t^2}}",
            "when every layer shall learn at the same relative rate.",
            "Scales of weight normalization that are not trained, and sums that the model makes.",
        ),
        "stiefel": Entry(
            "kernels on the Stiefel manifold",
            ("stiefel_projection", "project_to_stiefel"),
            "Bernstein 2025; Absil et al. 2008, example 4.1.3",
            r"W = s\, U V^\top, \quad s^2 = c \max(1, \text{units} / \text{fan-in})",
            "when units of a layer shall be orthogonal, under Muon for example.",
            f"{_KERNELS} Twelve iterations of matrix products a step.",
        ),
    }
)
