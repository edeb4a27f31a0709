"""Table 1: what 100 iterations cost, without normalization, with BN and with the loss."""

from experiments.papers.speed import Speed, speed_item

#: Seconds of 100 iterations on CIFAR-100 without, with BN, with VCL: 367.1, 702.3 and 400.1 on the
#: CPU; 29.2, 31.6 and 30.3 on the GPU.
_RATIOS = {
    "bn": {"Intel i7": 702.3 / 367.1, "Volta": 31.6 / 29.2},
    "vcl": {"Intel i7": 400.1 / 367.1, "Volta": 30.3 / 29.2},
}

ITEM = speed_item(
    "vcl/tab1",
    "time of training steps of the 11-layer ELU network",
    "BN costs 1.91 and VCL 1.09 of the network alone on a CPU; 1.08 and 1.04 on a GPU",
    _RATIOS,
    Speed("elu11", "elu", batch_size=250),
)
