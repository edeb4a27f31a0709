"""Claims of Ikami et al. 2021, constrained weight optimization."""

from experiments.analysis.verdicts.claim import Claim, Paper, Source, Table, side, sides

TAB1, CNN = "cwo/tab1", "CNN, CIFAR-10, standard"
FIRST = Table("Table 1, section 4.1.2", TAB1, CNN)
QUIET = Table("Tables 1 and 3", TAB1, CNN)
NETWORKS = Table("Table 1", TAB1, CNN)
BATCHES = Table("Table 2, section 4.1.3", "cwo/tab2", "CIFAR-10")
BATCH = Table("Table 2", "cwo/tab2", "CIFAR-10")
CONSTRAINTS = Table("Table 3, section 4.1.4", "cwo/tab3", "CIFAR-10")
NOISE = Table("Tables 3 and 4, section 4.1.4", "cwo/tab3", "CIFAR-10")
SECTION = Table("section 4.1.4", "cwo/tab3", "CIFAR-10")
NOISE_FIGURE = Table("Figure 2, section 4.1.4", "cwo/tab3", "CIFAR-10")
NOISE_TABLES = Table("Tables 3 and 4", "cwo/tab3", "CIFAR-10")
STRENGTHS = Table("Table 4", "cwo/tab4", "CIFAR-10")
SHORTER = "60 epochs of 200, and gradients clipped at 1"


def few_rows(other: str) -> Claim:
    """Returns the claim that ours is better than GN or WS+GN, and as good as BN or WS+BN."""
    better, method = other.endswith("GN"), other.lower()
    return Claim(
        f"cwo-few-rows-{method.replace('+', '-')}",
        f"{'better than' if better else 'as good as'} {other}"
        f"{'' if better else ' (within a point)'}: few rows, rates tuned",
        sides("unclipped/tuned-40-ten-seeds", "cwo", method),
        NETWORKS("Ours", other),
        margin=0.0 if better else 1.0,
    )


def both_over(row: str, method: str, folder: str) -> Claim:
    """Returns the claim that both constraints are better than another row of the ablation."""
    tuned = "tuned" in folder
    words = {"neither": "neither", "centre": "centring alone", "sphere": "the sphere alone"}
    rates = "rates tuned" if tuned else "at the paper's rate of 0.1"
    return Claim(
        f"cwo-{'both' if tuned else 'own-rate'}-over-{row}",
        f"both constraints are better than {words[row]} ({rates})",
        sides(folder, "cwo-centre-sphere", method),
        CONSTRAINTS("both", row),
    )


