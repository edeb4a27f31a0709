"""The published hyperparameters; `paper --check` holds the tables that train with them to texts."""

import re

import pytest

from experiments.methods.optimizer import MOMENTUM
from experiments.methods.table import METHODS
from experiments.models.registry import MODELS
from experiments.papers.vcl.uci_train import Settings
from jaxnorm.recipes import RECIPES, learning_rate_schedule

SPHERE = {name: METHODS[name].parts[0].squared_radius for name in ("cwo", "normprop")}


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_trained_as_the_methods_are(name):
    recipe = RECIPES[name]
    assert recipe.momentum in (MOMENTUM, None)
    assert recipe.squared_radius == SPHERE.get(name.split("/")[0])


def test_the_loss_is_that_of_the_method_and_of_the_uci_tables():
    recipe, method = RECIPES["vcl/elu11"], METHODS["vcl"].parts[0]
    assert (recipe.sample_size, recipe.strength) == (method.sample_size, method.vcl_weight)
    recipe, table = RECIPES["vcl/mlp/uci"], Settings()
    assert (recipe.sample_size, recipe.strength) == (table.sample_size, table.vcl_weight)
    assert (recipe.batch_size, recipe.epochs) == (table.batch_size, table.epochs)
    assert recipe.learning_rate == table.learning_rate
    ((epoch, factor),) = recipe.rate_schedule
    assert ((epoch / recipe.epochs, factor),) == table.rate_schedule


@pytest.mark.parametrize("name", RECIPES)
def test_a_name_is_a_method_and_a_network(name):
    method, network, *data = name.split("/")
    assert method in METHODS
    assert network in MODELS
    assert len(data) <= 1
    assert re.search(r"20\d\d, sections? \d", RECIPES[name].source)


def rates(name, *epochs, length=None, steps=100):
    schedule = learning_rate_schedule(RECIPES[name], steps, epochs=length)
    return [float(schedule(round(epoch * steps))) for epoch in epochs]


def test_the_rate_drops_after_an_epoch_and_a_cosine_ends_at_zero():
    assert rates("vcl/elu11", 0, 179.99, 180, 281, 490) == pytest.approx(
        [0.05, 0.05, 0.02, 0.002, 0.00002]
    )
    assert rates("cwo/cnn9", 0, 100, 200) == pytest.approx([0.1, 0.05, 0.0])
    assert rates("cwo/resnet50/imagenet", 29, 31) == pytest.approx([0.1, 0.01])


def test_a_shorter_training_has_its_drops_earlier():
    assert rates("vcl/elu11", 17.9, 18.1, length=50) == pytest.approx([0.05, 0.02])
    assert rates("cwo/cnn9", 5, length=10) == pytest.approx([0.05])


@pytest.mark.parametrize(("length", "steps"), [(3, 10), (30, 1), (7, 3), (3000, 1)])
def test_drops_that_share_a_step_are_all_of_them(length, steps):
    """Of 99 drops in 30 steps each step has several; the last rate is still a hundredth."""
    recipe = RECIPES["lcw/vgg19/cifar10"]
    schedule = learning_rate_schedule(recipe, steps, epochs=length)
    starts = [round(epoch * length / recipe.epochs * steps) for epoch, _ in recipe.rate_schedule]
    for step in range(0, length * steps, max(length * steps // 100, 1)):
        begun = sum(start <= step for start in starts)
        factor = recipe.rate_schedule[begun - 1][1] if begun else 1.0
        assert float(schedule(step)) == pytest.approx(recipe.learning_rate * factor, rel=1e-5)


@pytest.mark.parametrize("name", ["vcl/elu11", "cwo/cnn9"])
@pytest.mark.parametrize("length", [0, -5])
def test_a_length_that_is_none_is_refused(name, length):
    with pytest.raises(ValueError, match=f"epochs is {length}; wanted a positive number"):
        learning_rate_schedule(RECIPES[name], 100, epochs=length)


def test_a_length_that_nobody_says_is_asked_for():
    silent = RECIPES["cwo/cnn9"]._replace(epochs=None)
    with pytest.raises(ValueError, match="epochs is None: the paper does not say how long"):
        learning_rate_schedule(silent, 10)
    with pytest.raises(ValueError, match="epochs is None"):
        learning_rate_schedule(RECIPES["cwo/resnet50/imagenet"], 10, epochs=50)
    with pytest.raises(ValueError, match="steps_per_epoch is 0"):
        learning_rate_schedule(RECIPES["cwo/cnn9"], 0)
