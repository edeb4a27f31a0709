"""Networks of a user, as `--model FILE.py:NAME` names them."""

from flax import nnx


class Block(nnx.Module):
    def __init__(self, width, rngs):
        self.linear = nnx.Linear(width, width, use_bias=False, rngs=rngs)
        self.norm = nnx.BatchNorm(width, momentum=0.9, rngs=rngs)

    def __call__(self, x):
        return nnx.relu(x + self.norm(self.linear(x)))


class Residual(nnx.Module):
    """Two residual branches; the classifier is not called head."""

    WIDTH = 8

    def __init__(self, rngs, shape, classes):
        self.stem = nnx.Linear(shape[-1], self.WIDTH, rngs=rngs)
        self.blocks = nnx.List([Block(self.WIDTH, rngs), Block(self.WIDTH, rngs)])
        self.answer = nnx.Linear(self.WIDTH, classes, rngs=rngs)

    def __call__(self, x):
        x = nnx.relu(self.stem(x))
        for block in self.blocks:
            x = block(x)
        return self.answer(x)


class Wide(Residual):
    WIDTH = 32


def starting_at_zero(rngs, shape, classes):
    network = Residual(rngs, shape, classes)
    zeros = nnx.initializers.zeros
    network.stem = nnx.Linear(shape[-1], network.WIDTH, kernel_init=zeros, rngs=rngs)
    return network


def plain(rngs, shape, classes):
    return nnx.Linear(shape[-1], classes, rngs=rngs)


def one_logit_more(rngs, shape, classes):
    return nnx.Linear(shape[-1], classes + 1, rngs=rngs)


def no_module(rngs, shape, classes):
    return lambda x: x[:, :classes]


def no_classifier(rngs, shape, classes):
    layers = nnx.Linear(shape[-1], 2 * classes, rngs=rngs), lambda x: x[:, :classes]
    return nnx.Sequential(*layers)


class Pixels(nnx.Module):
    """Logits at each pixel."""

    def __init__(self, rngs, shape, classes):
        self.conv = nnx.Conv(shape[-1], 4, (3, 3), rngs=rngs)
        self.norm = nnx.BatchNorm(4, momentum=0.9, rngs=rngs)
        self.answer = nnx.Conv(4, classes, (1, 1), rngs=rngs)

    def __call__(self, x):
        return self.answer(nnx.relu(self.norm(self.conv(x))))


class Average(Pixels):
    """Logits of the whole image."""

    def __call__(self, x):
        return super().__call__(x).mean((1, 2))
