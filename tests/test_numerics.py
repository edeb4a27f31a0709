"""Helpers at the places where the plain formula has no value or no derivative."""

import jax
import jax.numpy as jnp
import pytest

from jaxnorm._axes import refuse_leading_units
from jaxnorm._draws import split_of
from jaxnorm._numerics import quotient, root


@pytest.mark.parametrize(
    ("function", "at_zero", "at_four", "slope"),
    [(root, 0.0, 2.0, 0.25), (lambda x: quotient(jnp.ones(()), x), 0.0, 0.25, -1 / 16)],
    ids=["root", "quotient"],
)
def test_zero_has_the_value_and_the_gradient_zero(function, at_zero, at_four, slope):
    for x, value, gradient in ((0.0, at_zero, 0.0), (4.0, at_four, slope)):
        assert jax.value_and_grad(function)(jnp.float32(x)) == (value, gradient)


def test_an_array_that_varies_along_two_mesh_axes_needs_its_specs():
    """The devices' order along its one axis is unknown."""
    scale = jnp.ones(4)
    assert split_of("the scale", scale, None, frozenset({"data"}), [0]) == {0: ("data",)}
    with pytest.raises(ValueError, match=r"\['data', 'model'\].*PartitionSpec"):
        split_of("the scale", scale, None, frozenset({"data", "model"}), [0])


@pytest.mark.parametrize(
    ("shape", "axes", "refused"),
    [
        ((2, 3, 4), (-2,), True),
        ((2, 3, 4, 5), (-2,), True),
        ((5, 2, 3, 4), (-3, -2), True),
        ((2, 3, 4), (-1,), False),
        ((2, 3, 4), (-3,), False),
        ((2, 3), (-2, -1), False),
    ],
)
def test_units_on_both_sides_of_the_fan_in_are_refused(shape, axes, refused):
    kernel = jax.ShapeDtypeStruct(shape, jnp.float32)
    if not refused:
        refuse_leading_units(kernel, axes, "the kernel", "")
        return
    with pytest.raises(ValueError, match="both sides"):
        refuse_leading_units(kernel, axes, "the kernel", "")
