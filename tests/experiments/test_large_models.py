"""The published networks' sizes, from their structure."""

from functools import partial

import jax
import pytest
from flax import nnx

from experiments.config import Config
from experiments.errors import UserError
from experiments.models.registry import build
from jaxnorm import collect_preactivations, flax_layout, parameter_count, read
from jaxnorm.nnx import BatchNorm, functionalize

#: 32 x 32 colour images and ten classes, with batch normalization.
COUNTS = {
    # Ikami et al. 2021: three times three layers of 64, 128 and 256 channels.
    "cnn9": 9 * (3 * 64 + 2 * 64 * 64 + 64 * 128 + 2 * 128 * 128 + 128 * 256 + 2 * 256 * 256)
    + 2 * 3 * (64 + 128 + 256)
    + 257 * 10,
    # Luo et al. 2019, appendix B: of one pooling 16 x 16 positions are left.
    "cnn4": 9 * (3 * 32 + 32 * 32 + 32 * 64 + 64 * 64)
    + 16 * 16 * 64 * 512
    + 2 * (32 + 32 + 64 + 64 + 512)
    + 513 * 10,
    # He et al. 2016 on CIFAR: 11.2M; three 1 x 1 shortcuts, pre-activation.
    "resnet18": 11_172_170,
    # He et al. 2016: 25.6M, here of 10 and not 1,000 classes; 1.7M; Zagoruyko and Komodakis: 36.5M.
    "resnet50": 25_557_032 - 2_049 * 990,
    "resnet110": 1_727_962,
    "wrn28x10": 36_479_194,
    # Of the layers in their papers, 3 to 10 with kernels of 1, 3, 5 and 2: the sums of in x out x
    # size^2, scales and biases, and the classifier.
    "elu11": 192 * (75 + 192)
    + 240 * (9 * 192 + 240)
    + 260 * (4 * 240 + 260)
    + 280 * (4 * 260 + 280)
    + 300 * (4 * 280 + 300)
    + 2 * (2 * (192 + 240 + 260 + 280) + 2 * 300)
    + 301 * 10,
    "nin": 192 * 75
    + 160 * 192
    + 96 * 160
    + 192 * (25 * 96 + 192 + 192 + 25 * 192 + 192)
    + 2 * (192 + 160 + 96 + 5 * 192)
    + 193 * 10,
    # Kernels of 16 convolutions; scales and biases of their 5,504 channels; two dense layers of 512
    # with theirs; the classifier.
    "vgg19": 20_018_880 + 2 * 5_504 + 2 * (512 * 512 + 2 * 512) + 513 * 10,
}

#: The convolutions and dense layers, projections included; all of them are found by their names.
KERNELS = {
    "cnn9": 9 + 1,
    "cnn4": 6,
    "resnet18": 18 + 3,
    "resnet50": 50 + 4,
    "resnet110": 110,
    "wrn28x10": 26 + 3,
    "elu11": 11,
    "nin": 9,
    "vgg19": 19,
}


def network(name: str, shape: tuple[int, ...], norm: str | None = "bn") -> nnx.Module:
    settings = Config(model=name, channels=64)
    return nnx.eval_shape(lambda: build(settings, shape, 10, nnx.Rngs(0), norm=norm))


#: The deeper networks take seconds to trace; what they consist of is in the others.
SHALLOW = [name for name in COUNTS if name not in ("resnet50", "resnet110", "wrn28x10")]
ALL = [pytest.param(name, marks=[] if name in SHALLOW else [pytest.mark.slow]) for name in COUNTS]


@pytest.mark.parametrize("name", ALL)
def test_parameter_counts(name: str) -> None:
    params = functionalize(network(name, (32, 32, 3))).params
    assert parameter_count(params) == COUNTS[name]
    assert (
        len(jax.tree.leaves(flax_layout(params), is_leaf=lambda x: isinstance(x, tuple)))
        == (KERNELS[name])
    )


@pytest.mark.kept("cnn4", "resnet18", "nin")
@pytest.mark.parametrize("name", SHALLOW)
@pytest.mark.parametrize(
    "norm",
    [
        "bn",
        *(pytest.param(n, marks=pytest.mark.slow) for n in (None, "sl", "pn", "variance-only-bn")),
    ],
)
def test_logits_of_small_images(name: str, norm: str | None) -> None:
    check_logits(name, norm)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet50", "resnet110", "wrn28x10"])
def test_logits_of_deep_networks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.models.residual.ResNet110.UNITS", 2)
    check_logits(name, None)


def check_logits(name: str, norm: str | None) -> None:
    apply, params, state = functionalize(network(name, (20, 20, 1), norm))
    image = jax.ShapeDtypeStruct((2, 20, 20, 1), "float32")
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


def positions(name: str, side: int = 32) -> list[tuple[int, ...]]:
    """Returns the shapes of the hidden pre-activations of square images."""
    apply, params, state = functionalize(network(name, (side, side, 3), None))
    image = jax.ShapeDtypeStruct((1, side, side, 3), "float32")

    shapes = []

    def run(params, x):
        forward = partial(apply, train=False)
        layers = collect_preactivations(read(lambda p, x: forward(p, state, x), params, x))[1]
        shapes.extend(layer.shape[1:] for layer in layers.values())  # In execution order.

    jax.eval_shape(run, params, image)
    return shapes


def test_the_layers_of_clevert_et_al() -> None:
    sides = [32, 16, 16, 8, 8, 4, 4, 2, 2, 1]
    widths = [192, 192, 240, 240, 260, 260, 280, 280, 300, 300]
    expected = [(side, side, width) for side, width in zip(sides, widths, strict=True)]
    assert positions("elu11") == [*expected, (10,)]
    # Twice as large, two positions a side are left of the fifth block, which is pooled.
    larger = positions("elu11", 64)
    assert larger[8:] == [(4, 4, 300), (1, 1, 300), (10,)]


def test_nine_layers_are_pooled_twice() -> None:
    expected = [(side, side, 2048 // side) for side in (32, 16, 8) for _ in range(3)]
    assert positions("cnn9") == [*expected, (10,)]


def test_the_layers_of_the_network_in_network() -> None:
    sides, widths = [32, 32, 16, 16, 16, 8, 4, 8], [192, 160, 96, *[192] * 5]
    expected = [(side, side, width) for side, width in zip(sides, widths, strict=True)]
    assert positions("nin") == [*expected, (10,)]


def test_dropout_follows_activations_and_the_units_of_a_residual_network() -> None:
    settings = Config(channels=16)
    for name, places in (("cnn9", 9), ("resnet18", 8)):
        model = nnx.eval_shape(
            lambda name=name: build(
                settings.changed(model=name), (8, 8, 1), 10, nnx.Rngs(0), norm="bn", dropout=0.1
            )
        )
        layers = [m for _, m in nnx.iter_modules(model) if isinstance(m, nnx.Dropout)]
        assert [layer.rate for layer in layers] == [0.1] * places


def test_ghost_batches_reach_the_layers_of_batch_statistics_alone() -> None:
    settings = Config(model="mlp", depth=2, width=8, ghost_groups=4)
    for norm, groups in (("bn", [4, 4]), ("sl", [4, 4]), ("ln", [])):
        model = build(settings, (6,), 3, nnx.Rngs(0), norm=norm)
        layers = [m for _, m in nnx.iter_modules(model) if isinstance(m, BatchNorm)]
        assert [layer.groups for layer in layers] == groups
