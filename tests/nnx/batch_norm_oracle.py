"""Batch normalization in float64 NumPy, forward and backward, group by group, from its formula."""

from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]


class Kind(NamedTuple):
    """Which halves of the normalization there are, as the layer's arguments of these names."""

    use_mean: bool = True
    use_variance: bool = True


FULL, MEAN_ONLY, VARIANCE_ONLY = Kind(), Kind(use_variance=False), Kind(use_mean=False)


class Result(NamedTuple):
    """The output, and the gradients of ``(cotangent * output).sum()``."""

    output: Array
    by_x: Array
    by_scale: Array
    by_bias: Array


def batch_norm(
    x: Any, scale: Any, bias: Any, cotangent: Any, kind: Kind, groups: int, epsilon: float
) -> Result:
    """With u = x - m, s = sqrt(var + eps) and g = cotangent gamma over N values of a unit:

    the gradient by x is (g - mean g) / s - (x - mu) mean(g u) / s^3, without the parts left out.
    """
    width = np.shape(x)[-1]
    scale, bias = np.asarray(scale, np.float64), np.asarray(bias, np.float64)
    parts = [
        _one(flat, scale, bias, r, kind, epsilon)
        for flat, r in zip(
            *(np.asarray(a, np.float64).reshape(groups, -1, width) for a in (x, cotangent)),
            strict=True,
        )
    ]
    output, by_x, by_scale, by_bias = zip(*parts, strict=True)
    shape = np.shape(x)
    return Result(
        np.reshape(output, shape), np.reshape(by_x, shape), np.sum(by_scale, 0), np.sum(by_bias, 0)
    )


def _one(x: Array, scale: Array, bias: Array, r: Array, kind: Kind, epsilon: float) -> Any:
    mean, gradient = x.mean(0), r * scale
    u = x - mean if kind.use_mean else x
    s = np.sqrt(x.var(0) + epsilon) if kind.use_variance else np.ones_like(mean)
    through_mean = gradient.mean(0) if kind.use_mean else 0
    through_variance = (x - mean) * (gradient * u).mean(0) / s**3 if kind.use_variance else 0
    by_x = (gradient - through_mean) / s - through_variance
    return scale * u / s + bias, by_x, (r * u / s).sum(0), r.sum(0)


def group_moments(x: Any, groups: int) -> tuple[Array, Array]:
    """The groups' averaged means and biased variances."""
    parts = np.asarray(x, np.float64).reshape(groups, -1, np.shape(x)[-1])
    return parts.mean(1).mean(0), parts.var(1).mean(0)
