"""Table of normalizations that directly follow a kernel, or do not; outputs stay equal."""

from contextlib import nullcontext
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxnorm.nnx import fold_batch_norm, replace_batch_norm
from tests.nnx.models import (
    WIDTH,
    Custom,
    dense,
    evaluated,
    kinds,
    norm,
    replaced,
    slashed,
    trained,
)

#: Promised accuracy in float32: sums over at most 72 weights, on values of order one.
FLOAT32 = {"rtol": 1e-5, "atol": 1e-5}
#: bfloat16: the kernel, the product, the bias and the normalization round by 2^-9 each, on values
#: up to 8.
BFLOAT16 = {"rtol": 2.0**-6, "atol": 2.0**-5}


def draw(*shape: int, dtype: Any = jnp.float32) -> jax.Array:
    return jnp.asarray(np.random.default_rng(0).normal(size=shape), dtype)


class Row(NamedTuple):
    """Model with ``layer`` and ``norm``, and the result of folding and replacing ``norm``.

    Attributes:
        forward: function of the model and its input; ``m.dropout.deterministic`` is False in
            training.
        folds: True if ``norm`` is written into the kernel for evaluation.
        replaced: True if nothing is left of it where its scale is 1; ``folds`` if None.
        shape: shape of the input.
        layer: makes the layer from ``nnx.Rngs``.
        norm: makes the normalization.
        dtype: type of the input.
        standardizes: True if ``norm`` reads the input, so that replacing it warns.
    """

    forward: Any
    folds: bool = True
    replaced: bool | None = None
    shape: tuple[int, ...] = (6, WIDTH)
    layer: Any = dense
    norm: Any = norm
    dtype: Any = jnp.float32
    standardizes: bool = False

    def model(self) -> Any:
        rngs = nnx.Rngs(0)
        layers = {"layer": self.layer(rngs), "norm": self.norm(rngs), "second": dense(rngs)}
        for layer in (layers["layer"], layers["second"]):
            if layer.bias is not None:
                values = jnp.linspace(-1.0, 1.0, len(layer.bias[...]))
                layer.bias[...] = values.astype(layer.bias[...].dtype)
        more = {"dropout": nnx.Dropout(0.5, rngs=rngs), "seen": nnx.Variable(jnp.zeros(()))}
        return trained(Custom(self.forward, **layers, **more))

    def input(self) -> jax.Array:
        return draw(*self.shape, dtype=self.dtype)


def plain(m: Any, x: Any) -> Any:
    return m.norm(m.layer(x))


def stays(forward: Any, **options: Any) -> Row:
    return Row(forward, folds=False, **options)


def read_in_training(forward: Any) -> Row:
    """Row whose layer has another reader in training; it folds in evaluation."""
    return Row(forward, replaced=False)


def of(kind: Any, *shape: int, folds: bool = True, **settings: Any) -> Row:
    """Row with a convolution of 4 channels, or a dense layer, on an input of this shape."""
    sizes = (shape[-1], WIDTH, (3, 3)) if kind is not nnx.Linear else (shape[-1], WIDTH)
    return Row(plain, folds, shape=shape, layer=lambda rngs: kind(*sizes, rngs=rngs, **settings))


def half(param_dtype: Any) -> Row:
    """Row whose kernel and bias are cast to bfloat16 before the product."""
    types = {"dtype": jnp.bfloat16, "param_dtype": param_dtype}
    return Row(
        plain,
        layer=lambda rngs: dense(rngs, **types),
        norm=lambda rngs: norm(rngs, **types),
        dtype=jnp.bfloat16,
    )


def moved(move: Any) -> Row:
    """Row with a form of the layer's output whose last axis is not the units in their order."""
    features = move(jnp.ones((6, WIDTH))).shape[-1]
    return stays(
        lambda m, x: m.norm(move(m.layer(x))), norm=lambda rngs: nnx.BatchNorm(features, rngs=rngs)
    )


def added(bias: Any) -> Row:
    """Row with a form of the layer's bias, added by hand."""
    return stays(
        lambda m, x: m.norm(x @ m.layer.kernel[...] + bias(m.layer.bias[...])), shape=(WIDTH, WIDTH)
    )


def stored(m: Any, x: Any) -> Any:
    y = m.layer(x)
    if not m.dropout.deterministic:
        m.seen[...] = y.mean()
    return m.norm(y)


