"""The published hyperparameters, compared with the methods that train with them."""

import re

import pytest

from experiments.methods.optimizer import MOMENTUM
from experiments.methods.table import METHODS
from experiments.models.registry import MODELS
from experiments.papers.recipes import RECIPES
from experiments.papers.vcl.uci_train import Settings

SQUARED_RADIUS = {name: METHODS[name].parts[0].squared_radius for name in ("cwo", "normprop")}


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_agrees_with_its_method_and_network(name):
    recipe = RECIPES[name]
    method, network, *data = name.split("/")
    assert method in METHODS
    assert network in MODELS
    assert len(data) <= 1
    assert recipe.momentum in (MOMENTUM, None)
    assert recipe.squared_radius == SQUARED_RADIUS.get(method)
    assert re.search(r"20\d\d, sections? \d", recipe.source)


def test_the_variance_constancy_loss_agrees_with_the_method_and_the_uci_tables():
    recipe, method = RECIPES["vcl/elu11"], METHODS["vcl"].parts[0]
    assert (recipe.sample_size, recipe.strength) == (method.sample_size, method.vcl_weight)
    recipe, table = RECIPES["vcl/mlp/uci"], Settings()
    assert (recipe.sample_size, recipe.strength) == (table.sample_size, table.vcl_weight)
    assert (recipe.batch_size, recipe.epochs) == (table.batch_size, table.epochs)
    assert recipe.learning_rate == table.learning_rate
    ((epoch, factor),) = recipe.rate_schedule
    assert ((epoch / recipe.epochs, factor),) == table.rate_schedule
