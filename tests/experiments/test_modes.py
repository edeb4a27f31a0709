"""The dip test's level and power."""

import numpy as np

from experiments.papers.vcl.modes import LEVEL, critical_dip, multimodal


def test_two_modes_are_found_and_one_is_left_alone():
    random = np.random.default_rng(3)
    one = random.normal(size=(300, 40))
    two = one + 4 * random.integers(0, 2, size=one.shape)
    skewed = np.exp(one)
    assert multimodal(two).mean() > 0.9
    assert multimodal(one).mean() <= LEVEL
    assert multimodal(skewed).mean() <= LEVEL
    assert not multimodal(np.ones((300, 1)))
    assert 0.02 < critical_dip(300) < 0.05
