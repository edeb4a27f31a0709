"""What is known of the accelerators: how fast they are, and what their compilers ask about them."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Card(NamedTuple):
    """One accelerator.

    Attributes:
        bandwidth: bytes a second to and from its memory (HBM).
        bfloat16: operations a second in matrix products of bfloat16, without sparsity.
        float32: the same of float32, in the precision that JAX takes if none is asked for.
        facts: of a GPU, what XLA's compiler asks about it; a TPU's compiler knows its own.
    """

    bandwidth: float
    bfloat16: float
    float32: float
    facts: str = ""

    def seconds(self, hbm_bytes: float, flops: float, dtype: str) -> float:
        """The roofline: a step takes at least as long as its bytes, and as its operations."""
        peak = self.bfloat16 if dtype == "bfloat16" else self.float32
        return max(hbm_bytes / self.bandwidth, flops / peak)


def _tpu(bandwidth: float, peak: float) -> Card:
    """A TPU multiplies float32 in one pass of bfloat16, JAX's default precision."""
    return Card(bandwidth, peak, peak)


_LIMITS = """
  threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152
  threads_per_core_limit: 2048 block_dim_limit_x: 2147483647 block_dim_limit_y: 65535
  block_dim_limit_z: 65535 registers_per_core_limit: 65536 registers_per_block_limit: 65536"""


def _gpu(name: str, peaks: tuple[float, float], bandwidth: int, facts: str) -> Card:
    """A GPU of NVIDIA; its float32 products are in TF32, JAX's default precision."""
    text = f"""gpu_device_info {{{_LIMITS} memory_bandwidth: {bandwidth} {facts} }}
platform_name: "CUDA" dnn_version_info {{ major: 9 minor: 10 patch: 0 }}
device_description_str: "{name}" """
    return Card(bandwidth, *peaks, text)


#: Bandwidths and peaks: https://cloud.google.com/tpu/docs/v5e, v5p and v4 ("key specifications").
TPUS: Mapping[str, Card] = MappingProxyType(
    {"v4": _tpu(1228e9, 275e12), "v5e": _tpu(819e9, 197e12), "v5p": _tpu(2765e9, 459e12)}
)

_HOPPER = """core_count: 132 fpus_per_core: 128 clock_rate_ghz: 1.98 l2_cache_size: 52428800
  shared_memory_per_core: 233472 shared_memory_per_block_optin: 232448
  cuda_compute_capability { major: 9 }"""

#: Facts: XLA's own, xla/backends/gpu/target_config/specs/{a100_sxm_80,h100_sxm,h200}.txtpb in
#: https://github.com/openxla/xla. Peaks: NVIDIA's data sheets of the A100, H100 (SXM) and H200.
GPUS: Mapping[str, Card] = MappingProxyType(
    {
        "a100": _gpu(
            "NVIDIA A100-SXM4-80GB",
            (312e12, 156e12),
            2039040000000,
            """core_count: 108 fpus_per_core: 64 clock_rate_ghz: 1.41 l2_cache_size: 41943040
  shared_memory_per_core: 167936 shared_memory_per_block_optin: 166912
  device_memory_size: 85100068864 cuda_compute_capability { major: 8 }""",
        ),
        "h100": _gpu(
            "NVIDIA H100 80GB HBM3",
            (989.4e12, 494.7e12),
            3352320000000,
            f"{_HOPPER} device_memory_size: 84942979072",
        ),
        "h200": _gpu(
            "NVIDIA H200 141GB HBM3e",
            (989.4e12, 494.7e12),
            4800000000000,
            f"{_HOPPER} device_memory_size: 151397597184",
        ),
    }
)
