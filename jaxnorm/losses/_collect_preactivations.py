"""The pre-activations of any library's model, without a change to it."""

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from jaxnorm._tracing import KernelCall, run_layers
from jaxnorm._trees._layout import Layout, flax_layout

Preactivations = dict[str, Float[Array, "..."]]


def collect_preactivations(
    apply: Callable[..., Any],
    params: PyTree,
    *inputs: Any,
    layout: Layout = flax_layout,
    free: Sequence[str] = (),
) -> tuple[Any, Preactivations]:
    """Runs a model and also returns what each of its kernels makes of its input.

    The model is traced, so nothing in it changes and nothing is kept: for use inside a loss, under
    jit and grad, where it costs trace time only.

    `variance_constancy_loss` reads 2n rows. Give these rows alone, ``X[: 2 * n]``, and let the
    whole minibatch go through the model as it does without the loss. Wherever samples do not see
    each other the pre-activations are those of the minibatch. With batch normalization in the
    model the 2n rows are normalized by their own statistics, and a random mask (dropout) is
    another draw: keep the running statistics and the output of the whole minibatch, and drop those
    of the 2n rows.

    Args:
        apply: ``apply(params, *inputs)``, any library's model as a function of plain parameters;
            for NNX ``lambda params, x: functional.apply(params, state, x, train=True)``, whose new
            state is then part of the output.
        params: the parameters; reparametrized kernels are made effective first.
        *inputs: a minibatch, and whatever else ``apply`` takes.
        layout: which kernels; ``exclude("^head/")`` leaves the logits out.
        free: regular expressions, searched for in the ``/``-joined paths, of parameters that the
            model uses as if they were inputs (learned queries), as `traced_layout` takes them.

    Returns:
        The model's output, and a dict of pre-activations by the path of their kernel, in execution
        order: w'x + b where the model adds its bias to the product directly, as the layers of every
        library do; else w'x. A bias is what depends on no input, at any batch size and on a single
        sample. Rows come first and units last, whatever the model makes of them: also where
        convolutions have channels first, ``jax.vmap`` of ``w @ x`` has its units there, or a
        product groups of them, as the members of an ensemble are. A kernel that is used more than
        once is there with its last use.

        A kernel that is a stack of layers, as ``nn.scan``, ``nnx.scan`` and ``jax.lax.scan`` take
        one a turn, has one entry (rows, layers, ...), whatever its axis of layers: a unit of
        another layer is another unit. `variance_constancy_loss` of it is the mean over its layers
        of their losses; times the number of layers it is what `total_variance_constancy` sums for
        the same layers one by one.

    Raises:
        ValueError: if the layout constrains nothing, or knows a kernel that the model does not
            multiply its input by, or multiplies also in another form (its square, say), or uses
            inside a loop, but for one layer a turn of a scan over stacked kernels.

    Warns:
        UserWarning: for a kernel inside a function with a derivative of its own
            (``jax.custom_vjp``) that goes on after the product: the gradient is then that of its
            equations. One that ends with the product keeps its derivative.

    It means the same under jit, pmap and shard_map as the model itself does.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> apply = lambda params, x: jax.nn.relu(x @ params["kernel"])
        >>> output, layers = collect_preactivations(
        ...     apply, {"kernel": -jnp.eye(2)}, jnp.ones((4, 2))
        ... )
        >>> output.sum().item(), layers["kernel"].sum().item()
        (0.0, -8.0)
    """

    def visit(call: KernelCall, found: Any) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        return call.output, call.output

    output, seen = run_layers(apply, params, inputs, layout, visit, with_bias=True, free=free)
    collected = [jnp.moveaxis(x, len(layers), 0) if layers else x for x, layers in seen.values()]
    return output, dict(zip(map(str, seen), collected, strict=True))
