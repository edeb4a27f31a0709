"""The augmentation against a restatement, image by image, in NumPy."""

import jax
import numpy as np

from experiments.data import crop_and_flip, draw_crops, pad_crop_flip


def crop_by_hand(image, top, left, flip, padding):
    height, width, _ = image.shape
    result = np.zeros_like(image)
    for row in range(height):
        for column in range(width):
            above, before = row + top - padding, column + left - padding
            if 0 <= above < height and 0 <= before < width:
                result[row, column] = image[above, before]
    return result[:, ::-1] if flip else result


def test_crops_and_flips():
    images = np.random.default_rng(0).normal(size=(20, 5, 7, 2)).astype(np.float32)
    offsets, flips = draw_crops(jax.random.key(1), 20, 2)
    got = crop_and_flip(images, offsets, flips, 2)
    rows = zip(images, np.asarray(offsets), np.asarray(flips), strict=True)
    expected = [crop_by_hand(image, *offset, flip, 2) for image, offset, flip in rows]
    np.testing.assert_array_equal(got, np.stack(expected))


def test_draws_are_uniform():
    offsets, flips = draw_crops(jax.random.key(0), 5000, 2)
    for axis in range(2):
        shares = np.bincount(np.asarray(offsets)[:, axis], minlength=5) / 5000
        np.testing.assert_allclose(shares, 0.2, atol=0.03)
    assert abs(np.asarray(flips).mean() - 0.5) < 0.03
    assert np.corrcoef(np.asarray(offsets).T)[0, 1] < 0.05


def test_the_shift_is_an_eighth_of_the_side():
    ones = np.ones((200, 32, 32, 1), np.float32)
    shifted = np.asarray(pad_crop_flip(jax.random.key(0), ones))
    covered = shifted.max(2).sum((1, 2))
    assert covered.min() == 28
    assert covered.max() == 32
