"""The published networks: their sizes, as structure alone."""

import jax
import pytest
from flax import nnx

from experiments._errors import UserError
from experiments.models import ModelSettings, build
from jaxnorm.nnx import functionalize

#: 32 x 32 colour images and ten classes, with batch normalization.
COUNTS = {
    # He et al. 2016 on CIFAR: 11.2M; three 1 x 1 shortcuts, pre-activation.
    "resnet18": 11_172_170,
    # Kernels of 16 convolutions; scales and biases of their 5,504 channels; two dense layers of 512
    # with theirs; the classifier.
    "vgg19": 20_018_880 + 2 * 5_504 + 2 * (512 * 512 + 2 * 512) + 513 * 10,
}


def network(name: str, shape: tuple[int, ...], norm: str | None = "bn") -> nnx.Module:
    settings = ModelSettings(name)
    return nnx.eval_shape(lambda: build(settings, shape, 10, nnx.Rngs(0), norm=norm))


@pytest.mark.parametrize("name", COUNTS)
def test_parameter_counts(name: str) -> None:
    params = functionalize(network(name, (32, 32, 3))).params
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == COUNTS[name]


@pytest.mark.parametrize("name", [*COUNTS, "cnn9"])
@pytest.mark.parametrize("norm", [None, "bn", "sl"])
def test_logits_of_small_images(name: str, norm: str | None) -> None:
    apply, params, state = functionalize(network(name, (8, 8, 1), norm))
    image = jax.ShapeDtypeStruct((2, 8, 8, 1), "float32")
    logits, _ = jax.eval_shape(lambda p, s, x: apply(p, s, x, train=True), params, state, image)
    assert logits.shape == (2, 10)


def test_fifty_sigmoid_layers() -> None:
    params = functionalize(network("sigmoid50", (64,), None)).params
    assert len(params["blocks"]) == 50
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == (
        (64 + 1) * 256 + 49 * (256 + 1) * 256 + (256 + 1) * 10
    )


@pytest.mark.parametrize("name", COUNTS)
def test_rows_that_are_no_images_are_refused(name: str) -> None:
    with pytest.raises(UserError, match=f"{name} needs images"):
        network(name, (64,))
