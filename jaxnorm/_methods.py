"""Methods in one call: parameters and an optimizer that share one layout."""

from typing import Any

import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from jaxnorm._checks import check_optimizer
from jaxnorm._kinds import Scaled, WeightNormalized
from jaxnorm._layout import Layout, Setting, flax_layout, map_kernels
from jaxnorm._node import Axes, is_node
from jaxnorm._paths import is_absent, listed, named_entries
from jaxnorm._reparametrize import reparametrize
from jaxnorm._sphere import center, check_kernels, check_nonzero, project
from jaxnorm._sphere_projection import sphere_projection
from jaxnorm._zero_sums import zero_sum_projection

#: Parameters, and the optimizer that keeps them on the set.
Constrained = tuple[PyTree, optax.GradientTransformationExtraArgs]


def constrain(
    params: PyTree,
    optimizer: optax.GradientTransformation,
    *,
    layout: Layout = flax_layout,
    squared_radius: Setting = 2.0,
    centered: Setting = True,
) -> Constrained:
    """Constrained weights: kernels gamma v, with v on the centered sphere.

    Returns ``reparametrize(project(params), Scaled)`` and the optimizer followed by
    `sphere_projection`, with one layout, radius and centering for all three.

    Args:
        params: plain parameters.
        optimizer: any optax transformation, momentum and weight decay included.
        layout: which leaves are kernels, and their fan-in axes; leave the classifier's out, with
            `exclude`.
        squared_radius: c of ||v||^2 = c; a positive number, or a pytree prefix of them.
        centered: if True, the units are also zero-sum; a bool, or a pytree prefix of them:
            `first_layer` names the kernels that may be left uncentered.

    Returns:
        ``(raw, optimizer)``: the parameters with a `Scaled` node in the place of each kernel, for
        ``effective(raw)`` in the loss, and the optimizer for them. ``noise_injection(optimizer,
        stddev, seed=...)`` adds noise to the scales.

    Raises:
        ValueError: if the layout constrains nothing, a centered unit has a single weight, c is not
            positive, params are reparametrized already, or a kernel is all zero (the last one of a
            branch that starts at zero) or, if centered, of equal weights per unit: its first step,
            however small, would take it to the sphere. In ``update``, for gradients of effective
            weights in the place of those of the raw parameters.
        TypeError: if ``optimizer`` is not an optax transformation.

    Warns:
        UserWarning: inside shard_map, as `project`.

    Under jit, pmap and shard_map like `project` and `sphere_projection`: no collective, unless a
    kernel is sharded along its fan-in, which needs jit.

    Example:
        >>> params = {"dense": {"kernel": jnp.array([[1.0], [3.0]]), "bias": jnp.zeros(1)}}
        >>> raw, tx = constrain(params, optax.sgd(0.1))
        >>> raw["dense"]["kernel"].effective().tolist()
        [[-1.0], [1.0]]

    Source: Ikami et al. 2021, Eqs. 2, 6 and 11.
    """
    _check_plain(params, "constrain")
    check_optimizer(optimizer)
    kernels = project(params, layout=layout, squared_radius=squared_radius, centered=centered)
    last = sphere_projection(layout=layout, squared_radius=squared_radius, centered=centered)

    def node(path: str, kernel: Any, axes: Axes) -> Scaled:
        check_nonzero(kernel, f"the parameter {path!r}")
        return Scaled.from_kernel(kernel, axes)

    return reparametrize(kernels, node, layout), _of_raw(optax.chain(optimizer, last))


def linearly_constrain(
    params: PyTree, optimizer: optax.GradientTransformation, *, layout: Layout = flax_layout
) -> Constrained:
    """Linearly constrained weights: kernels whose units sum to zero, before and after each step.

    Returns ``map_kernels(center, layout, params)`` and the optimizer followed by
    `zero_sum_projection`, with one layout for both, so that the constraint holds under any
    optimizer. SGD with momentum and weight decay takes the same steps as with `LinearlyConstrained`
    coordinates; under Adam the steps do not depend on a basis, unlike those of coordinates.
    Transformations that use the gradients' norm (clipping, LARS) see the gradients' mean too, which
    coordinates leave out: put `centered_gradient` before them. A constant in a unit's input adds
    nothing where all its weights meet it; `LinearlyConstrained` says where they do not.

    Args:
        params: plain parameters, of a network without batch normalization.
        optimizer: any optax transformation.
        layout: which leaves are kernels, and their fan-in axes. `traced_layout` looks at the
            model's program, too, and warns if it still has batch normalization; the names and
            shapes that other layouts see do not tell.

    Returns:
        ``(params, optimizer)``: plain parameters, centered, and the optimizer for them. The sums
        are zero to the rounding of the weights, after any number of steps.

    Raises:
        ValueError: if the layout constrains nothing, a unit has a single weight, or params are
            reparametrized already.
        TypeError: if ``optimizer`` is not an optax transformation.

    Warns:
        UserWarning: inside shard_map, as `project`.

    Under jit, pmap and shard_map like `sphere_projection`.

    Example:
        >>> params, tx = linearly_constrain({"kernel": jnp.array([[1.0], [3.0]])}, optax.sgd(0.1))
        >>> params["kernel"].tolist()
        [[-1.0], [1.0]]

    Source: Kutsuna 2019, sections 3.1 and 3.2.
    """
    _check_plain(params, "linearly_constrain")
    check_optimizer(optimizer)
    check_kernels(params, layout, centered=True)
    return map_kernels(center, layout, params), optax.chain(optimizer, zero_sum_projection(layout))


