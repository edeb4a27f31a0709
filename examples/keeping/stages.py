"""Runs of the probe in the order of `experiments/results/keeping/PLAN.md`."""

from collections.abc import Iterable, Iterator
from itertools import product
from typing import NamedTuple

from examples.keeping.averaged import Averaged
from examples.keeping.reference import Settings
from examples.keeping.variants import Variant

OWN, FULL = Settings("own"), Settings("full")

VARIANTS = {
    variant.name: variant
    for variant in (
        Variant("batch normalization"),
        Variant("call", clipped=True),
        Variant("own", OWN),
        Variant("full", FULL),
        Variant("own loose", OWN._replace(exact=False)),
        Variant("full loose", FULL._replace(exact=False)),
        Variant("own predicted", OWN._replace(predicted=True)),
        Variant("full predicted", FULL._replace(predicted=True)),
        Variant("own .99", OWN, decay=0.99),
        Variant("full .99", FULL, decay=0.99),
        Variant("own .997", OWN, decay=0.997),
        Variant("full .997", FULL, decay=0.997),
        Variant("full .99 young", FULL, decay=0.99, young=True),
        Variant("full every ten", FULL, every=10),
        Variant("full long V", FULL, length=2.0),
        Variant("own long V", OWN, length=2.0),
        Variant("batch normalization long V", length=2.0),
        Variant("full young", FULL, young=True),
        Variant("full ahead", FULL, ahead=True),
        Variant("full ahead clipped", FULL, ahead=True, clipped=True),
        Variant("full predicted long V", FULL._replace(predicted=True), length=2.0),
        Variant("full predicted clipped", FULL._replace(predicted=True), clipped=True),
        Variant("full clipped", FULL, clipped=True),
        Variant("own clipped", OWN, clipped=True),
        Variant("batch normalization clipped", clipped=True),
        Variant("full quiet", FULL, parts=("quiet",)),
        Variant("full zero sums", FULL, parts=("zero sums",)),
        Variant("full relative", FULL, parts=("relative",)),
        Variant("full quiet, zero sums", FULL, parts=("quiet", "zero sums")),
        Variant("call proxy depthwise", clipped=True, proxy="depthwise"),
        Variant("call proxy all", clipped=True, proxy="all"),
        Variant("own slow", Averaged("slow", "plain"), decay=0.997),
        Variant("own slow clipped", Averaged("slow", "plain"), decay=0.997, clipped=True),
        Variant("own, averaged below", Averaged("batch", "averaged"), decay=0.997),
        Variant("own slow, averaged below", Averaged("slow", "averaged"), decay=0.997),
        Variant("zero sums (MABN)", Averaged(zero_sums=True), decay=0.997),
        Variant("zero sums .9", Averaged(zero_sums=True, decay=0.9), decay=0.9),
        Variant(
            "zero sums .9 clipped", Averaged(zero_sums=True, decay=0.9), decay=0.9, clipped=True
        ),
    )
}


class Run(NamedTuple):
    """Settings of one training."""

    network: str
    variant: str
    rate: float
    warmup: bool
    batch: int
    updates: int
    seed: int


def runs(
    networks: Iterable[str],
    variants: Iterable[str],
    rates: Iterable[float],
    warmups: Iterable[bool] = (True,),
    batch: int = 64,
    updates: int = 300,
    seeds: Iterable[int] = (0,),
) -> Iterator[Run]:
    """Yields runs; those that share a program come one after the other."""
    for network, variant, warmup, rate, seed in product(networks, variants, warmups, rates, seeds):
        yield Run(network, variant, rate, warmup, batch, updates, seed)


GATE = ("MobileNetV2", "gated MBConv", "bottleneck ResNet")
FIRST = ("batch normalization", "call", "own", "full")
RATES = (0.05, 0.1, 0.2, 0.3)
LAG = (
    "full predicted",
    "full .99",
    "full .99 young",
    "own predicted",
    "full every ten",
    "full long V",
    "batch normalization long V",
    "own long V",
)
CLIPPED = ("full clipped", "own clipped", "batch normalization clipped")
BEARING = (
    "full predicted",
    "full long V",
    "full predicted long V",
    "full clipped",
    "full predicted clipped",
    "full young",
)
FEW_ROWS = ("batch normalization", "call", "own .997", "full .997")
SLOW = (
    "own slow",
    "own slow clipped",
    "own, averaged below",
    "own slow, averaged below",
    "zero sums (MABN)",
)
ZERO_SUMS = ("zero sums .9", "zero sums .9 clipped")
OLDER = ("full quiet", "full zero sums", "full relative")
BOTH = ("full quiet, zero sums",)
PROXIES = ("call proxy depthwise", "call proxy all")
SEEDS = (0, 1, 2)

