"""The full presets of the papers' items against the numbers of the papers, without training."""

import re
from dataclasses import asdict, fields
from functools import cache

import jax.numpy as jnp
import pytest

from experiments.config import Config
from experiments.methods.optimizer import MOMENTUM, schedule_of
from experiments.methods.table import METHODS
from experiments.papers.cwo.signal import KEEPING
from experiments.papers.items import ITEMS
from experiments.papers.settings import named
from experiments.papers.sizes import SHAPES, full_cells, functional_of
from jaxnorm import parameter_count

#: Items, the cells by a regular expression, and what the paper states of them. A field is one of
#: the protocol, or of a part of the method.
STATED = [
    # Littwin and Wolf 2018, section 3 and its tables; table 3 has n = 2, the text n = 5.
    ("vcl/fig2", "", {"priors": (0.1, 0.25)}),
    ("vcl/tab1", "", {"model": "elu11", "activation": "elu", "batch_size": 250}),
    ("vcl/tab2", "", {"epochs": 500, "channels": 64, "augment": "crop-flip"}),
    ("vcl/tab2", "^ReLU", {"activation": "relu"}),
    ("vcl/tab2", "^LReLU", {"activation": "leaky_relu_0.2"}),
    ("vcl/tab2", "^ELU", {"activation": "elu"}),
    *(("vcl/tab2", f"n = {n}", {"sample_size": n}) for n in (2, 3, 5, 7, 9)),
    ("vcl/tab2 vcl/tab3", "", {"model": "elu11", "batch_size": 250, "learning_rate": 0.05}),
    ("vcl/tab2 vcl/tab3", "", {"weight_decay": 1e-4}),
    ("vcl/tab2 vcl/tab3", "vcl", {"vcl_weight": 0.01, "clip": 1.0}),
    ("vcl/tab3", "", {"epochs": 250, "channels": 128, "activation": "elu"}),
    ("vcl/tab3", "vcl", {"sample_size": 2}),
    ("vcl/tab4 vcl/tab5 vcl/fig3", "", {"width": 256, "depths": (4, 8, 16), "epochs": 500}),
    ("vcl/tab4 vcl/tab5 vcl/fig3", "", {"batch_size": 20, "learning_rate": 0.01, "window": 10}),
    ("vcl/tab4 vcl/tab5 vcl/fig3", "", {"head_dropout": 0.5, "alpha_dropout": 0.05}),
    ("vcl/tab4 vcl/tab5 vcl/fig3", "", {"sample_size": 10, "vcl_weight": 0.01}),
    # Kutsuna 2019, sections 2 to 4 and 6.
    ("lcw/fig1", "", {"units": 100, "samples": 100}),
    ("lcw/fig2", "", {"depth": 10, "epochs": 10}),
    ("lcw/fig3", "", {"depth": 10}),
    ("lcw/fig4", "", {"depth": 20, "samples": 100}),
    ("lcw/fig5 lcw/tab1 lcw/fig6", "", {"batch_size": 128, "learning_rate": 0.1}),
    ("lcw/fig5 lcw/tab1 lcw/fig6", "", {"augment": "crop-flip"}),
    ("lcw/fig5", "", {"model": "sigmoid50", "epochs": 100, "weight_decay": 1e-4}),
    ("lcw/tab1 lcw/fig6", "", {"weight_decay": 5e-4, "channels": 64, "activation": "relu"}),
    ("lcw/tab1", "", {"last": 10}),
    ("lcw/tab1", "VGG19", {"model": "vgg19"}),
    ("lcw/tab1", "ResNet18", {"model": "resnet18"}),
    ("lcw/tab1", "CIFAR-10$", {"epochs": 300}),
    ("lcw/tab1 lcw/fig6", "CIFAR-100$", {"epochs": 500}),
    # Ikami et al. 2021, sections 3.1, 3.3 and 4.
    ("cwo/tab1", "CNN", {"model": "cnn9", "learning_rate": 0.1, "weight_decay": 1e-3}),
    ("cwo/tab1", "ResNet-110", {"model": "resnet110", "weight_decay": 1e-3}),
    ("cwo/tab1", "WRN", {"model": "wrn28x10", "weight_decay": 5e-3}),
    ("cwo/tab1", "ResNet-110|WRN", {"learning_rate": 0.2}),
    ("cwo/tab1", "Ours.*CNN", {"grows": False}),
    ("cwo/tab1", "Ours.*(ResNet-110|WRN)", {"grows": True, "noise": 1.0}),
    ("cwo/tab1", "standard", {"augment": "crop-flip"}),
    ("cwo/tab1", "FastAA", {"augment": "fast-autoaugment-cutout"}),
    ("cwo/tab1 cwo/tab2 cwo/tab3 cwo/tab4 cwo/fig2", "", {"epochs": 200, "rate_schedule": ()}),
    ("cwo/tab1 cwo/tab2 cwo/tab3 cwo/tab4", "Ours|sphere|both|sigma", {"squared_radius": 2.0}),
    ("cwo/tab2 cwo/tab3 cwo/tab4 cwo/fig2", "", {"model": "wrn28x10", "weight_decay": 5e-3}),
    ("cwo/tab2", "B = 4,", {"batch_size": 4, "learning_rate": 0.2 / 32}),
    ("cwo/tab2", "B = 16,", {"batch_size": 16, "learning_rate": 0.2 / 8}),
    ("cwo/tab2", "B = 128,", {"batch_size": 128, "learning_rate": 0.2}),
    ("cwo/tab2", "", {"augment": "fast-autoaugment-cutout"}),
    ("cwo/tab3", "noise", {"noise": 1.0, "grows": True}),
    ("cwo/tab3", "^sphere", {"centered": False}),
    ("cwo/tab3", "^both", {"centered": True}),
    ("cwo/tab3 cwo/tab4 cwo/fig2", "", {"learning_rate": 0.2, "augment": "crop-flip"}),
    ("cwo/tab4 cwo/fig2", "^constant", {"grows": False}),
    ("cwo/tab4 cwo/fig2", "^linear", {"grows": True}),
    *(
        ("cwo/tab4 cwo/fig2", f"sigma = {sigma},", {"noise": sigma})
        for sigma in (0, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1)
    ),
    ("cwo/radius", r"c = 2( \+|,)", {"squared_radius": 2.0}),
    ("cwo/radius", "c = 2.93", {"squared_radius": KEEPING}),
    ("cwo/tab5", "", {"model": "dgcnn", "activation": "leaky_relu_0.2", "batch_size": 32}),
    ("cwo/tab5", "Ours", {"noise": 0.4, "squared_radius": 2.0}),
    ("cwo/tab6", "", {"model": "resnet50", "batch_size": 256, "learning_rate": 0.1, "side": 224}),
    # Arpit et al. 2016, sections 4 and 5.
    ("normprop/fig1", "", {"epochs": 30}),
    ("normprop/fig1 normprop/fig4", "batch 50", {"batch_size": 50, "learning_rate": 0.05}),
    ("normprop/fig1 normprop/fig4", "batch 100", {"batch_size": 100, "learning_rate": 0.08}),
    ("normprop/fig2 normprop/fig3", "", {"epochs": 50, "batch_size": 50, "learning_rate": 0.05}),
    ("normprop/fig4", "", {"epochs": 50}),
    ("normprop/fig4", "batch 1$", {"batch_size": 1}),
    ("normprop/fig4", "batch 200$", {"batch_size": 200}),
    ("normprop/fig1 normprop/fig2 normprop/fig3 normprop/fig4", "", {"held_out": 5000}),
    ("normprop/fig3 normprop/fig4 normprop/tab1", "^NormProp|^batch", {"squared_radius": 1.0}),
    ("normprop/tab1", "", {"model": "nin", "channels": 64, "weight_decay": 5e-4}),
    ("normprop/tab1", "CIFAR", {"epochs": 200, "batch_size": 50, "held_out": 5000}),
    ("normprop/tab1", "flips", {"augment": "flip"}),
    ("normprop/tab1", "SVHN", {"epochs": 25, "batch_size": 100, "held_out": 6000}),
    ("normprop/speed", "", {"model": "nin", "batch_size": 50}),
    # Luo et al. 2019, sections 4 and 5, appendix B.
    ("bn/fig1a", "", {"inputs": 4096, "batch_size": 32}),
    ("bn/fig1b", "", {"inputs": 4096, "batch_size": 16}),
    ("bn/fig2ab bn/fig2gh bn/fig3", "", {"model": "resnet18"}),
    ("bn/fig2ab bn/fig2gh bn/fig3", "M = 128", {"batch_size": 128}),
    ("bn/fig2ab bn/fig2gh bn/fig3", "M = 1024", {"batch_size": 1024}),
    ("bn/fig2ab", "^PN", {"population_rows": 10_000}),
    ("bn/fig2ab bn/fig2cd bn/fig2ef bn/fig2gh", "", {"rate_decay": 1e-4}),
    ("bn/fig2cd", "", {"model": "cnn4", "channels": 64}),
    ("bn/fig2gh", "^BN \\+ dropout", {"dropout": 0.1}),
    ("bn/fig2gh", "^WN \\+ dropout", {"dropout": 0.2}),
    ("bn/fig3", "M = 128|PN", {"learning_rate": 0.1}),
    ("bn/fig4", "", {"fine_rate": 1e-3}),
]


