"""Convolutions as products of matrices, which the probe of `examples/keeping` computes with."""

import jax
import numpy as np
import pytest

from examples.keeping.products import conv
from tests.draws import draw


@pytest.mark.kept("padding2-1-strides1", "padding2-4-strides0")
@pytest.mark.parametrize("window", [1, 3, 4])
@pytest.mark.parametrize("strides", [(1, 1), (2, 1)])
@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("padding", ["SAME", "VALID", [(1, 2), (0, 1)]])
def test_products_are_the_convolution(window, strides, groups, padding) -> None:
    x, kernel = draw(0, 2, 7, 8, 4), draw(1, window, window, 4 // groups, 4)
    options = {"feature_group_count": groups, "dimension_numbers": ("NHWC", "HWIO", "NHWC")}
    wanted = jax.lax.conv_general_dilated(x, kernel, strides, padding, **options)
    made = conv(x, kernel, strides, padding, feature_group_count=groups)
    np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-5)
