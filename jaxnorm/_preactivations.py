"""Pre-activations of a model's layers, read off its program."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from jaxnorm._layout import Layout
from jaxnorm._trace.layers import KernelCall, run_layers
from jaxnorm._trace.reading import Reading, of_reading

Values = Float[Array, "..."]


@of_reading
def collect_preactivations(
    net: Reading,
    params: PyTree = None,
    *inputs: Any,
    layout: Layout | None = None,
) -> tuple[Any, dict[str, Values]]:
    """Runs a model and returns its output together with the pre-activations of its kernels.

    The model is traced, so nothing in it changes and nothing is stored: the function is for use
    inside a loss, under jit and grad, where it costs trace time only.

    `variance_constancy_loss` reads 2n rows. Pass these rows alone, ``X[: 2 * n]``, and run the
    model on the whole minibatch as without the loss. In a model whose samples do not interact the
    pre-activations are those of the minibatch. Batch normalization would normalize the 2n rows by
    their own statistics, and a random mask (dropout) would be drawn again: keep the running
    statistics and the output of the whole minibatch, and drop those of the 2n rows.

    Args:
        net: the model, as `read` returns it.
        params: current parameters, if they are not the reading's; nodes are made effective.
        *inputs: the current minibatch and the other arguments, if they are not the reading's.
        layout: which leaves are kernels; None for the reading's. ``exclude("^head/")``
            leaves the logits out.

    Returns:
        The model's output, and a dict of pre-activations by the path of their kernel, in execution
        order: w'x + b if the model adds its bias to the product directly, as the layers of every
        library do; else w'x. A bias is a term that depends on no input, at any batch size and for a
        single sample. Rows are the first axis and units the last ones, also for convolutions with
        channels first, for ``jax.vmap`` of ``w @ x``, and for products with groups of units such as
        the members of an ensemble. A kernel that is used more than once has its last use in the
        dict.

        A kernel that is a stack of layers, as ``nn.scan``, ``nnx.scan`` and ``jax.lax.scan`` slice
        it, has one entry (rows, layers, ...) whatever the stack's axis of layers: a unit of another
        layer is another unit. Its `variance_constancy_loss` is the mean over its layers of their
        losses; times the number of layers it is the `total_variance_constancy` of separate layers.

    Raises:
        ValueError: if the layout constrains nothing, or contains a kernel that the model does not
            multiply its input by, or that it also multiplies in another form (its square, say), or
            uses inside a loop other than a scan over stacked kernels, one layer per turn.

    Warns:
        UserWarning: for a kernel inside a function with a custom derivative (``jax.custom_vjp``)
            that continues after the product: the gradient is then that of the function's equations.
            A function that ends with the product keeps its derivative.

    Under jit, pmap and shard_map the pre-activations are those of the rows that the model sees.

    Example:
        >>> from jaxnorm import read
        >>> import jax, jax.numpy as jnp
        >>> apply = lambda params, x: jax.nn.relu(x @ params["kernel"])
        >>> net = read(apply, {"kernel": -jnp.eye(2)}, jnp.ones((4, 2)))
        >>> output, layers = collect_preactivations(net)
        >>> output.sum().item(), layers["kernel"].sum().item()
        (0.0, -8.0)
    """

    def visit(call: KernelCall, collected: Any) -> tuple[Values, Values]:
        return call.output, call.output

    net = net.now(params, inputs)
    output, collected = run_layers(net, layout, visit, bias="included")
    return output, {
        str(path): jnp.moveaxis(values, len(layers), 0) if layers else values
        for path, (values, layers) in collected.items()
    }