def propagate_normalization(
    params: PyTree,
    optimizer: optax.GradientTransformation,
    *,
    layout: Layout = flax_layout,
    scale: float | Float[Array, ""] = 1.0,
    centered: bool = False,
) -> Constrained:
    """Normalization propagation: kernels gamma v / ||v||, with ||v|| = 1 after each step.

    This is the weights' half of the method. The network's half are `standardized` activations in
    the place of its own, and inputs of zero mean and unit variance.

    Args:
        params: plain parameters.
        optimizer: any optax transformation.
        layout: which leaves are kernels, and their fan-in axes.
        scale: the initial gamma of every unit: 1 keeps activations standardized; the paper's
            ``1 / jacobian_factor(activation)`` keeps the size of gradients instead.
        centered: if True, each unit's sum is also kept at 0, which the paper does not do. A value
            that all units of a layer share is then not passed on, so that sizes hold in deeper
            networks.

    Returns:
        ``(raw, optimizer)``: the parameters with a `WeightNormalized` node in the place of each
        kernel, for ``effective(raw)`` in the loss, and the optimizer followed by
        `sphere_projection`.

    Raises:
        ValueError: if the layout constrains nothing, a kernel is all zero or, if centered, of equal
            or single weights per unit, or params are reparametrized already.

    Under jit, pmap and shard_map like `project` and `sphere_projection`.

    Example:
        >>> raw, tx = propagate_normalization({"kernel": jnp.array([[3.0], [4.0]])}, optax.sgd(0.1))
        >>> raw["kernel"].effective().round(3).ravel().tolist()
        [0.6..., 0.8...]

    Source: Arpit et al. 2016, Eq. 6 and section 3.4.
    """
    _check_plain(params, "propagate_normalization")
    check_optimizer(optimizer)

    def node(path: str, kernel: Any, axes: Axes) -> WeightNormalized:
        unscaled = WeightNormalized.from_kernel(kernel, axes)
        check_nonzero(unscaled.scale, f"the parameter {path!r}")
        gain = unscaled.scale * jnp.asarray(scale, kernel.dtype)
        return unscaled.replaced(scale=gain)

    unit = project(params, layout=layout, squared_radius=1.0, centered=centered)
    last = sphere_projection(layout=layout, squared_radius=1.0, centered=centered)
    return reparametrize(unit, node, layout), _of_raw(optax.chain(optimizer, last))


def _of_raw(
    optimizer: optax.GradientTransformationExtraArgs,
) -> optax.GradientTransformationExtraArgs:
    """Returns the optimizer, whose ``update`` refuses gradients of other weights than the raw."""

    def update(
        updates: PyTree, state: Any, params: PyTree | None = None, **extra: Any
    ) -> tuple[PyTree, Any]:
        _check_kinds(updates, params)
        edited: tuple[PyTree, Any] = optimizer.update(updates, state, params, **extra)
        return edited

    return optax.GradientTransformationExtraArgs(optimizer.init, update)


def _check_kinds(updates: PyTree, params: PyTree) -> None:
    """Raises ValueError for nodes in one of both trees that are arrays in the other."""
    kinds, of_params = (
        {path: is_node(x) for path, x in named_entries(tree) if not is_absent(x)}
        for tree in (updates, params)
    )
    differing = [path for path, kind in kinds.items() if of_params.get(path, kind) != kind]
    if differing:
        plain, raw = ("gradients", "parameters")[:: -1 if kinds[differing[0]] else 1]
        raise ValueError(
            f"update got plain {plain} beside raw {raw} at {listed(differing)}; expected both of "
            "the raw parameters, whose kernels are nodes: gradients = jax.grad(lambda raw: "
            "loss(jaxnorm.effective(raw)))(raw), then update(gradients, state, raw)."
        )


def _check_plain(params: PyTree, name: str) -> None:
    """Raises for kernels that are nodes already, around which a second node would be put."""
    nodes = [path for path, entry in named_entries(params) if is_node(entry)]
    if nodes:
        raise ValueError(
            f"{name} takes plain parameters, and got reparametrized kernels at "
            f"{listed(nodes)}; pass effective(params), or use reparametrize, project "
            "and sphere_projection one by one."
        )
