"""Networks at the widths of `experiments/results/networks/whole`: first stages of 16 channels.

``compare --model examples/networks/small.py:mobilenet`` trains one of them.
"""

from functools import partial

from examples.networks.cifar import BottleneckNet
from examples.networks.densenet import DenseNet
from examples.networks.inception_nnx import Inception
from examples.networks.mbconv import MBConvNet
from examples.networks.mobilenet import MobileNetV2
from examples.networks.residual_unet import PooledResidualUNet, ResidualUNet
from examples.networks.resnet18 import ResNet18
from examples.networks.unet import PixelUNet, UNet

mobilenet = partial(MobileNetV2, width=16)
bottleneck = partial(BottleneckNet, width=8, blocks=(2, 2, 2))
densenet = partial(DenseNet, growth=8)
inception = partial(Inception, width=8)
unet = partial(UNet, width=16)
gated_mbconv = partial(MBConvNet, width=16)
residual_unet = partial(PooledResidualUNet, width=16)
resnet18 = partial(ResNet18, width=16)

# Logits per pixel.
unet_pixels = partial(PixelUNet, width=16)
residual_unet_pixels = partial(ResidualUNet, width=16)
