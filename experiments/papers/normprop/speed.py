"""Section 5.6: what an epoch costs with NormProp and with BN."""

from experiments.papers.speed import Speed, speed_item

#: The paper has no time without normalization: 84 s against 96 s, so its baseline here is NormProp.
_RATIOS = {"normprop": {"Titan X, NormProp = 1": 1.0}, "bn": {"Titan X, NormProp = 1": 96 / 84}}

ITEM = speed_item(
    "normprop/speed",
    "time of training steps of the network in network",
    "an epoch of CIFAR-10 takes 84 s with NormProp and 96 s with BN",
    _RATIOS,
    Speed("nin", "relu", batch_size=50),
)