CLAIMS = (
    Claim(
        "cwo-as-bn",
        "both constraints and the noise: equal to or better than BN without normalizing an "
        "activation (within a point)",
        sides("photographs-ten-seeds", "cwo", "bn"),
        FIRST("Ours", "BN"),
        margin=1.0,
    ),
    Claim(
        "cwo-as-bn-quiet",
        "both constraints without noise: within a point of BN, or better",
        sides("photographs-six-seeds", "cwo-centre-sphere", "bn"),
        QUIET("Ours", "BN"),
        margin=1.0,
    ),
    Claim(
        "cwo-as-bn-wide",
        "both constraints and the noise: within a point of BN, or better, at the paper's width "
        "of 64 channels and on all photographs",
        sides("photographs-wide", "cwo", "bn"),
        FIRST("Ours", "BN"),
        margin=1.0,
        unlike=SHORTER,
    ),
    Claim(
        "cwo-as-bn-quiet-wide",
        "the same without noise",
        sides("photographs-wide", "cwo-centre-sphere", "bn"),
        QUIET("Ours", "BN"),
        margin=1.0,
        unlike=SHORTER,
    ),
    Claim(
        "cwo-over-gn", "better than GN", sides("photographs", "cwo", "gn"), NETWORKS("Ours", "GN")
    ),
    Claim(
        "cwo-trains",
        "trains stably at a rate of 0.1, the gradient not being divided by the weights' size",
        sides("unclipped/photographs", "cwo"),
        Source("section 3.5"),
        kind="trains",
    ),
    Claim(
        "cwo-trains-wide",
        "the same at the paper's width of 64 channels",
        sides("photographs-wide", "cwo"),
        Source("section 4.1.1", otherwise="the same command with `--clip 0`"),
        kind="trains",
        unlike="gradients are clipped at 1",
    ),
    *(few_rows(other) for other in ("BN", "WS+BN", "GN", "WS+GN")),
    Claim(
        "bn-over-gn", "BN is better than GN", sides("photographs", "bn", "gn"), NETWORKS("BN", "GN")
    ),
    Claim(
        "cwo-small-batch",
        "at a batch of 4 better than BN (rates tuned)",
        sides("batches/4", "cwo", "bn"),
        BATCHES("Ours, B = 4", "BN, B = 4"),
    ),
    Claim(
        "cwo-middle-batch",
        "at a batch of 16 better than BN",
        (side("batches/16", "cwo", "Ours, B = 16"), side("batches/16", "bn", "BN, B = 16")),
        BATCH("Ours, B = 16", "BN, B = 16"),
    ),
    Claim(
        "bn-small-batch",
        "BN is severely worse at a batch of 4 than at 128",
        (side("batches/128", "bn", "BN, B = 128"), side("batches/4-own-rate", "bn", "BN, B = 4")),
        BATCHES("BN, B = 128", "BN, B = 4"),
        unlike="with few epochs the smaller batch has 32 times the steps, whatever normalizes",
    ),
    Claim(
        "cwo-own-rate-bn",
        "as good as BN (within a point; at the paper's rate of 0.1)",
        sides("unclipped/rate-0.1-ten-seeds", "cwo", "bn"),
        NETWORKS("Ours", "BN"),
        margin=1.0,
    ),
    Claim(
        "cwo-linear-trains",
        "a residual network trains with noise that grows to 1 (digits alone)",
        sides("unclipped/resnet18", "cwo-linear"),
        Source("section 3.3, Table 4"),
        kind="trains",
        data="digits",
    ),
    Claim(
        "cwo-linear-resnet110",
        "ResNet-110 trains with growing noise (digits alone, up to 0.3)",
        sides("unclipped/resnet110", "cwo-linear"),
        Source("section 3.3, Table 4"),
        kind="trains",
        data="digits",
        unlike="branches start more quietly",
    ),
    both_over("neither", "cwo-none", "unclipped/tuned-40"),
    both_over("centre", "cwo-centre", "unclipped/tuned-40-ten-seeds"),
    both_over("sphere", "cwo-sphere", "unclipped/tuned-40"),
    both_over("neither", "cwo-none", "unclipped/rate-0.1"),
    both_over("centre", "cwo-centre", "unclipped/rate-0.1-ten-seeds"),
    both_over("sphere", "cwo-sphere", "unclipped/rate-0.1"),
    Claim(
        "cwo-own-rate-noise",
        "noise improves both constraints (at the paper's rate of 0.1)",
        sides("unclipped/rate-0.1-ten-seeds", "cwo", "cwo-centre-sphere"),
        NOISE("both + noise", "both"),
    ),
    Claim(
        "cwo-centre-alone",
        "centring alone can be worse than neither (rates tuned)",
        sides("unclipped/tuned-40", "cwo-none", "cwo-centre"),
        SECTION("neither", "centre"),
    ),
    Claim(
        "cwo-noise",
        "noise improves both constraints",
        sides("photographs", "cwo", "cwo-centre-sphere"),
        NOISE("both + noise", "both"),
        unlike="20 epochs of 200, and gradients clipped at 1",
    ),
    Claim(
        "cwo-noise-wide",
        "the same at the paper's width of 64 channels and on all photographs",
        sides("photographs-wide", "cwo", "cwo-centre-sphere"),
        NOISE("both + noise", "both"),
        unlike=SHORTER,
    ),
    Claim(
        "cwo-noise-few-rows",
        "the same, few rows, rates tuned",
        sides("unclipped/tuned-40-ten-seeds", "cwo", "cwo-centre-sphere"),
        NOISE("both + noise", "both"),
    ),
    Claim(
        "cwo-noise-loss",
        "noise raises the final training loss",
        sides("photographs", "cwo-centre-sphere", "cwo"),
        NOISE_FIGURE("both + noise", "both"),
        measure="train_loss",
    ),
    Claim(
        "cwo-noise-digits",
        "noise improves both constraints (digits alone, more seeds)",
        sides("digits-noise", "cwo", "cwo-centre-sphere"),
        NOISE_TABLES("both + noise", "both"),
        data="digits",
    ),
    Claim(
        "cwo-noise-of-04",
        "constant noise of 0.4 is better than none",
        (
            side("noise/constant", "cwo", "constant, sigma = 0.4"),
            side("noise/constant", "cwo-centre-sphere", "no noise"),
        ),
        STRENGTHS("constant, sigma = 0.4", "constant, sigma = 0"),
    ),
    Claim(
        "cwo-linear-noise",
        "noise growing to 1 is better than none",
        (
            side("noise/linear", "cwo-linear", "linear, sigma = 1"),
            side("noise/constant", "cwo-centre-sphere", "no noise"),
        ),
        STRENGTHS("linear, sigma = 1", "constant, sigma = 0"),
    ),
)

PAPER = Paper(
    "Constrained weight optimization (Ikami et al. 2021)",
    "photographs/curves.png",
    CLAIMS,
    "Our `cwo` also clips each layer's gradient at 1, of which the paper says nothing, but in runs "
    "whose command has `--clip 0`; its noise is 0.1 unless a row says otherwise, where the paper "
    "gives no size for a plain network.",
)
