"""1-D residual network for signals, with dilated convolutions, Equinox."""

import equinox as eqx
import jax
from jax import random


class ConvNorm(eqx.Module):
    """Convolution and batch normalization; without the normalization, with a bias."""

    conv: eqx.nn.Conv1d
    norm: eqx.nn.BatchNorm | None

    def __init__(self, inputs, outputs, kernel, batch_norm, key, stride=1, dilation=1):
        self.conv = eqx.nn.Conv1d(
            inputs,
            outputs,
            kernel,
            stride,
            padding=dilation * (kernel // 2),
            dilation=dilation,
            use_bias=not batch_norm,
            key=key,
        )
        self.norm = (
            eqx.nn.BatchNorm(outputs, "batch", momentum=0.9, mode="batch") if batch_norm else None
        )

    def __call__(self, x, state):
        """Returns pre-activations of one signal, (channels, length), and the state."""
        x = self.conv(x)
        return (x, state) if self.norm is None else self.norm(x, state)


class Block(eqx.Module):
    """Two dilated convolutions and a shortcut."""

    first: ConvNorm
    second: ConvNorm
    shortcut: ConvNorm | None

    def __init__(self, inputs, outputs, stride, dilation, batch_norm, key):
        keys = random.split(key, 3)
        self.first = ConvNorm(inputs, outputs, 5, batch_norm, keys[0], stride, dilation)
        self.second = ConvNorm(outputs, outputs, 5, batch_norm, keys[1], dilation=dilation)
        self.shortcut = (
            ConvNorm(inputs, outputs, 1, batch_norm, keys[2], stride)
            if inputs != outputs or stride != 1
            else None
        )

    def __call__(self, x, state):
        """Returns the activations of the next block, and the state."""
        y, state = self.first(x, state)
        y, state = self.second(jax.nn.relu(y), state)
        if self.shortcut is not None:
            x, state = self.shortcut(x, state)
        return jax.nn.relu(x + y), state


class SignalResNet(eqx.Module):
    """Three stages of two blocks with dilations of 1 and 2."""

    stem: ConvNorm
    blocks: list[Block]
    head: eqx.nn.Linear

    def __init__(self, channels, classes, batch_norm, key, width=8):
        keys = iter(random.split(key, 8))
        self.stem = ConvNorm(channels, width, 7, batch_norm, next(keys))
        self.blocks, inputs = [], width
        for stage in range(3):
            outputs = width * 2**stage
            stride = 2 if stage else 1
            self.blocks.append(Block(inputs, outputs, stride, 1, batch_norm, next(keys)))
            self.blocks.append(Block(outputs, outputs, 1, 2, batch_norm, next(keys)))
            inputs = outputs
        self.head = eqx.nn.Linear(inputs, classes, key=next(keys))

    def __call__(self, x, state):
        """Returns logits of one signal, (channels, length), and the state."""
        x, state = self.stem(x, state)
        x = jax.nn.relu(x)
        for block in self.blocks:
            x, state = block(x, state)
        return self.head(x.mean(1)), state
