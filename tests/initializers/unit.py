"""Whether layers have unit variance, and how nearly they can."""

from typing import Any

import numpy as np

from tests.initializers.models import preactivations

#: A float32 variance of thousands of numbers, seen again in float64 through up to 20 layers.
UNIT = {"rtol": 2e-5, "atol": 0.0}
#: The same with kernels and factors of 8 significant bits: a rounding of 2^-8 a layer, twice.
UNIT_BFLOAT16 = {"rtol": 3e-2, "atol": 0.0}


def assert_unit(found: Any, tolerance: dict[str, float] = UNIT) -> None:
    """These variances, of which there are some, are all one."""
    assert len(found) > 0
    np.testing.assert_allclose(np.asarray(found), 1, **tolerance)


def variances(params: Any, x: Any) -> list[float]:
    """Of each layer's w'x in `mlp`, over samples and units."""
    return [float(product.var()) for product, _ in preactivations(params, x)]
