"""A U-Net with two images per step: batch normalization, GroupNorm, and neither.

    python examples/segmentation.py --out runs/segmentation

Discs and squares pasted into parts of two photographs that scikit-learn ships, a class at each
pixel. FOLDER gets runs.csv, a line per norm, rate and seed, from which a second call goes on, and
masks.png, predictions under the first seed at the last rate. Batch normalization is scored with
statistics estimated anew by the final weights, as `settled` says. With ``--data FILE.npz`` (X:
images, y: label maps) the images are yours; with ``--shapes`` discs and squares of any color in
noise. With ``--residual`` the network is a residual U-Net, whose skips are added.
"""

import argparse
import csv
import itertools
import zlib
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import jaxnorm as jn
from examples.networks.residual_unet import ResidualUNet

COLUMNS = ("norm", "rate", "seed", "steps", "miou", "statistics", "images", "network")

NORMS = ("batch normalization", "GroupNorm", "normalizer-free")


class DoubleConv(nnx.Module):
    """Two convolutions of 3 x 3, each with batch normalization and a ReLU."""

    def __init__(self, inputs: int, outputs: int, rngs: nnx.Rngs):
        conv = partial(nnx.Conv, kernel_size=(3, 3), rngs=rngs)
        self.conv1, self.conv2 = conv(inputs, outputs), conv(outputs, outputs)
        self.norm1, self.norm2 = (nnx.BatchNorm(outputs, rngs=rngs) for _ in range(2))

    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns activations of the same sides."""
        x = nnx.relu(self.norm1(self.conv1(x)))
        return nnx.relu(self.norm2(self.conv2(x)))


class UNet(nnx.Module):
    """Three levels down and up, with concatenated skips (Ronneberger et al. 2015)."""

    def __init__(self, rngs: nnx.Rngs, inputs: int = 3, width: int = 16):
        a, b, c = width, 2 * width, 4 * width
        double = partial(DoubleConv, rngs=rngs)
        self.down1, self.down2, self.middle = double(inputs, a), double(a, b), double(b, c)
        up = partial(nnx.ConvTranspose, kernel_size=(2, 2), strides=(2, 2), rngs=rngs)
        self.up2, self.merge2 = up(c, b), double(2 * b, b)
        self.up1, self.merge1 = up(b, a), double(2 * a, a)
        self.out = nnx.Conv(a, 3, (1, 1), rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns logits at each pixel."""
        pool = partial(nnx.max_pool, window_shape=(2, 2), strides=(2, 2))
        fine = self.down1(x)
        coarse = self.down2(pool(fine))
        x = self.middle(pool(coarse))
        x = self.merge2(jnp.concatenate([coarse, self.up2(x)], axis=-1))
        x = self.merge1(jnp.concatenate([fine, self.up1(x)], axis=-1))
        return self.out(x)


def network(residual: bool, seed: int, inputs: int) -> nnx.Module:
    """Returns a U-Net, or a residual one, with batch normalization."""
    if residual:
        return ResidualUNet(nnx.Rngs(seed), (32, 32, inputs), classes=3, width=16)
    return UNet(nnx.Rngs(seed), inputs)


def group_norm(batch_norm: Any) -> nnx.Module:
    """Returns GroupNorm of eight groups in the place of batch normalization."""
    return nnx.GroupNorm(batch_norm.num_features, num_groups=8, rngs=nnx.Rngs(0))


def initial(norm: str, model: nnx.Module, optimizer: Any, x: jax.Array) -> Any:
    """Returns ``apply``, parameters, state and optimizer of a network with a norm."""
    if norm == "GroupNorm":
        model = jn.nnx.replace_batch_norm(model, replacement=group_norm)
    if norm != "normalizer-free":
        return *jn.nnx.functionalize(model), optimizer
    apply, params, state = jn.nnx.functionalize(jn.nnx.replace_batch_norm(model, x[:1]))
    logits = lambda params, x: apply(params, state, x, train=True)[0]  # noqa: E731
    raw, tx = jn.normalizer_free(logits, params, optimizer, x)
    return apply, raw, state, tx


