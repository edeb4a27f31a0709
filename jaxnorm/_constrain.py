"""One call a method: parameters and optimizer made for each other, from one layout."""

import dataclasses
from functools import partial
from typing import Any

import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from jaxnorm._checks import all_zero
from jaxnorm._constraints._project import project
from jaxnorm._constraints._unit import center, check_sphere
from jaxnorm._trees._constrained import Setting, constrained_leaves, map_constrained
from jaxnorm._trees._layout import Layout, flax_layout
from jaxnorm._trees._node import Axes
from jaxnorm._trees._paths import entries, is_node, listed
from jaxnorm.reparam._reparametrize import reparametrize
from jaxnorm.reparam._scaled import Scaled
from jaxnorm.reparam._weight_normalized import WeightNormalized
from jaxnorm.transforms._sphere_projection import landing, sphere_projection

#: Parameters, and the optimizer that keeps them where they are.
Constrained = tuple[PyTree, optax.GradientTransformationExtraArgs]


def constrain(
    params: PyTree,
    optimizer: optax.GradientTransformation,
    *,
    layout: Layout = flax_layout,
    squared_radius: Setting = 2.0,
    centered: Setting = True,
) -> Constrained:
    """Constrained weight optimization: kernels gamma v with v kept on the centered sphere.

    ``reparametrize(project(params), Scaled)``, and the optimizer with `sphere_projection` behind
    it: one call makes all of them agree about the layout, the radius and the centring.

    Args:
        params: plain parameters.
        optimizer: any optax transformation, momentum and weight decay included.
        layout: which leaves are kernels, and their fan-in axes; the classifier's is best left out,
            with `exclude`.
        squared_radius: c of ||v||^2 = c; a positive number, or a pytree prefix of them.
        centered: whether the units are also zero-mean; a bool, or a pytree prefix of them:
            `first_layer` tells the kernels that may be left uncentred.

    Returns:
        ``(raw, optimizer)``: the parameters with a `Scaled` node at each kernel, for
        ``effective(raw)`` in the loss, and the optimizer to give them to. Noise on the scales is a
        wrapper around it: ``noise_injection(optimizer, stddev, seed=...)``.

    Raises:
        ValueError: if the layout constrains nothing, a centered unit has a single weight, c is not
            positive, or params are reparametrized already.

    Under jit, pmap and shard_map as `project` and `sphere_projection`: parameters only, and no
    collective unless a kernel is sharded along its fan-in.

    Example:
        >>> params = {"dense": {"kernel": jnp.array([[1.0], [3.0]]), "bias": jnp.zeros(1)}}
        >>> raw, tx = constrain(params, optax.sgd(0.1))
        >>> raw["dense"]["kernel"].effective().tolist()
        [[-1.0], [1.0]]

    Source: Ikami et al. 2021, Eqs. 2, 6 and 11.
    """
    _check_plain(params, "constrain")
    kernels = project(params, layout=layout, squared_radius=squared_radius, centered=centered)
    last = sphere_projection(layout=layout, squared_radius=squared_radius, centered=centered)
    return reparametrize(kernels, Scaled, layout), optax.chain(optimizer, last)