def shared_in_a_branch(m: Any, x: Any) -> Any:
    y = m.norm(m.layer(x))
    return jax.lax.cond(y.sum() < jnp.inf, lambda: m.norm(y), lambda: y)


def kernel_in_a_branch(m: Any, x: Any) -> Any:
    y = m.norm(m.layer(x))
    return jax.lax.cond(y.sum() < jnp.inf, lambda: m.layer(y), lambda: y)


def carried(m: Any, x: Any) -> Any:
    """Loop whose next turn reads the layer's output."""

    def turn(state: Any, _: None) -> Any:
        y = m.layer(state)
        return y, m.norm(y)

    return jax.lax.scan(turn, x, length=3)[1]


IMAGE = (2, 5, 5, 4)
MASK = jnp.ones((3, 3, 4, WIDTH)).at[0].set(0.0)
ROWS: dict[str, Row] = {
    "bias": Row(plain),
    "no bias": of(nnx.Linear, 6, 5, use_bias=False),
    "rank 1": of(nnx.Linear, 5),
    "rank 4": of(nnx.Linear, 2, 3, 2, 5),
    "layer of a layer": Row(lambda m, x: m.norm(m.second(m.layer(x)))),
    "convolution": of(nnx.Conv, *IMAGE),
    "strided": of(nnx.Conv, *IMAGE, strides=2),
    "dilated": of(nnx.Conv, *IMAGE, kernel_dilation=2),
    "grouped": of(nnx.Conv, *IMAGE, feature_group_count=4, padding="VALID"),
    "circular": of(nnx.Conv, *IMAGE, padding="CIRCULAR"),
    "one image": of(nnx.Conv, 5, 5, 4),
    "more batch axes": of(nnx.Conv, 2, 3, 5, 5, 4),
    "masked": of(nnx.Conv, *IMAGE, mask=MASK, folds=False),
    "transposed convolution": of(nnx.ConvTranspose, *IMAGE),
    "strided, transposed": of(nnx.ConvTranspose, *IMAGE, strides=2, use_bias=False),
    "transposed, with its kernel": of(nnx.ConvTranspose, *IMAGE, transpose_kernel=True, strides=2),
    "dilated, transposed": of(nnx.ConvTranspose, *IMAGE, kernel_dilation=2, padding="VALID"),
    "one image, transposed": of(nnx.ConvTranspose, 5, 5, 4, transpose_kernel=True),
    "more batch axes, transposed": of(nnx.ConvTranspose, 2, 3, 5, 5, 4),
    # Circular padding is summed after the product.
    "circular, transposed": of(nnx.ConvTranspose, *IMAGE, padding="CIRCULAR", folds=False),
    "masked, transposed": of(nnx.ConvTranspose, *IMAGE, mask=MASK, folds=False),
    "jitted": Row(lambda m, x: nnx.jit(plain)(m, x)),
    "jitted by JAX": Row(lambda m, x: jax.jit(lambda x: plain(m, x))(x)),
    "checkpointed": Row(lambda m, x: jax.checkpoint(lambda x: plain(m, x))(x)),
    "rematerialized": Row(lambda m, x: nnx.remat(plain)(m, x)),
    "the last axis from the front": Row(plain, norm=lambda rngs: norm(rngs, axis=1)),
    "in bfloat16": half(jnp.bfloat16),
    "in bfloat16, of float32": half(jnp.float32),
    "converted between": Row(
        lambda m, x: m.norm(m.layer(x).astype(jnp.float32)),
        layer=lambda rngs: dense(rngs, dtype=jnp.bfloat16),
    ),
    "with its own type": Row(plain, norm=lambda rngs: norm(rngs, dtype=jnp.bfloat16)),
    "along another axis": stays(
        plain, shape=(2, WIDTH, WIDTH), norm=lambda rngs: norm(rngs, axis=1)
    ),
    "activation between": stays(lambda m, x: m.norm(nnx.relu(m.layer(x)))),
    "scale between": stays(lambda m, x: m.norm(2.0 * m.layer(x))),
    "kernel scaled": stays(
        lambda m, x: m.norm(x @ (m.layer.kernel[...] / 2) + m.layer.bias[...][None])
    ),
    "layer called twice": stays(lambda m, x: m.norm(m.layer(nnx.relu(m.layer(x))))),
    "sum of layers": stays(lambda m, x: m.norm(m.layer(x) + m.layer(-x))),
    "another layer's bias": stays(lambda m, x: m.norm(m.layer(x) + m.second.bias[...][None])),
    "bias twice": stays(lambda m, x: m.norm(m.layer(x) + m.layer.bias[...][None])),
    "bias after": stays(lambda m, x: m.norm(x @ m.layer.kernel[...]) + m.layer.bias[...][None]),
    "no bias added": stays(lambda m, x: m.norm(x @ m.layer.kernel[...])),
    "no bias to add": stays(
        lambda m, x: m.norm(x @ m.layer.kernel[...]), layer=lambda r: dense(r, use_bias=False)
    ),
    "bias one for all": added(lambda b: jnp.broadcast_to(b[:1], (WIDTH, WIDTH))),
    "bias per row": added(lambda b: jnp.broadcast_to(b[:, None], (WIDTH, WIDTH))),
    "bias turned round": added(lambda b: jax.lax.rev(b, (0,))[None]),
    "returned too": stays(lambda m, x: jnp.concatenate([m.norm(y := m.layer(x)), y], -1)),
    "read by a mean": stays(lambda m, x: (y := m.layer(x)).mean() + m.norm(y)),
    "kernel in a product of its own": stays(
        lambda m, x: plain(m, x) + jnp.ones((1, WIDTH)) @ (2 * m.layer.kernel[...])
    ),
    "bias times another kernel": stays(
        lambda m, x: plain(m, x) + m.layer.bias[...][None] @ m.second.kernel[...]
    ),
    "tied decoder": stays(lambda m, x: nnx.relu(plain(m, x)) @ m.layer.kernel[...].T),
    "weight decay": stays(lambda m, x: plain(m, x) + (m.layer.kernel[...] ** 2).sum()),
    "bias decay": stays(lambda m, x: plain(m, x) + (m.layer.bias[...] ** 2).sum()),
    "kernel in a branch": stays(kernel_in_a_branch),
    "before the layer": stays(lambda m, x: m.layer(m.norm(x)), standardizes=True),
    "never called": stays(lambda m, x: m.layer(x)),
    "called twice": stays(lambda m, x: m.norm(m.second(nnx.relu(plain(m, x))))),
    "called twice, once elsewhere": stays(
        lambda m, x: m.norm(m.second(nnx.relu(m.norm(nnx.relu(m.layer(x))))))
    ),
    "called again in a branch": stays(shared_in_a_branch),
    "inside a loop": stays(
        lambda m, x: jax.lax.scan(lambda h, _: (plain(m, h), None), x, length=2)[0]
    ),
    "carried": stays(carried),
    "rolled": moved(lambda y: jnp.roll(y, 1, -1)),
    "turned round": moved(lambda y: jax.lax.rev(y, (1,))),
    "a half of them": moved(lambda y: y.reshape(12, WIDTH // 2)),
    "one of them": moved(lambda y: y[:, :1]),
    "beside a copy": moved(lambda y: jnp.concatenate([y, y], -1).reshape(-1, WIDTH)),
    "transposed": moved(lambda y: jnp.tile(y, (2, 1))[:WIDTH].T),
    "sorted": moved(lambda y: jnp.sort(y, axis=1)),
    "merged with positions": moved(lambda y: y[:, : WIDTH // 2].reshape(3, WIDTH)),
    # Dropout would drop a bias in front of it too.
    "dropped": read_in_training(lambda m, x: m.norm(m.dropout(m.layer(x)))),
    "returned in training": read_in_training(
        lambda m, x: m.norm(m.layer(x)) if m.dropout.deterministic else (m.norm(y := m.layer(x)), y)
    ),
    "stored in training": read_in_training(stored),
    "decayed in training": read_in_training(
        lambda m, x: (
            plain(m, x) + (0.0 if m.dropout.deterministic else (m.layer.bias[...] ** 2).sum())
        )
    ),
}
EACH = pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)


def assert_close(result: Any, expected: Any, *types: Any) -> None:
    assert result.dtype == expected.dtype
    tolerance = BFLOAT16 if jnp.bfloat16 in types else FLOAT32
    np.testing.assert_allclose(np.float64(result), np.float64(expected), **tolerance)


@pytest.mark.kept("convolution", "transposed, with its kernel")
@EACH
def test_it_folds_or_remains_and_computes_the_same(row: Row) -> None:
    model, x = row.model(), row.input()
    folded, remaining = fold_batch_norm(model, x)
    assert list(map(slashed, remaining)) == ([] if row.folds else ["norm"])
    assert folded.layer.kernel.dtype == model.layer.kernel.dtype
    assert_close(folded(x), evaluated(model, x), model.layer.dtype, model.norm.dtype)


@pytest.mark.kept(
    "in bfloat16",
    "checkpointed",
    "one of them",
    "grouped",
    "jitted",
    "circular",
    "carried",
    "inside a loop",
    "beside a copy",
)
@EACH
def test_a_scale_of_one_is_carried_by_the_kernel_or_by_a_layer(row: Row) -> None:
    """With the statistics of a new model and epsilon 0 the outputs are equal."""
    model, x = row.model(), row.input()
    model.norm.scale[...] = jnp.ones_like(model.norm.scale[...])
    model.norm.mean[...] = jnp.zeros_like(model.norm.mean[...])
    model.norm.var[...] = jnp.ones_like(model.norm.var[...])
    model.norm.epsilon = 0.0
    warns = pytest.warns(UserWarning, match="standardize") if row.standardizes else nullcontext()
    with warns:
        new: Any = replace_batch_norm(model, x)
    carried = row.folds if row.replaced is None else row.replaced
    assert kinds(new)["norm"] == ("Identity" if carried else "ScaleAndBias")
    if not carried and model.layer.bias is not None:
        np.testing.assert_array_equal(new.layer.bias[...], model.layer.bias[...])
    types = model.layer.dtype, model.norm.dtype
    assert_close(evaluated(new, x), evaluated(model, x), *types)


def sharing(variable: str) -> Any:
    """Model whose two layers share a kernel or a bias, which cannot differ after a fold."""
    model = Row(lambda m, x: m.second(nnx.relu(plain(m, x)))).model()
    setattr(model.second, variable, getattr(model.layer, variable))
    return model


def two_in_a_row(rngs: nnx.Rngs) -> Any:
    layers = {"layer": dense(rngs), "first": norm(rngs), "second": norm(rngs)}
    return Custom(lambda m, x: m.second(m.first(m.layer(x))), **layers)


def in_a_tuple(rngs: nnx.Rngs) -> Any:
    """Model with its layers in a tuple."""
    layers = nnx.data((dense(rngs), norm(rngs)))
    return Custom(lambda m, x: m.layers[1](m.layers[0](x)), layers=layers)


#: Models of other layers, and the normalizations that remain.
OTHERS: dict[str, tuple[Any, list[str]]] = {
    "a shared kernel": (lambda rngs: sharing("kernel"), ["norm"]),
    "a shared bias": (lambda rngs: sharing("bias"), ["norm"]),
    "two in a row": (two_in_a_row, ["second"]),
    "in a tuple": (in_a_tuple, []),
}


@pytest.mark.parametrize("name", OTHERS)
def test_models_of_other_layers(name: str) -> None:
    make, expected = OTHERS[name]
    model, x = trained(make(nnx.Rngs(0))), draw(6, WIDTH)
    folded, remaining = fold_batch_norm(model, x)
    assert list(map(slashed, remaining)) == expected
    assert_close(folded(x), evaluated(model, x))
    assert "BatchNorm" not in kinds(replaced(model)).values()


def test_the_replaced_network_adds_its_bias_after_a_dropout() -> None:
    """After the dropout: with all values dropped, the output is the bias alone."""
    model = ROWS["dropped"].model()
    model.dropout.rate = 1.0
    model.norm.scale[...] = jnp.ones(WIDTH)
    new: Any = replaced(model, draw(6, WIDTH))
    new.train()
    expected = np.broadcast_to(model.norm.bias[...], (6, WIDTH))
    np.testing.assert_allclose(new(draw(6, WIDTH)), expected, **FLOAT32)


def test_a_model_that_cannot_be_called_in_training_says_what_it_needs() -> None:
    """Its dropout gets its random keys with the call."""

    class Model(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.layer, self.norm, self.dropout = dense(rngs), norm(rngs), nnx.Dropout(0.5)

        def __call__(self, x: Any, rngs: Any = None) -> Any:
            return self.dropout(plain(self, x), rngs=rngs)

    model, x = Model(nnx.Rngs(0)), draw(6, WIDTH)
    with pytest.raises(ValueError, match=r"in training.*rngs=nnx\.Rngs\(0\)"):
        replace_batch_norm(model, x)
    assert kinds(replace_batch_norm(model, x, rngs=nnx.Rngs(1)))["norm"] == "Identity"
    assert kinds(replace_batch_norm(model))["norm"] == "ScaleAndBias"
