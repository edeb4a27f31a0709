"""Table of batch normalizations, and each of them in float64 NumPy, from its formula."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxnorm.nnx import BatchNorm
from tests.draws import normal

WIDTH, ROWS, EPSILON, MOMENTUM = 3, 24, 1e-3, 0.8
OPTIONS = {"epsilon": EPSILON, "momentum": MOMENTUM}

SCALE, BIAS = normal(1, WIDTH), normal(2, WIDTH)
#: Running statistics, far from those of some batches and near those of others.
MEAN, VARIANCE = np.asarray([-1, 6, 30]), np.asarray([1.2, 1, 80])
#: Mask of rows: of eight devices with three rows each, some keep all, some a part, three none.
MASK = np.asarray([int(digit) for digit in "111111000000100011100000"], bool)


class Case(NamedTuple):
    """Options of a layer, and the mask and shape of its activations."""

    use_mean: bool = True
    use_variance: bool = True
    groups: int = 1
    use_scale: bool = True
    use_bias: bool = True
    masked: bool = False
    shape: tuple[int, ...] = (ROWS, WIDTH)

    def layer(self, **options: Any) -> BatchNorm:
        fields = self._asdict()
        del fields["masked"], fields["shape"]
        return with_values(BatchNorm(WIDTH, **OPTIONS | fields | options))

    @property
    def mask(self) -> Any:
        """True for the rows that count in the statistics."""
        return MASK if self.masked else np.ones(self.shape[0], bool)

    def call(self) -> dict[str, Any]:
        """Keyword arguments of the layer's call."""
        shape = (-1, *[1] * (len(self.shape) - 1))
        return {"mask": jnp.asarray(MASK.reshape(shape))} if self.masked else {}

    def activations(self, dtype: Any = jnp.float32) -> Any:
        """Units of different means and spreads, with a drift along the batch: groups differ."""
        drift = np.linspace(0, 3, self.shape[0]).reshape(-1, *[1] * (len(self.shape) - 1))
        units = np.linspace(0.5, 3, WIDTH)
        return jnp.asarray((normal(0, *self.shape) + drift) * units + 2 * units, dtype)


IMAGES = (4, 3, 2, WIDTH)
HALVES = {"full": {}, "mean": {"use_variance": False}, "variance": {"use_mean": False}}
CASES = {
    **{
        f"{half}, {groups} groups, {len(shape)} axes": Case(**options, groups=groups, shape=shape)
        for half, options in HALVES.items()
        for groups in (1, 4)
        for shape in ((ROWS, WIDTH), IMAGES)
    },
    "no scale": Case(use_scale=False),
    "no bias": Case(use_bias=False),
    "neither": Case(use_scale=False, use_bias=False),
    "masked": Case(masked=True),
    "masked, 4 groups": Case(masked=True, groups=4),
}


def with_values(layer: Any) -> Any:
    """Sets scale, bias and running statistics as if the layer had been trained."""
    values = {"scale": SCALE, "bias": BIAS, "mean": MEAN, "var": VARIANCE}
    for name, value in values.items():
        variable = getattr(layer, name)
        if variable is not None:
            variable[...] = jnp.asarray(value, variable[...].dtype)
    return layer


class Result(NamedTuple):
    """Output, gradients of ``(cotangent * output).sum()``, and the next running statistics."""

    output: Any
    by_x: Any
    by_scale: Any
    by_bias: Any
    mean: Any
    var: Any


def affine(case: Case) -> tuple[Any, Any]:
    return SCALE if case.use_scale else np.ones(WIDTH), BIAS if case.use_bias else np.zeros(WIDTH)


def in_numpy(case: Case, x: Any, cotangent: Any) -> Result:
    """With u = x - m, s = sqrt(var + eps), g = cotangent gamma over the N values of the mask:

    the gradient by x is g / s - (mean g / s + (x - mu) mean(g u) / s^3), the latter in the mask.
    """
    shape, parts, sizes = np.shape(x), [], []
    flat = [np.asarray(a, np.float64).reshape(case.groups, -1, WIDTH) for a in (x, cotangent)]
    positions = flat[0].size // WIDTH // len(case.mask)
    masks = np.repeat(case.mask, positions).reshape(case.groups, -1)
    scale, bias = affine(case)
    for a, back, mask in zip(*flat, masks, strict=True):
        counted = a[mask] if mask.any() else np.zeros((1, WIDTH))
        mean, variance, size = counted.mean(0), counted.var(0), max(mask.sum(), 1)
        u = a - mean if case.use_mean else a
        s = np.sqrt(variance + EPSILON) if case.use_variance else np.ones(WIDTH)
        g = back * scale
        through = g.sum(0) / size / s if case.use_mean else 0
        if case.use_variance:
            through = through + (a - mean) * (g * u).sum(0) / size / s**3
        by_x = g / s - np.where(mask[:, None], through, 0)
        x_hat = u / s
        sizes.append(mask.sum())
        parts.append((scale * x_hat + bias, by_x, (back * x_hat).sum(0), back.sum(0)))
        parts[-1] += (mean, variance)
    output, by_x, by_scale, by_bias, means, variances = map(np.stack, zip(*parts, strict=True))
    weights = np.asarray(sizes)[:, None] / np.sum(sizes)
    running = [
        MOMENTUM * old + (1 - MOMENTUM) * (weights * new).sum(0)
        for old, new in ((MEAN, means), (VARIANCE, variances))
    ]
    sums = by_scale.sum(0), by_bias.sum(0)
    return Result(output.reshape(shape), by_x.reshape(shape), *sums, *running)