def settings_of(item):
    """Returns the settings of each cell of a full preset by its name; of a figure by ""."""
    if not item.grid:
        return {"": named(item.full.settings)}
    return {
        each.cell.name: asdict(each.config)
        | {
            field.name: getattr(part, field.name)
            for part in each.method.parts
            for field in fields(part)
        }
        for each in full_cells(item)
    }


@pytest.mark.parametrize(("items", "cells", "stated"), STATED)
def test_the_full_presets_have_the_papers_numbers(items, cells, stated):
    for name in items.split():
        settings = {k: v for k, v in settings_of(ITEMS[name]).items() if re.search(cells, k)}
        assert settings
        for cell, ours in settings.items():
            assert {field: ours[field] for field in stated} == stated, (name, cell)


def test_all_papers_train_with_the_same_momentum():
    assert MOMENTUM == 0.9
    assert {each.config.optimizer for item in ITEMS.values() for each in full_cells(item)} == {
        "sgd"
    }


def slow(*case):
    return pytest.param(*case, marks=pytest.mark.slow)


#: Item, cell, millions of parameters to one digit, steps, first and last learning rate. The deeper
#: networks take seconds to trace.
CASES = [
    # Ikami et al.: 390 steps an epoch, half a cosine; He et al.: 1.7M; Zagoruyko: 36.5M.
    ("cwo/tab1", "BN, CNN, CIFAR-10, standard", 1.9, 200 * 390, 0.1, 0.0),
    slow("cwo/tab1", "BN, ResNet-110, CIFAR-10, standard", 1.7, 200 * 390, 0.2, 0.0),
    slow("cwo/tab1", "BN, WRN-28-10, CIFAR-10, standard", 36.5, 200 * 390, 0.2, 0.0),
    slow("cwo/tab2", "BN, B = 4, CIFAR-10", 36.5, 200 * 12_500, 0.2 / 32, 0.0),
    # Wang et al.: 1.8M, of 1,024 points.
    ("cwo/tab5", "BN", 1.8, 250 * 307, 0.1, 0.0),
    # He et al.: 25.6M; three drops to a tenth.
    slow("cwo/tab6", "BN", 25.6, 100 * 5004, 0.1, 1e-4),
    # Kutsuna: 0.95 every three or five epochs, down to 0.001.
    ("lcw/tab1", "VGG19, CIFAR-10", 20.6, 300 * 390, 0.1, 1e-3),
    ("lcw/tab1", "ResNet18, CIFAR-10", 11.2, 300 * 390, 0.1, 1e-3),
    ("lcw/tab1", "ResNet18, CIFAR-100", 11.2, 500 * 390, 0.1, 1e-3),
    ("lcw/fig6", "VGG19, CIFAR-100", 20.6, 500 * 390, 0.1, 1e-3),
    # 50 sigmoid layers of 256: 3072 x 256 + 49 x 256^2 and the head.
    slow("lcw/fig5", "BN, CIFAR-10", 4.0, 100 * 390, 0.1, 1e-3),
    # Arpit et al.: 1.55M in the kernels of section 5; 45,000 rows, halved seven times; SVHN four.
    ("normprop/tab1", "BN, CIFAR-10", 1.6, 200 * 900, 0.05, 0.05 / 2**7),
    ("normprop/tab1", "BN, SVHN", 1.6, 25 * 5983, 0.08, 0.08 / 2**4),
    ("normprop/fig1", "global, batch 50", 1.6, 30 * 900, 0.05, 0.05 / 4),
    ("normprop/fig4", "batch 1", 1.6, 50 * 45_000, 0.001, 0.001 / 16),
    # Littwin and Wolf: 0.05, 0.02, then a tenth every hundred epochs. Clevert et al.'s kernels have
    # 1.64M; twice as wide 6.5M.
    ("vcl/tab2", "ELU, CIFAR-100", 1.7, 500 * 200, 0.05, 2e-5),
    ("vcl/tab3", "ELU", 6.6, 250 * 400, 0.05, 2e-4),
    # Luo et al.: (1 - 1e-4) a step; on ImageNet three drops.
    ("bn/fig2ab", "BN, M = 128", 11.2, 200 * 390, 0.1, 0.1 * (1 - 1e-4) ** 77_999),
    ("bn/fig2cd", "BN", 8.5, 200 * 390, 0.1, 0.1 * (1 - 1e-4) ** 77_999),
    ("bn/fig2gh", "BN + dropout, M = 1024", 11.2, 200 * 48, 0.8, 0.8 * (1 - 1e-4) ** 9599),
    ("bn/fig3", "BN, M = 128", 11.7, 100 * 10_009, 0.1, 1e-4),
]


