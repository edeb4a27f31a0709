"""The operations on images against Pillow's, which the published augmentation calls."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageOps

from experiments.augmentation.operations import OPERATIONS
from experiments.augmentation.policies import Policies, apply_policy, fast_autoaugment

# Compilations of arithmetic, one a test: not what another JAX would break.
pytestmark = pytest.mark.slow

SIDE = 16
#: Pillow truncates what is computed in fractions, and its luminance is in 16-bit integers.
ONE_LEVEL = 1.01


def picture() -> np.ndarray:
    """Draws bytes in a limited range, smooth enough to be interpolated."""
    grid = np.linspace(0, 3, SIDE)
    waves = [np.sin(grid[:, None] * k + grid * (3 - k)) for k in range(3)]
    noise = np.random.default_rng(0).normal(size=(SIDE, SIDE, 3))
    return np.clip(120 + 70 * np.stack(waves, -1) + 3 * noise, 20, 240).astype(np.uint8)


def ours(name: str, value: float = 0.0) -> np.ndarray:
    image = jnp.asarray(picture(), jnp.float32)
    run = jax.jit(OPERATIONS[name].apply)
    return np.asarray(run(jax.random.key(0), image, jnp.float32(value)))


def affine(image: Image.Image, *coefficients: float) -> Image.Image:
    kind, how = Image.Transform.AFFINE, Image.Resampling.BILINEAR
    return image.transform(image.size, kind, coefficients, resample=how)


Reference = Callable[[Image.Image, float], Image.Image]

LEVELS: dict[str, tuple[Reference, tuple[float, ...]]] = {
    "AutoContrast": (lambda image, _: ImageOps.autocontrast(image), (0.0,)),
    "Invert": (lambda image, _: ImageOps.invert(image), (0.0,)),
    "Equalize": (lambda image, _: ImageOps.equalize(image), (0.0,)),
    "Solarize": (lambda image, v: ImageOps.solarize(image, v), (0.0, 100.0, 256.0)),
    "Posterize": (lambda image, v: ImageOps.posterize(image, int(v)), (4.0, 5.7, 8.0)),
    "Contrast": (lambda image, v: ImageEnhance.Contrast(image).enhance(v), (0.1, 1.9)),
    "Color": (lambda image, v: ImageEnhance.Color(image).enhance(v), (0.1, 1.9)),
    "Brightness": (lambda image, v: ImageEnhance.Brightness(image).enhance(v), (0.1, 1.9)),
    "Sharpness": (lambda image, v: ImageEnhance.Sharpness(image).enhance(v), (0.1, 1.9)),
}
WARPS: dict[str, tuple[Reference, tuple[float, ...]]] = {
    "ShearX": (lambda image, v: affine(image, 1, v, 0, 0, 1, 0), (-0.3, 0.2)),
    "ShearY": (lambda image, v: affine(image, 1, 0, 0, v, 1, 0), (-0.2, 0.3)),
    "TranslateX": (lambda image, v: affine(image, 1, 0, v * SIDE, 0, 1, 0), (-0.45, 0.3)),
    "TranslateY": (lambda image, v: affine(image, 1, 0, 0, 0, 1, v * SIDE), (-0.3, 0.45)),
    "Rotate": (lambda image, v: image.rotate(v, Image.Resampling.BILINEAR), (-30.0, 20.0)),
}


#: Maps of levels, in whole numbers.
EXACT = ("Invert", "Equalize", "Solarize", "Posterize")


@pytest.mark.parametrize("name", LEVELS)
def test_levels(name: str) -> None:
    reference, values = LEVELS[name]
    for value in values:
        expected = np.asarray(reference(Image.fromarray(picture()), value), np.float32)
        # A whole level of a rounded luminance or blur is at most doubled by the factor 1.9 - 1.
        most = 0 if name in EXACT else 2 * ONE_LEVEL
        np.testing.assert_allclose(ours(name, value), expected, rtol=0, atol=most)
        assert np.abs(ours(name, value) - expected).mean() < ONE_LEVEL


@pytest.mark.parametrize("name", WARPS)
def test_warps(name: str) -> None:
    """Compares pixels whose four interpolated neighbours are inside the picture."""
    reference, values = WARPS[name]
    for value in values:
        expected = np.asarray(reference(Image.fromarray(picture()), value), np.float32)
        got = ours(name, value)
        mask = np.zeros((SIDE, SIDE), np.uint8)
        mask[1:-1, 1:-1] = 255
        inside = np.asarray(reference(Image.fromarray(mask), value)) == 255
        assert inside.mean() > 0.3
        np.testing.assert_allclose(got[inside], expected[inside], rtol=0, atol=ONE_LEVEL)
        # Of a straight border we have a blend with black where Pillow has nothing.
        outside = (expected == 0).all(-1)
        assert (got[outside] > 0).any(-1).sum() <= 4 * SIDE


def test_a_grey_square() -> None:
    changed = (ours("Cutout", 0.2) != picture()).any(-1)
    rows, columns = changed.any(1).sum(), changed.any(0).sum()
    assert 1 <= rows <= 4
    assert 1 <= columns <= 4
    assert changed.sum() == rows * columns


def policy(*steps: tuple[str, float, float]) -> Policies:
    names = list(OPERATIONS)
    operations, probabilities, levels = zip(*steps, strict=True)
    return Policies(
        jnp.array([names.index(name) for name in operations]),
        jnp.array(probabilities),
        jnp.array(levels),
    )


@pytest.fixture(scope="module")
def apply() -> Callable[..., jax.Array]:
    return jax.jit(jax.vmap(apply_policy, (0, None, None)))


def test_policies(apply: Callable[..., jax.Array]) -> None:
    """Checks probabilities, the order of the two operations, ranges of levels, and drawn signs."""
    image = jnp.asarray(picture(), jnp.float32)
    keys = jax.random.split(jax.random.key(0), 200)
    twice = apply(keys, image, policy(("Invert", 1.0, 0.3), ("Solarize", 1.0, 100 / 256)))
    inverted = 255.0 - picture()
    expected = np.where(inverted < 100, inverted, 255 - inverted)
    np.testing.assert_array_equal(twice, np.broadcast_to(expected, twice.shape))

    sometimes = apply(keys, image, policy(("Invert", 0.3, 0.0), ("Invert", 0.0, 0.0)))
    changed = (np.asarray(sometimes) != picture()).any((1, 2, 3))
    assert abs(changed.mean() - 0.3) < 4 * np.sqrt(0.3 * 0.7 / 200)

    # 0.75 is a shift of 0.225 of 16 pixels: 3.6.
    moved = np.asarray(apply(keys, image, policy(("TranslateX", 1.0, 0.75), ("Invert", 0.0, 0.0))))
    left, right = moved[:, :, 0].max((1, 2)) == 0, moved[:, :, -1].max((1, 2)) == 0
    assert np.array_equal(left, ~right)
    assert abs(left.mean() - 0.5) < 4 * np.sqrt(0.25 / 200)


def test_images_stay_standardized() -> None:
    """Inversions have a known result: the least and largest values change places."""
    pixels = np.stack([picture(), picture()[::-1]]).astype(np.float32)
    images = jnp.asarray((pixels - pixels.mean((0, 1, 2))) / pixels.std((0, 1, 2)))
    table = Policies(
        *(jnp.stack([each]) for each in policy(("Invert", 1.0, 0.0), ("Invert", 0.0, 0.0)))
    )
    got = jax.jit(lambda key, x: fast_autoaugment(key, x, table))(jax.random.key(0), images)
    images = np.asarray(images)
    black, white = images.min((0, 1, 2)), images.max((0, 1, 2))
    # Rounded to 256 levels: half of one.
    np.testing.assert_allclose(got, black + white - images, atol=0.51 * (white - black).max() / 255)