def linearly_constrain(
    params: PyTree, optimizer: optax.GradientTransformation, *, layout: Layout = flax_layout
) -> Constrained:
    """Linearly constrained weights: kernels whose units sum to zero, and stay so.

    Centers the kernels, and puts behind the optimizer an edit of its update that centers
    params + update, so that the constraint holds under any optimizer. For SGD with momentum and
    weight decay it takes the steps of `LinearlyConstrained` coordinates; under Adam it does not
    depend on a basis, as those do. What looks at the gradients' norm (clipping, LARS) sees their
    mean as well, which coordinates leave out: put `centered_gradient` in front of it.

    Args:
        params: plain parameters.
        optimizer: any optax transformation.
        layout: which leaves are kernels, and their fan-in axes.

    Returns:
        ``(params, optimizer)``: the parameters are as plain as they were. Their sums are zero to
        the rounding of the weights themselves, after any number of steps.

    Raises:
        ValueError: if the layout constrains nothing, a unit has a single weight, or params are
            reparametrized already.

    Under jit, pmap and shard_map as `sphere_projection`: parameters only.

    Example:
        >>> params, tx = linearly_constrain({"kernel": jnp.array([[1.0], [3.0]])}, optax.sgd(0.1))
        >>> params["kernel"].tolist()
        [[-1.0], [1.0]]

    Source: Kutsuna 2019, sections 3.1 and 3.2.
    """
    _check_plain(params, "linearly_constrain")
    for path, leaf, axes in constrained_leaves(layout, params):
        if axes is not None:
            check_sphere(leaf, axes, True, f"the parameter {path!r}")

    # `centered_gradient` would center the update alone, and let its rounding add up.
    def land(old: Any, step: Any, axes: Axes) -> Any:
        return center(old + step, axes)

    last = optax.stateless(partial(landing, "linearly_constrain", land, layout))
    return map_constrained(center, layout, params), optax.chain(optimizer, last)


def propagate_normalization(
    params: PyTree,
    optimizer: optax.GradientTransformation,
    *,
    layout: Layout = flax_layout,
    scale: float | Float[Array, ""] = 1.0,
    centered: bool = False,
) -> Constrained:
    """Normalization propagation: kernels gamma v / ||v||, with ||v|| kept at 1.

    This is the weights' half of the method. The other half is the network's: `standardized`
    activations in the place of its own, and inputs of zero mean and unit variance.

    Args:
        params: plain parameters.
        optimizer: any optax transformation.
        layout: which leaves are kernels, and their fan-in axes.
        scale: the initial gamma of every unit: 1 keeps activations standardized; the paper's
            ``1 / jacobian_factor(activation)`` keeps gradients instead.
        centered: also keep each unit's sum at 0, which the paper does not. What units of a layer
            share is then not passed on: through random layers of 256 standardized relus the sizes
            of pre-activations stay within a tenth for 40 layers, else for 14.

    Returns:
        ``(raw, optimizer)``: the parameters with a `WeightNormalized` node at each kernel, for
        ``effective(raw)`` in the loss, and the optimizer with `sphere_projection` behind it.

    Raises:
        ValueError: if the layout constrains nothing, a kernel is all zero, or params are
            reparametrized already.

    Under jit, pmap and shard_map as `project` and `sphere_projection`: parameters only.

    Example:
        >>> raw, tx = propagate_normalization({"kernel": jnp.array([[3.0], [4.0]])}, optax.sgd(0.1))
        >>> raw["kernel"].effective().round(3).ravel().tolist()
        [0.6..., 0.8...]

    Source: Arpit et al. 2016, Eq. 6 and section 3.4.
    """
    _check_plain(params, "propagate_normalization")

    def node(path: str, kernel: Any, axes: Axes) -> WeightNormalized:
        made = WeightNormalized.from_kernel(kernel, axes)
        if all_zero(made.scale):
            raise ValueError(
                f"the weights of {path!r} are all zero, and have no direction: their gradients "
                "would be zero too, and they would never train. Give it random weights, or leave "
                "it out of the layout, with exclude."
            )
        return dataclasses.replace(made, scale=made.scale * jnp.asarray(scale, kernel.dtype))

    unit = project(params, layout=layout, squared_radius=1.0, centered=centered)
    last = sphere_projection(layout=layout, squared_radius=1.0, centered=centered)
    return reparametrize(unit, node, layout), optax.chain(optimizer, last)


def _check_plain(params: PyTree, name: str) -> None:
    """Raises where kernels are nodes: a second scale or constraint would be put around them."""
    nodes = [path for path, entry in entries(params) if is_node(entry)]
    if nodes:
        raise ValueError(
            f"{name} makes raw parameters of plain ones, and got reparametrized kernels at "
            f"{listed(nodes)}; pass effective(params), or use reparametrize, project "
            "and sphere_projection one by one."
        )
