"""Haiku: `hk.nets.ResNet` with few channels."""

from typing import Any

import haiku as hk
import jax

from tests.models.model import CLASSES, IMAGES, Model
from tests.trees import quick_jit

KEY = jax.random.key(0)


def resnet() -> Model:
    def forward(x: Any) -> Any:
        network = hk.nets.ResNet(
            blocks_per_group=(1, 1, 1, 1),
            num_classes=CLASSES,
            bottleneck=False,
            channels_per_group=(4, 6, 6, 6),
            use_projection=(False, True, False, False),
            strides=(1, 1, 1, 1),
            initial_conv_config={"output_channels": 4, "kernel_shape": 3, "stride": 1},
            logits_config={"w_init": hk.initializers.VarianceScaling()},
        )
        # Its running averages raise floats to the power of an int32 count.
        with jax.numpy_dtype_promotion("standard"):
            return network(x, is_training=True)

    model = hk.without_apply_rng(hk.transform_with_state(forward))
    params, state = quick_jit(model.init)(KEY, IMAGES)
    rules = (
        (r"conv[^/]*/w$", (-4, -3, -2)),
        (r"logits/w$", (-2,)),
    )
    return Model(lambda p, x: model.apply(p, state, x)[0], params, (IMAGES,), rules, "logits/")