STAGES = {
    "1 first": list(runs(GATE[:1], FIRST, (0.1, 0.3))),
    "1 loose": list(runs(GATE[:1], ("own loose", "full loose"), (0.1, 0.3))),
    "2 no warm-up": list(runs(GATE[:1], FIRST, (0.1, 0.3), (False,))),
    "3 gated": list(runs(GATE[1:2], FIRST, (0.1, 0.3))),
    "4 lag": list(runs(GATE[:1], LAG, (0.3, 0.1))),
    "5 two images": list(
        runs(("U-Net",), FEW_ROWS, (0.1, 0.03, 0.01), batch=2, updates=1000),
    ),
    "5 slow": list(runs(("U-Net",), SLOW, (0.03, 0.01), batch=2, updates=1000)),
    "5 lower rate": list(runs(("U-Net",), FEW_ROWS, (0.003,), batch=2, updates=1000)),
    "5 zero sums": list(
        runs(("U-Net",), ZERO_SUMS, (0.03, 0.01, 0.003), batch=2, updates=1000),
    ),
    "5 fast averages": list(
        runs(("U-Net",), ("own", "full"), (0.03, 0.01), batch=2, updates=1000),
    ),
    "5 seeds": list(
        runs(
            ("U-Net",),
            (*FEW_ROWS, *ZERO_SUMS, "full"),
            (0.01,),
            batch=2,
            updates=1000,
            seeds=(1, 2),
        )
    ),
    "6 rates": list(runs(GATE[:1], FIRST, (0.05, 0.2), (True, False))),
    "7 1,000 updates": list(runs(GATE, FIRST, (0.1, 0.3), updates=1000)),
    "8 bottleneck": list(runs(GATE[2:], FIRST, (0.1, 0.3))),
    "9 four and two rows": [
        *runs(GATE[:1], FEW_ROWS, (0.1, 0.03, 0.01), batch=4, updates=2000),
        *runs(GATE[:1], FEW_ROWS, (0.03, 0.01), batch=2, updates=3000),
    ],
    "9 slow": [
        *runs(GATE[:1], SLOW, (0.01,), batch=2, updates=3000),
        *runs(GATE[:1], SLOW, (0.01,), batch=4, updates=2000),
    ],
    "9 lower rate": [
        *runs(GATE[:1], FEW_ROWS, (0.003,), batch=2, updates=3000),
        *runs(GATE[:1], FEW_ROWS, (0.003,), batch=4, updates=2000),
    ],
    "9 zero sums": [
        *runs(GATE[:1], ZERO_SUMS, (0.03, 0.01), batch=2, updates=3000),
        *runs(GATE[:1], ZERO_SUMS, (0.03, 0.01), batch=4, updates=2000),
    ],
    "9 fast averages": [
        *runs(GATE[:1], ("own", "full"), (0.03, 0.01), batch=2, updates=3000),
        *runs(GATE[:1], ("own", "full"), (0.03, 0.01), batch=4, updates=2000),
    ],
    "10 zero sums": list(runs(GATE, ZERO_SUMS[:1], (0.1, 0.3), updates=1000)),
    "10 clipping": list(runs(GATE[:1], CLIPPED, (0.1, 0.3))),
    "10 candidates": list(runs(GATE, ("full predicted",), (0.1, 0.3), updates=1000)),
    "10 bearing": list(runs(GATE[:0:-1], BEARING, (0.3,))),
    "10 ahead": list(runs(GATE, ("full ahead", "full ahead clipped"), (0.3,))),
    "10 older parts": list(runs(GATE, OLDER, (0.1,), updates=1000)),
    "10 both": list(runs(GATE, BOTH, (0.1, 0.3), updates=1000)),
    "10 proxy": list(runs(GATE[:2], PROXIES, (0.1,), updates=1000)),
    "11 gate, best rates": [
        *runs(GATE[::2], FIRST[:2], (0.1,), updates=1000, seeds=(1, 2)),
        *runs(GATE[1:2], FIRST[:1], (0.3,), updates=1000, seeds=(1, 2)),
        *runs(GATE[1:2], FIRST[1:2], (0.1,), updates=1000, seeds=(1, 2)),
        *runs(GATE, ("full",), (0.1,), updates=1000, seeds=(1, 2)),
    ],
    "11 gate, predicted": [
        *runs(GATE[2:], ("full predicted",), (0.3,), updates=1000, seeds=(1, 2)),
        *runs(GATE[2:], ("full predicted",), (0.3,), (True, False)),
        *runs(GATE[1:2], ("full predicted",), (0.3,), updates=1000, seeds=(1, 2)),
        *runs(GATE[1:2], ("full predicted",), (0.3,), (False,)),
        *runs(GATE[:1], ("full predicted",), (0.1,), updates=1000, seeds=(1, 2)),
        *runs(GATE[:1], ("full predicted",), (0.3,), (False,)),
    ],
    "11 batch normalization without warm-up": list(
        runs(GATE[1:], FIRST[:1], (0.3,), (False,)),
    ),
    "13 both, seeds": list(runs(GATE[:2], BOTH, (0.1, 0.3), updates=1000, seeds=(1, 2))),
    "13 zero sums alone": [
        *runs(GATE[1:], ("full zero sums", *BOTH), (0.3,), updates=1000),
        *runs(GATE[2:], ("full zero sums",), (0.3,), (False,), updates=1000),
    ],
    "13 both, no warm-up": list(
        runs(GATE, (*BOTH, FIRST[0]), (0.3,), (False,), updates=1000),
    ),
    "13 both, few rows": [
        *runs(("U-Net",), BOTH, (0.03, 0.01), batch=2, updates=1000),
        *runs(GATE[:1], BOTH, (0.03, 0.01), batch=4, updates=2000),
    ],
    "11 gate": list(runs(GATE, FIRST, RATES, updates=1000, seeds=SEEDS)),
    "12 gate without warm-up": list(
        runs(GATE, FIRST, RATES, (False,), updates=1000, seeds=SEEDS),
    ),
}
