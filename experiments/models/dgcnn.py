"""The dynamic graph convolutional network of Wang et al. 2019, for point clouds."""

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int

from experiments.models.sizes import Logits, NetworkSizes
from experiments.models.style import Style, dense_block, dense_blocks

#: The channels of each edge convolution, of the features of a point, and the units of the dense
#: layers, over the first edge convolution's 64.
EDGES = (1, 1, 2, 4)
FEATURES = 16
DENSE = (8, 4)
NEIGHBOURS = 20
DROPOUT = 0.5

Points = Float[Array, "rows points features"]


class DGCNN(nnx.Module):
    """Four edge convolutions on graphs of nearest neighbours, pooling, two dense layers, a head.

    An edge convolution maps (x_j - x_i, x_i) of each point i and each of its 20 neighbours j (i is
    one of them), and takes the largest value over the neighbours. Each convolution searches the
    neighbours among its own input features. A dense map turns the four outputs into the features of
    a point; their maximum and mean over all points are the input of the dense layers. Dropout of
    rate 0.5 follows each dense layer. The authors' activation is the leaky ReLU of slope 0.2.

    Args:
        sizes: (points, coordinates) of a cloud, the number of classes, and the channels.
        style: normalizers and activation after each linear map except the last.
        rngs: the random streams of the initial parameters and of the dropout.

    Source: Wang et al. 2019 (dynamic graph CNN for learning on point clouds), section 4.1; Ikami et
    al. 2021, section 4.2.
    """

    def __init__(self, sizes: NetworkSizes, style: Style, rngs: nnx.Rngs):
        channels, before, edges = sizes.channels, sizes.shape[-1], []
        for factor in EDGES:
            edges.append(dense_block(2 * before, channels * factor, style, rngs))
            before = channels * factor
        self.edges = nnx.List(edges)
        width = channels * FEATURES
        self.features = dense_block(channels * sum(EDGES), width, style, rngs)
        widths = [2 * width, *(channels * factor for factor in DENSE)]
        self.dense = nnx.List(dense_blocks(widths, style, rngs))
        self.dropout = nnx.Dropout(DROPOUT, rngs=rngs)
        self.head = nnx.Linear(widths[-1], sizes.num_classes, rngs=rngs)

    def __call__(self, x: Points) -> Logits:
        outputs = []
        for edge in self.edges:
            x = edge(edge_features(x, NEIGHBOURS)).max(2)
            outputs.append(x)
        x = self.features(jnp.concatenate(outputs, -1))
        x = jnp.concatenate([x.max(1), x.mean(1)], -1)
        for block in self.dense:
            x = self.dropout(block(x))
        return self.head(x)


def nearest_neighbours(x: Points, count: int) -> Int[Array, "rows points count"]:
    """Returns each point's ``count`` nearest points, itself first, by Euclidean distance.

    No gradient passes through the choice. Clouds with fewer points return all of them.
    """
    x = jax.lax.stop_gradient(x)
    # The difference of squares loses fewer digits if points are centred.
    x = x - x.mean(1, keepdims=True)
    squares = jnp.square(x).sum(-1)
    closeness = 2 * x @ x.mT - squares[:, :, None] - squares[:, None, :]
    return jax.lax.top_k(closeness, min(count, x.shape[1]))[1]


def edge_features(x: Points, count: int) -> Float[Array, "rows points count both"]:
    """Returns (x_j - x_i, x_i) for each point i and each of its nearest neighbours j."""
    neighbours = jax.vmap(lambda cloud, index: cloud[index])(x, nearest_neighbours(x, count))
    centres = jnp.broadcast_to(x[:, :, None], neighbours.shape)
    return jnp.concatenate([neighbours - centres, centres], -1)
