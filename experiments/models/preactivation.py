"""Residual networks with full pre-activation, for small images."""

from collections.abc import Sequence

from flax import nnx

from experiments.models.sizes import Images, Logits, NetworkSizes
from experiments.models.style import Nonlinearity, Style


class Unit(nnx.Module):
    """x + conv(act(conv(act(x)))); if the shape changes, the shortcut convolves act(x).

    Without a normalizer each convolution has a bias. Dropout, if any, follows the sum, as in Luo et
    al. 2019, not each activation.
    """

    def __init__(self, before: int, after: int, stride: int, style: Style, rngs: nnx.Rngs):
        options = style.linear_options(rngs)
        inner = style._replace(dropout=0.0)
        self.first = Nonlinearity(before, inner, rngs)
        self.conv1 = nnx.Conv(before, after, (3, 3), stride, **options)
        self.second = Nonlinearity(after, inner, rngs)
        self.conv2 = nnx.Conv(after, after, (3, 3), **options)
        changes = before != after or stride != 1
        self.shortcut = nnx.Conv(before, after, (1, 1), stride, **options) if changes else None
        self.add = style.add
        self.dropout = nnx.Dropout(style.dropout, rngs=rngs) if style.dropout else None

    def __call__(self, x: Images) -> Images:
        active = self.first(x)
        branch = self.conv2(self.second(self.conv1(active)))
        x = self.add(x if self.shortcut is None else self.shortcut(active), branch)
        return x if self.dropout is None else self.dropout(x)


class PreActivationNetwork(nnx.Module):
    """A convolution, stages of pre-activation units, pooling, a classifier.

    Each stage except the first halves the sides.

    Args:
        sizes: the shape of an image, and the number of classes.
        widths: the channels of the first convolution and of each stage.
        units: the number of units per stage.
        style: normalizers and activation before each convolution except the first.
        rngs: the random streams of the initial parameters.

    Source: He et al. 2016 (identity mappings).
    """

    def __init__(
        self, sizes: NetworkSizes, widths: Sequence[int], units: int, style: Style, rngs: nnx.Rngs
    ):
        stem, *stages = widths
        options = style.linear_options(rngs)
        self.stem = nnx.Conv(sizes.shape[-1], stem, (3, 3), **options)
        before, blocks = stem, []
        for stage, width in enumerate(stages):
            for unit in range(units):
                stride = 2 if stage and not unit else 1
                blocks.append(Unit(before, width, stride, style, rngs))
                before = width
        self.units = nnx.List(blocks)
        self.last = Nonlinearity(before, style._replace(dropout=0.0), rngs)
        self.head = nnx.Linear(before, sizes.num_classes, rngs=rngs)

    def __call__(self, x: Images) -> Logits:
        x = self.stem(x)
        for unit in self.units:
            x = unit(x)
        return self.head(self.last(x).mean((1, 2)))


def resnet18(sizes: NetworkSizes, style: Style, rngs: nnx.Rngs) -> PreActivationNetwork:
    """Makes four stages of two units, of 1, 2, 4 and 8 times ``channels`` channels (papers: 64).

    Args:
        sizes: the shape of an image, the number of classes, and the channels of the first stage.
        style: normalizers and activation before each convolution except the first.
        rngs: the random streams of the initial parameters.

    Source: He et al. 2016 (identity mappings); Kutsuna 2019, section 6.2.
    """
    widths = [sizes.channels * factor for factor in (1, 1, 2, 4, 8)]
    return PreActivationNetwork(sizes, widths, 2, style, rngs)


#: The width of the first stage over that of the first convolution.
WIDENING = 10


def wrn28x10(sizes: NetworkSizes, style: Style, rngs: nnx.Rngs) -> PreActivationNetwork:
    """Makes three stages of four units of 160, 320 and 640 channels, after a convolution to 16.

    Args:
        sizes: the shape of an image, the number of classes, and the channels.
        style: normalizers and activation before each convolution except the first.
        rngs: the random streams of the initial parameters.

    Source: Zagoruyko and Komodakis 2016, table 1; Ikami et al. 2021, section 4.1.
    """
    stem = max(1, sizes.channels // 4)
    widths = [stem, *(WIDENING * stem * factor for factor in (1, 2, 4))]
    return PreActivationNetwork(sizes, widths, 4, style, rngs)
