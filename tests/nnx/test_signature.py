"""The arguments of layers, as editors and notebooks show them."""

import inspect

import pytest

import jaxnorm as jn

LAYERS = [each for each in vars(jn.nnx).values() if "__signature__" in dir(each)]


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.__name__)
def test_a_layer_shows_its_own_arguments(layer: type) -> None:
    shown = list(inspect.signature(layer).parameters)
    assert ["self", *shown] == list(inspect.signature(layer.__init__).parameters)


def test_there_are_all_layers() -> None:
    names = {layer.__name__ for layer in LAYERS}
    assert names >= {"BatchNorm", "PopulationNorm", "ScaleAndBias", "Standardization", "Identity"}


def test_a_subclass_shows_its_own_and_an_instance_those_of_a_call() -> None:
    class Mine(jn.nnx.BatchNorm):
        def __init__(self, units: int, *, loud: bool = False) -> None:
            super().__init__(units)

    assert list(inspect.signature(Mine).parameters) == ["units", "loud"]
    assert next(iter(inspect.signature(Mine(3)).parameters)) == "x"
