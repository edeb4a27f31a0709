"""Flax Linen: a residual network with batch normalization."""

from typing import Any

import flax.linen as nn
import jax

from tests.models.model import CLASSES, IMAGES, Model
from tests.trees import quick_jit

KEY = jax.random.key(0)


class ResidualBlock(nn.Module):
    filters: int
    strides: int = 1

    @nn.compact
    def __call__(self, x: Any) -> Any:
        norm = lambda **options: nn.BatchNorm(use_running_average=False, **options)  # noqa: E731
        strides = (self.strides, self.strides)
        y = nn.relu(norm()(nn.Conv(self.filters, (3, 3), strides, use_bias=False)(x)))
        y = norm(scale_init=nn.initializers.ones)(nn.Conv(self.filters, (3, 3), use_bias=False)(y))
        if y.shape != x.shape:
            x = nn.Conv(self.filters, (1, 1), strides, use_bias=False, name="conv_proj")(x)
            x = norm(name="norm_proj")(x)
        return nn.relu(x + y)


class ResNet(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.Conv(4, (3, 3), use_bias=False, name="conv_init")(x)
        x = nn.relu(nn.BatchNorm(use_running_average=False, name="bn_init")(x))
        x = nn.max_pool(x, (2, 2), (2, 2))
        x = ResidualBlock(6, strides=2)(ResidualBlock(4)(x))
        return nn.Dense(CLASSES)(x.mean((1, 2)))


def _functional(module: nn.Module, x: Any) -> tuple[Any, Any]:
    """The model as a function of its parameters; new batch statistics are dropped."""
    variables = quick_jit(module.init)({"params": KEY, "dropout": KEY}, x)
    params = variables.pop("params")

    def apply(params: Any, x: Any) -> Any:
        variables_of_step, rngs = {"params": params, **variables}, {"dropout": KEY}
        return module.apply(variables_of_step, x, rngs=rngs, mutable=["batch_stats"])[0]

    return apply, params


def resnet() -> Model:
    apply, params = _functional(ResNet(), IMAGES)
    rules = (
        (r"[Cc]onv[^/]*/kernel$", (-4, -3, -2)),
        (r"^Dense_0/kernel$", (-2,)),
    )
    return Model(apply, params, (IMAGES,), rules, "^Dense_0/")
