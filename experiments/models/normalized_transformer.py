"""The decoder of nGPT, whose tokens are points of the unit sphere at every depth.

Loshchilov, Hsieh, Sun and Ginsburg 2024, "nGPT: normalized transformer with representation learning
on the hypersphere". Their positions are rotary; here positions are learned and added, as in
`Transformer`. The hidden layer of the gated mlp has 8/3 of the width, for as many parameters as an
mlp of four widths without a gate.
"""

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Num

from experiments.models.sizes import NetworkSizes
from experiments.models.transformer import HEADS, Tokens, check_sizes, embedding

#: The embedding axis of each matrix, by the path of the matrix.
EMBEDDING_AXES: tuple[tuple[str, int], ...] = (
    (r"(embedding|positions)/embedding$", -1),
    (r"(query|key|value)/kernel$", -3),
    (r"(out|second)/kernel$", -1),
    (r"(first_u|first_v|head)/kernel$", -2),
)


def unit(x: Float[Array, "*batch width"]) -> Float[Array, "*batch width"]:
    """Returns x /

    x

    , and 0 for 0.
    """
    squares = jnp.square(x).sum(-1, keepdims=True)
    return x * jax.lax.rsqrt(jnp.maximum(squares, jnp.finfo(x.dtype).tiny))


def towards(x: Tokens, branch: Tokens, rates: Float[Array, "1 1 width"]) -> Tokens:
    """Returns Norm(x + |alpha| (Norm(branch) - x)), with one alpha per unit (Eqs. 10 and 11)."""
    return unit(x + jnp.abs(rates) * (unit(branch) - x))


class LearnedScales(nnx.Module):
    """Scales that are stored at another size than they are used at, to set their learning rate.

    Args:
        shape: the shape of the scales.
        initial: the initial value in use.
        kept: the initial value as stored, which Adam sees.
    """

    def __init__(self, shape: tuple[int, ...], initial: float = 1.0, kept: float = 1.0):
        self.kept = nnx.Param(jnp.full(shape, kept))
        self.factor = initial / kept

    def __call__(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns the scales in use, with leading axes of size 1 to match ``x``."""
        kept = self.kept[...]
        return kept.reshape((1,) * (x.ndim - kept.ndim) + kept.shape) * self.factor


class NormalizedBlock(nnx.Module):
    """A step towards the attention's output, then one towards the mlp's.

    Args:
        width: the units of a token.
        rate: the initial alpha, the step size of the stream.
        rngs: the random streams of the initial parameters.
    """

    def __init__(self, width: int, rate: float, rngs: nnx.Rngs):
        heads, hidden, kept = (HEADS, width // HEADS), 8 * width // 3, width**-0.5

        def linear(inputs: int, outputs: int) -> nnx.Linear:
            return nnx.Linear(inputs, outputs, use_bias=False, rngs=rngs)

        def to_heads() -> nnx.LinearGeneral:
            return nnx.LinearGeneral(width, heads, use_bias=False, rngs=rngs)

        self.query, self.key, self.value = to_heads(), to_heads(), to_heads()
        self.out = nnx.LinearGeneral(heads, width, axis=(-2, -1), use_bias=False, rngs=rngs)
        self.first_u, self.first_v = linear(width, hidden), linear(width, hidden)
        self.second = linear(hidden, width)
        self.scale_qk = LearnedScales(heads, kept=kept)
        self.scale_u, self.scale_v = LearnedScales((hidden,)), LearnedScales((hidden,))
        self.attention_rates = LearnedScales((width,), rate, kept)
        self.mlp_rates = LearnedScales((width,), rate, kept)

    def __call__(self, x: Tokens, mask: Array) -> Tokens:
        x = towards(x, self.attention(x, mask), self.attention_rates(x))
        return towards(x, self.mlp(x), self.mlp_rates(x))

    def attention(self, x: Tokens, mask: Array) -> Tokens:
        """Softmax of sqrt(d) q'k, with scaled q and k on the sphere (Eqs. 15, 16)."""
        query, key = unit(self.query(x)), unit(self.key(x))
        scale = self.scale_qk(query)
        # nnx divides by sqrt(d), and the paper multiplies by it.
        size = query.shape[-1]
        query, key = size * scale * query, scale * key
        return self.out(nnx.dot_product_attention(query, key, self.value(x), mask=mask))

    def mlp(self, x: Tokens) -> Tokens:
        """W (u silu(v)), with scales of u and v and the root of the width (Eqs. 20 and 21)."""
        u, v = self.first_u(x), self.first_v(x)
        u, v = self.scale_u(u) * u, self.scale_v(v) * v * x.shape[-1] ** 0.5
        return self.second(u * nnx.silu(v))


class NormalizedTransformer(nnx.Module):
    """Embedding and positions, blocks, and scaled cosines with the vector of each token.

    The initial alpha is 1 / depth, of the order of the paper's 0.05 for 24 blocks.

    Args:
        sizes: the sizes of a `Transformer`.
        rngs: the random streams of the initial parameters.
    """

    def __init__(self, sizes: NetworkSizes, rngs: nnx.Rngs):
        check_sizes(sizes)
        width, classes = sizes.width, sizes.num_classes
        self.embedding = embedding(classes, width, rngs)
        self.positions = embedding(sizes.shape[0], width, rngs)
        rate = 1 / sizes.depth
        self.blocks = nnx.List(NormalizedBlock(width, rate, rngs) for _ in range(sizes.depth))
        self.head = nnx.Linear(width, classes, use_bias=False, rngs=rngs)
        self.scale_z = LearnedScales((classes,), kept=width**-0.5)

    def __call__(self, x: Num[Array, "rows length"]) -> Float[Array, "rows length classes"]:
        tokens = x.astype(jnp.int32)
        mask = nnx.make_causal_mask(tokens, dtype=bool)
        x = unit(self.embedding(tokens) + self.positions(jnp.arange(tokens.shape[1]))[None])
        for block in self.blocks:
            x = block(x, mask)
        cosines = self.head(x)
        return self.scale_z(cosines) * cosines
