"""Which normalizer when: a recommendation, and the claims and runs behind it."""

from typing import NamedTuple

from experiments.verdicts.claim import Side, method, row


class When(NamedTuple):
    """A line of advice.

    Attributes:
        network: what one has.
        take: what to take.
        claims: the names of claims that speak of it, for or against.
        runs: further figures: a csv file, and sides in it.
        data: what these were trained on.
    """

    network: str
    take: str
    claims: tuple[str, ...] = ()
    runs: tuple[tuple[str, Side], ...] = ()
    data: str = "photographs"


_TAB2 = "cifar10-jpeg/vcl-tab2/results.csv"

WHEN = (
    When(
        "trains with batch normalization, and minibatches are no trouble",
        "keep it, or fold it for inference: `nnx.fold_batch_norm`",
        ("cwo-as-bn", "normprop-over-bn", "vcl-over-bn", "luo-bn-over-sgd", "luo-bn-over-wn"),
    ),
    When(
        "is deep and saturates: sigmoids",
        "`linearly_constrain`",
        ("lcw-faster-than-bn", "lcw-wn-stays", "lcw-sn-stays"),
        (
            ("sigmoid50/results.csv", method("lcw")),
            ("sigmoid50/results.csv", method("none")),
            ("sigmoid50/results.csv", method("bn")),
        ),
        "digits",
    ),
    When(
        "the same, and it may have batch normalization",
        "both",
        ("lcw-bn-over-bn", "lcw-bn-over-lcw"),
        (("sigmoid50/results.csv", method("bn+lcw")),),
        "digits",
    ),
    When(
        "must not see minibatch statistics: ReLU, plain",
        "`linearly_constrain`, or `propagate_normalization` with `standardized`",
        ("normprop-batch-of-1", "normprop-over-bn"),
        (("digits/results.csv", method("lcw")), ("digits/results.csv", method("normprop"))),
        "digits",
    ),
    When(
        "the same, at rates where nothing trains without it",
        "`constrain`",
        ("cwo-trains", "cwo-as-bn-quiet", "cwo-over-gn", "cwo-both-over-neither"),
        (("photographs/results.csv", method("none")),),
    ),
    When(
        "... with noise on the scales",
        "`constrain`, `with_scale_noise`",
        ("cwo-noise", "cwo-noise-loss", "cwo-noise-of-04"),
    ),
    When(
        "trains on minibatches of four or so",
        "keep batch normalization if it trains, else `constrain`, which no minibatch enters",
        ("cwo-small-batch", "bn-small-batch"),
    ),
    When(
        "is plain, rectified and 30 layers deep",
        "residual branches: no method here does clearly better than nothing, and `wn` and "
        "`linearly_constrain` diverge",
        (),
        tuple(
            ("depth/30/results.csv", method(name))
            for name in ("none", "bn", "wn", "lcw", "cwo", "normprop", "vcl")
        ),
        "Fashion-MNIST",
    ),
    When(
        "ELUs that diverge",
        "`variance_constancy_loss`",
        ("vcl-helps-elu", "vcl-over-bn"),
        ((_TAB2, row("ELU", "CIFAR-10")), (_TAB2, row("ELU+vcl (n = 5)", "CIFAR-10"))),
    ),
)
