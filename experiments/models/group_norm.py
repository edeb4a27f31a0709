"""Group normalization, and layer normalization as one group, of groups that hold enough values."""

from typing import Any

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array

from experiments.errors import UserError

#: The largest number of groups, as in the papers.
GROUPS = 16

#: The fewest values of a group, units times positions. A variance of n values has a relative error
#: of sqrt(2 / (n - 1)), 37 % for 16, and normalization takes 2 of their n degrees of freedom: of
#: two values the signs are left. Sixteen channels per group, the best number in Wu and He's Table
#: 3, hold as many at a single position.
GROUP_VALUES = 16

#: The fewest values of layer normalization, which has no groups to choose: half of the degrees of
#: freedom are left.
LAYER_VALUES = 4

#: The addition to the variance: Wu and He's (Figure 3).
EPSILON = 1e-5


def group_count(units: int, positions: int = 1) -> int:
    """Returns the number of groups of a layer; 0 if not even one group holds enough values.

    The number divides the units. It is at most 16, and leaves at least two units and 16 values in
    each group.

    Args:
        units: the units, or channels.
        positions: the positions of a map; 1 in a dense layer.
    """
    values = units * positions
    most = min(GROUPS, max(1, units // 2), values // GROUP_VALUES)
    return next((n for n in range(most, 0, -1) if units % n == 0), 0)


class GroupNorm(nnx.Module):
    """Flax's group normalization, whose number of groups follows from the shape of its input.

    Args:
        units: the number of units.
        one_group: True for layer normalization over units and positions.
        axis: the axis of the units.
        rngs: the random streams; Flax's initializers draw from them, although the scale starts at 1
            and the bias at 0.

    Source: Wu and He 2018; Ba et al. 2016.
    """

    def __init__(self, units: int, *, one_group: bool = False, axis: int = -1, rngs: nnx.Rngs):
        self.units, self.one_group, self.axis = units, one_group, axis
        layer = nnx.GroupNorm(units, 1, rngs=rngs)
        self.scale, self.bias = layer.scale, layer.bias

    def __call__(
        self, x: Array, use_running_average: bool | None = None, *, mask: Any = None
    ) -> Array:
        """Normalizes each row, with the arguments of the BatchNorm that it may take the place of.

        Raises:
            UserError: for too few values in a row.
        """
        groups = self.groups(x.size // (x.shape[0] * self.units)) if x.size else 1
        layer = nnx.GroupNorm(
            self.units, groups, epsilon=EPSILON, use_scale=False, use_bias=False, rngs=nnx.Rngs()
        )
        layer.scale, layer.bias = self.scale, self.bias
        if mask is not None:
            mask = jnp.moveaxis(jnp.broadcast_to(mask, x.shape), self.axis, -1)
        return jnp.moveaxis(layer(jnp.moveaxis(x, self.axis, -1), mask=mask), -1, self.axis)

    def groups(self, positions: int) -> int:
        """Returns the number of groups at so many positions.

        Raises:
            UserError: for too few values in a row.
        """
        values = self.units * positions
        if self.one_group:
            if values >= LAYER_VALUES:
                return 1
            raise too_narrow("ln", self.units, positions, LAYER_VALUES, "bn or none")
        if groups := group_count(self.units, positions):
            return groups
        raise too_narrow(
            "gn", self.units, positions, GROUP_VALUES, "bn or none, or ln (built-in networks)"
        )


def rms_norm(width: int, rngs: nnx.Rngs) -> nnx.Module:
    """Makes root mean square normalization over the units of a position."""
    if width < 2:
        raise too_narrow("rms", width, 1, 2, "bn or none")
    return nnx.RMSNorm(width, rngs=rngs)


def too_narrow(norm: str, units: int, positions: int, least: int, others: str) -> UserError:
    """Makes the error of a layer with too few values per row to normalize."""
    return UserError(
        f"{norm} got a layer of units x positions = {units} x {positions} values per row; wanted "
        f"at least {least}: the mean and variance of fewer say little, and of two normalized "
        "values only the signs are left. Make that layer wider (for built-in networks with "
        f"--width or --channels), or take {others} in its place."
    )