@cache
def counted(method, row, classes, **sizes):
    """Counts the parameters of a network, once for all cells that train it."""
    functional = functional_of(METHODS[method], Config(**sizes), row, classes)
    return parameter_count(functional.params)


@pytest.mark.kept("fig6", "tab5")
@pytest.mark.parametrize(("item", "cell", "millions", "steps", "first", "last"), CASES)
def test_sizes_and_schedules_are_the_papers(item, cell, millions, steps, first, last):
    found = next(c for c in full_cells(ITEMS[item]) if c.cell.name.startswith(cell))
    config, (row, _, classes) = found.config, found.shape
    sizes = {name: getattr(config, name) for name in ("model", "channels", "depth", "width")}
    count = counted(found.method.name, row, classes, **sizes)
    assert round(count / 1e6, 1) == millions
    assert found.steps == steps
    rate_of = schedule_of(config, steps)
    assert float(rate_of(jnp.int32(0))) == pytest.approx(first, rel=1e-5)
    assert float(rate_of(jnp.int32(steps - 1))) == pytest.approx(last, rel=1e-2, abs=1e-7)


def test_the_shape_of_every_tables_data_is_known():
    for item in ITEMS.values():
        if item.grid:
            assert {cell.dataset for cell in item.grid.cells} <= set(SHAPES)
