"""The augmentations against NumPy, row by row, and the distributions of their draws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from experiments.augmentation.clouds import jitter, rotate, scale_shift_and_jitter
from experiments.augmentation.images import (
    crop_and_flip,
    cutout,
    draw_crops,
    draw_resized_crops,
    flip,
    pad_crop_flip,
    resized_crop,
)
from experiments.augmentation.table import AUGMENTATIONS, find_augmentation
from experiments.errors import UserError

# Compilations of arithmetic, one a test: not what another JAX would break.
pytestmark = pytest.mark.slow


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
    got = crop_and_flip(jnp.asarray(images), offsets, flips, 2)
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
    ones = jnp.ones((200, 32, 32, 1))
    shifted = np.asarray(pad_crop_flip(jax.random.key(0), ones))
    covered = shifted.max(2).sum((1, 2))
    assert covered.min() == 28
    assert covered.max() == 32


def test_half_of_the_images_are_mirrored_and_nothing_else():
    images = np.random.default_rng(0).normal(size=(400, 2, 3, 1)).astype(np.float32)
    got = np.asarray(flip(jax.random.key(0), jnp.asarray(images)))
    mirrored = (got == images[:, :, ::-1]).all((1, 2, 3))
    assert (mirrored | (got == images).all((1, 2, 3))).all()
    assert abs(mirrored.mean() - 0.5) < 4 * np.sqrt(0.25 / 400)


@pytest.mark.parametrize(("side", "size", "hole"), [(32, None, 16), (9, 3, 3)])
def test_cutout(side, size, hole):
    """Each hole is a square that the borders may cut; its centre is uniform over all pixels."""
    rows = 2000
    holes = np.asarray(cutout(jax.random.key(0), jnp.ones((rows, side, side, 2)), size)) == 0
    assert (holes[..., 0] == holes[..., 1]).all()
    tall, wide = holes[..., 0].any(2), holes[..., 0].any(1)
    np.testing.assert_array_equal(holes[..., 0], tall[:, :, None] & wide[:, None])
    for line in (tall, wide):
        # In one piece, of all lengths from half a hole at a border to a whole one.
        assert (
            np.abs(np.diff(np.pad(line, ((0, 0), (1, 1))).astype(int), axis=1)).sum(1) == 2
        ).all()
        assert set(line.sum(1)) == set(range(hole - hole // 2, hole + 1))
        # A pixel is in the hole for as many centres as a hole has, away from the borders.
        share = hole / side
        assert abs(line[:, side // 2].mean() - share) < 4 * np.sqrt(share * (1 - share) / rows)


def test_resized_crops_are_those_of_pillow():
    """Pillow's bilinear resizing of a box is antialiased too; borders use pixels outside of it."""
    images = np.random.default_rng(0).normal(size=(3, 8, 12, 1)).astype(np.float32)
    corners = np.array([[0, 0], [2.5, 1.25], [4, 3]], np.float32)
    sizes = np.array([[8, 12], [5, 10], [2, 3]], np.float32)
    got = jax.jit(resized_crop)(images, corners, sizes)
    for row in range(3):
        (top, left), (height, width) = corners[row], sizes[row]
        whole = Image.fromarray(images[row, ..., 0])
        box = tuple(float(edge) for edge in (left, top, left + width, top + height))
        expected = np.asarray(whole.resize((12, 8), Image.Resampling.BILINEAR, box))
        inner = slice(1, -1) if row else slice(None)
        np.testing.assert_allclose(
            got[row, inner, inner, 0], expected[inner, inner], rtol=0, atol=1e-5
        )


def test_draws_of_resized_crops():
    corners, sizes = map(np.asarray, draw_resized_crops(jax.random.key(0), 4000, 40, 60))
    assert (corners >= 0).all()
    assert (corners + sizes <= np.array([40, 60]) + 1e-3).all()
    whole = (sizes < np.array([40, 60])).all(1)
    area, ratio = sizes.prod(1)[whole] / 2400, sizes[whole, 1] / sizes[whole, 0]
    assert area.min() >= 0.08 - 1e-6
    assert ratio.min() >= 3 / 4 - 1e-5
    assert ratio.max() <= 4 / 3 + 1e-5
    # Half of the area has room for every ratio up to 4 / 3, and the share is uniform on [0.08, 1].
    below = (0.3 - 0.08) / 0.92
    share = (sizes.prod(1) < 0.3 * 2400).mean()
    assert abs(share - below) < 4 * np.sqrt(below * (1 - below) / 4000)


def clouds():
    return np.random.default_rng(0).normal(size=(5, 200, 3)).astype(np.float32)


def test_clouds_turn_about_the_up_axis():
    x = clouds()
    turned = np.asarray(rotate(jnp.asarray(x), jnp.full(5, jnp.pi / 2)))
    np.testing.assert_allclose(turned, np.stack([x[..., 2], x[..., 1], -x[..., 0]], -1), atol=1e-6)
    got = np.asarray(AUGMENTATIONS["points"].apply(jax.random.key(0), jnp.asarray(x)))
    # The noise alone changes heights and distances from the axis, at most 0.05 a coordinate.
    assert np.abs(got[..., 1] - x[..., 1]).max() <= 0.0501
    distance = [np.hypot(each[..., 0], each[..., 2]) for each in (got, x)]
    assert np.abs(distance[0] - distance[1]).max() <= 0.0501 * np.sqrt(2)
    angles = [np.arctan2(each[..., 0], each[..., 2]) for each in (got, x)]
    turns = np.median(np.mod(angles[0] - angles[1], 2 * np.pi), 1)
    assert np.ptp(turns) > 0.5


def test_jitter():
    noise = np.asarray(jitter(jax.random.key(0), jnp.zeros((5, 4000, 3)), 0.01, 0.02))
    assert np.abs(noise).max() == np.float32(0.02)
    share = 0.0455  # Of a Gaussian beyond two standard deviations.
    assert abs((np.abs(noise) == noise.max()).mean() - share) < 4 * np.sqrt(share / noise.size)


def test_clouds_are_scaled_and_shifted_by_coordinate():
    x = clouds()
    got = np.asarray(scale_shift_and_jitter(jax.random.key(0), jnp.asarray(x)))
    for row in range(5):
        for axis in range(3):
            factor, shift = np.polyfit(x[row, :, axis], got[row, :, axis], 1)
            # The noise moves the fit of 200 points by about 0.01 / sqrt(200).
            assert 2 / 3 - 0.004 < factor < 3 / 2 + 0.004
            assert abs(shift) < 0.204


@pytest.mark.parametrize("name", [name for name in AUGMENTATIONS if name != "none"])
def test_every_augmentation_keeps_shapes_and_needs_its_own_kind_of_rows(name):
    shape = (8, 8, 3) if AUGMENTATIONS[name].rank == 3 else (30, 3)
    augment = find_augmentation(name, "toy", shape)
    rows = jax.ShapeDtypeStruct((4, *shape), jnp.float32)
    got = jax.eval_shape(augment, jax.random.key(0), rows)
    assert (got.shape, got.dtype) == (rows.shape, rows.dtype)
    with pytest.raises(UserError, match=rf"toy has rows of shape \(6,\).*augmented by {name}"):
        find_augmentation(name, "toy", (6,))


def test_no_augmentation_changes_nothing():
    rows = jnp.ones((2, 6))
    assert find_augmentation("none", "toy", (6,))(jax.random.key(0), rows) is rows