def train(norm: str, model: nnx.Module, rate: float, rows_of: Any, x: Any, y: Any) -> Any:
    """Returns ``predict(images)`` after an update for each pair of rows, and what it rests on."""
    steps = len(rows_of)
    schedule = optax.warmup_cosine_decay_schedule(0.0, rate, steps // 10, steps)
    sgd = optax.chain(jn.clip_by_layer_norm(1.0), optax.sgd(schedule, momentum=0.9))
    apply, params, state, tx = initial(norm, model, sgd, x[:64])

    def loss_of(params: Any, state: Any, x: Any, y: Any, train: bool = True) -> Any:
        logits, state = apply(params, state, x, train=train)
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean(), state

    @jax.jit
    def step(params: Any, state: Any, opt_state: Any, rows: Any) -> Any:
        gradient, state = jax.grad(loss_of, has_aux=True)(params, state, x[rows], y[rows])
        updates, opt_state = tx.update(gradient, opt_state, params)
        return optax.apply_updates(params, updates), state, opt_state

    opt_state = tx.init(params)
    # No scan over the updates: a CPU's convolutions are slow inside of loops.
    for rows in rows_of:
        params, state, opt_state = step(params, state, opt_state, rows)
    chosen = ""
    if norm == "batch normalization":
        loss = jax.jit(lambda state, x, y: loss_of(params, state, x, y, train=False)[0])
        state, chosen = settled(model, params, state, x, y, loss)
    predict = jax.jit(lambda images: apply(params, state, images, train=False)[0].argmax(-1))
    return predict, chosen


def settled(model: nnx.Module, params: Any, state: Any, x: Any, y: Any, loss: Any) -> Any:
    """Returns the state with statistics of images to train on, by the final parameters.

    They are those of 600 images, 200 or two at once: the size of the batches with which the loss on
    the 200 other images is smaller. Returns that size, too.
    """
    estimate = jax.jit(jn.nnx.estimate_statistics, static_argnums=0, static_argnames="batch_size")
    sizes = (200, 2)
    states = [estimate(model, params, state, x[:600], batch_size=size) for size in sizes]
    losses = [float(loss(state, x[600:800], y[600:800])) for state in states]
    best = int(np.argmin(losses))
    return states[best], sizes[best]


def mean_iou(predicted: np.ndarray, labels: np.ndarray) -> float:
    """Returns the mean over the classes of intersection / union, in per cent."""
    both = [((predicted == c) & (labels == c)).sum() for c in range(3)]
    either = [((predicted == c) | (labels == c)).sum() for c in range(3)]
    return 100 * float(np.mean(np.divide(both, either)))


def segmented(
    draw: np.random.Generator, count: int, side: int, background: Any = None
) -> tuple[Any, Any]:
    """Returns images with discs (class 1) and squares (class 2) that may overlap, and label maps.

    Args:
        draw: random numbers.
        count: of images.
        side: pixels of a side.
        background: photographs from 0 to 1, (count, side, side, 3); None for plain grey.
    """
    rows, columns = np.mgrid[:side, :side]
    channels = 3
    x = (
        np.full((count, side, side, channels), 0.5, np.float32)
        if background is None
        else background
    )
    x, y = x.astype(np.float32).copy(), np.zeros((count, side, side), np.int32)
    for image, labels in zip(x, y, strict=True):
        for _ in range(draw.integers(2, 6)):
            kind, radius = draw.integers(1, 3), draw.integers(3, 8)
            center = draw.integers(0, side, 2)
            down, right = abs(rows - center[0]), abs(columns - center[1])
            inside = (
                down**2 + right**2 <= radius**2
                if kind == 1
                else np.maximum(down, right) <= (radius * 0.88)
            )
            image[inside] = _texture(draw, background, inside)
            labels[inside] = kind
        if background is None:
            image += draw.normal(0, 0.3, image.shape)
    return x, y


def _texture(draw: np.random.Generator, background: Any, inside: Any) -> Any:
    """Returns the pixels of an object: one colour, or a part of another photograph, recoloured."""
    color = draw.uniform(0, 1, 3)
    if background is None:
        return color
    other = background[draw.integers(len(background))][inside]
    return 0.5 * other + 0.5 * color


def crops(rng: np.random.Generator, count: int, photographs: list[np.ndarray]) -> np.ndarray:
    """Returns squares of 64 pixels out of photographs, pooled to 32, (count, 32, 32, 3)."""
    squares = np.empty((count, 64, 64, 3), np.float32)
    for square in squares:
        photograph = photographs[rng.integers(len(photographs))]
        top, left = (rng.integers(size - 63) for size in photograph.shape[:2])
        square[:] = photograph[top : top + 64, left : left + 64]
    return squares.reshape(count, 32, 2, 32, 2, 3).mean((2, 4)) / 255


def draw(images: int, tested: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Returns images with pasted objects and their label maps, the last ones to be tested on.

    No image to train on shows any part of a photograph that those of the test show.
    """
    from sklearn.datasets import load_sample_images  # two photographs of 427 x 640 pixels

    rng = np.random.default_rng(0)
    photographs = load_sample_images().images
    parts = [
        segmented(rng, count, 32, crops(rng, count, [image[:, columns] for image in photographs]))
        for count, columns in [(images - tested, slice(480)), (tested, slice(480, None))]
    ]
    x, y = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return x, y


def load(path: Path | None = None, shapes: bool = False) -> tuple[Any, Any, Any, np.ndarray]:
    """Returns 800 images to train on with their label maps, and the others to report."""
    if path is not None:
        arrays = np.load(path)
        x, y = arrays["X"].astype(np.float32), arrays["y"]
    elif shapes:
        x, y = segmented(np.random.default_rng(0), 1000, 32)
    else:
        x, y = draw(1000)
    x = (x - x[:800].mean((0, 1, 2))) / x[:800].std((0, 1, 2))
    return jnp.asarray(x[:800]), jnp.asarray(y[:800]), jnp.asarray(x[800:]), y[800:]


def write_masks(path: Path, images: Any, labels: Any, predicted: dict[str, Any]) -> None:
    """Writes a picture: image, truth and predictions of four images."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.colors import ListedColormap

    colours = ListedColormap(["#f0f0f0", "#0072B2", "#D55E00"])
    columns = {"image": (images - images.min()) / np.ptp(images), "truth": labels, **predicted}
    figure, axes = plt.subplots(4, len(columns), figsize=(1.6 * len(columns), 6.4))
    for row, name in enumerate(columns):
        for i in range(4):
            mask = {} if name == "image" else {"cmap": colours, "vmin": 0, "vmax": 2}
            axes[i, row].imshow(columns[name][i], **mask)
            axes[i, row].set_axis_off()
        axes[0, row].set_title(name, fontsize=9)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def settings_of(data: Path | None, shapes: bool, residual: bool) -> list[str]:
    """Returns the images and the network of all runs of a folder; a file with its checksum."""
    own = "" if data is None else f"{data.name} {zlib.crc32(data.read_bytes()):08x}"
    return [own or ("shapes" if shapes else "photographs"), "residual" if residual else "U-Net"]


def finished_runs(path: Path, settings: list[str]) -> list[list[str]]:
    """Returns the rows of runs.csv, which is begun if it is not there.

    Raises:
        ValueError: for runs of other images or of another network, or of an earlier version.
    """
    if not path.exists():
        path.write_text(f"{','.join(COLUMNS)}\n")
    with path.open(newline="") as file:
        header, *rows = csv.reader(file)
    if header != list(COLUMNS):
        raise ValueError(f"{path} has runs of an earlier version: take another --out")
    for row in rows:
        if row[-2:] != settings:
            raise ValueError(
                f"{path} has runs of {' and '.join(row[-2:])}, and this call is for "
                f"{' and '.join(settings)}: take another --out"
            )
    return rows


def main() -> None:
    """Trains what is missing, prints the mean IoU of each norm, and draws masks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="FILE.npz of X and y")
    parser.add_argument("--shapes", action="store_true", help="discs and squares in noise")
    parser.add_argument("--residual", action="store_true", help="a U-Net whose skips are added")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--norms", nargs="+", default=NORMS, choices=NORMS)
    parser.add_argument("--rates", type=float, nargs="+", default=[0.03])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=800)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "runs.csv"
    settings = settings_of(options.data, options.shapes, options.residual)
    try:
        finished = finished_runs(path, settings)
    except ValueError as error:
        parser.error(str(error))
    x, y, test_x, test_y = load(options.data, options.shapes)
    for norm, seed, rate in itertools.product(options.norms, range(options.seeds), options.rates):
        key = [norm, f"{rate:g}", str(seed), str(options.steps)]
        if any(row[: len(key)] == key for row in finished):
            continue
        model = network(options.residual, seed, x.shape[-1])
        rows = jax.random.randint(jax.random.key(seed), (options.steps, 2), 0, len(x))
        predict, statistics = train(norm, model, rate, rows, x, y)
        predicted = np.asarray(predict(test_x))
        run = [*key, f"{mean_iou(predicted, test_y):.2f}", statistics, *settings]
        with path.open("a", newline="") as file:
            csv.writer(file, lineterminator="\n").writerow(run)
        print(*run, flush=True)
        if seed == 0:
            np.save(options.out / f"{norm}.npy", predicted[:4])
    masks = {norm: options.out / f"{norm}.npy" for norm in NORMS}
    if all(file.exists() for file in masks.values()):
        predicted = {norm: np.load(file) for norm, file in masks.items()}
        write_masks(options.out / "masks.png", test_x[:4], test_y[:4], predicted)


if __name__ == "__main__":
    main()
