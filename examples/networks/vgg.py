"""VGG with batch normalization (Simonyan and Zisserman 2015), Flax NNX, as torchvision has it."""

import jax
from flax import nnx

#: Channels in units of the width; None is a pooling.
LAYERS = (1, 1, None, 2, 2, None, 4, 4, None, 8, 8)


class VGG(nnx.Module):
    """Convolutions of 3 x 3, eight in four stages."""

    def __init__(
        self,
        rngs: nnx.Rngs,
        shape: tuple[int, ...],
        classes: int,
        width: int = 8,
        layers: tuple[int | None, ...] = LAYERS,
    ):
        inputs = shape[-1]
        features: list[nnx.Module | None] = []
        for layer in layers:
            if layer is None:
                features.append(None)
                continue
            features.append(
                nnx.Conv(
                    inputs,
                    layer * width,
                    (3, 3),
                    kernel_init=nnx.initializers.variance_scaling(2.0, "fan_out", "normal"),
                    rngs=rngs,
                )
            )
            features.append(nnx.BatchNorm(layer * width, momentum=0.9, rngs=rngs))
            inputs = layer * width
        self.features = nnx.List(features)
        self.fc = nnx.Linear(inputs, 8 * width, rngs=rngs)
        self.head = nnx.Linear(8 * width, classes, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns logits."""
        for layer in self.features:
            if layer is None:
                x = nnx.max_pool(x, (2, 2), strides=(2, 2))
            elif isinstance(layer, nnx.Conv):
                x = layer(x)
            else:
                x = nnx.relu(layer(x))
        return self.head(nnx.relu(self.fc(x.mean((1, 2)))))
