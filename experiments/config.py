"""The settings of a training and of its workers, for flags, papers, checkpoints and the store."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from tyro.conf import Suppress

#: The treatment of a step that would make a number not finite. ``record``: the run goes on with it.
#: ``stop``: the run ends, and names the step. ``skip``: the update is left out.
NonFinite = Literal["record", "stop", "skip"]

#: The ways to run a step on several devices.
Parallelism = Literal["jit", "shard_map", "pmap"]

#: Any configuration; not `Self`, because the tests execute annotations.
AnyConfig = TypeVar("AnyConfig", bound="Config")


# The defaults of the optimizer were chosen on the digits' splits 100 to 104, which ``compare`` uses
# only for more than a hundred seeds. At learning rates of 0.1 and more, some methods diverge under
# some seeds.
@dataclass(frozen=True)
class Config:
    """Data, network, optimizer, methods' settings and devices of a training."""

    dataset: str = "digits"
    """The data: digits, shapes or python (bundled), FILE.npz, FILE.csv, FILE.zip or FOLDER in one
    of the formats that the command datasets describes, or NAME of a TensorFlow dataset."""
    train_rows: int | None = None
    """The number of training rows that are used, the same rows under every seed. If the flag is
    left out, all are used."""
    test_rows: int | None = None
    """The number of test rows that are used, the same rows under every seed. If the flag is left
    out, all are used."""
    label: str | None = None
    """The name of a table's column of classes. If the flag is left out, it is the column called
    label, class, target or y, or else the only column of words, or else the last."""
    resize: int | None = None
    """The side of squares that images become: the middle of each, resized; of arrays, whose side it
    divides, the means of blocks. If the flag is left out, images must have one size."""

    model: str = ""
    """The network: mlp, cnn4, cnn9, elu11, nin, sigmoid50, vgg19, resnet18, resnet50, resnet110,
    wrn28x10, dgcnn, patches, unet, transformer, transformer-unscaled, or FILE.py:NAME, a function
    of your own (rngs, shape, classes) -> network (see experiments/README.md). compare takes
    several, with commas between them. If the flag is left out, the network follows the data: cnn9
    for images, unet for images with label maps, dgcnn for point clouds, mlp for rows of features;
    --dataset python needs transformer."""
    activation: str = "relu"
    """The activation, for methods that have none of their own: relu, leaky_relu, leaky_relu_0.2,
    elu, selu, gelu, silu, sigmoid, tanh, identity."""
    depth: int = 3
    """The number of hidden layers of the mlp, or of blocks of a transformer."""
    width: int = 256
    """The number of units of each hidden layer of the mlp, or of each token of the transformer."""
    channels: int = 16
    """The channels of a convolutional network's first stage, 64 in the papers; the later ones of
    cnn9 have twice and four times as many."""
    constrain_head: bool = False
    """Also constrain the classifier's kernel, which methods leave free otherwise."""

    epochs: int = 10
    """The passes over the training rows."""
    batch_size: int = 64
    """The number of rows per step. Rows that fill no whole batch are left out of an epoch."""
    optimizer: Literal["sgd", "adam", "muon"] = "sgd"
    """SGD with momentum 0.9, Adam, or Muon on kernels and Adam on other parameters; adam and muon
    need a --learning-rate near 0.001."""
    learning_rate: float = 0.05
    """The initial learning rate, for all methods; half a cosine takes it to 0."""
    warm_up: float = 0.0
    """The share of the updates in which the learning rate rises linearly from 0."""
    weight_decay: float = 1e-3
    """Weight decay on kernels (decoupled with adam); scales and biases have none."""
    clip_layers: float | None = None
    """The largest norm of each layer's gradient (jaxnorm.clip_by_layer_norm), for all methods but
    those that clip gradients themselves. If the flag is left out, those alone do."""
    ghost_groups: int = 1
    """The number of groups of a batch for batch normalization (ghost batches) and the variance
    constancy loss. With 1, batch normalization uses the whole batch under --parallel jit, on any
    number of devices. Under shard_map and pmap it uses each device's rows, as under jit with as
    many groups as devices. The loss has one group per device."""
    augment: str = "none"
    """The augmentation of training rows in each epoch: none, flip, crop-flip, crop-flip-cutout,
    fast-autoaugment-cutout, resized-crop-flip, points, points-scaled.
    fast-autoaugment-cutout:archive.py uses its authors' sub-policies."""
    accumulate: int = 1
    """The number of microbatches per step, which run one after the other to save memory."""
    epsilon: float | None = None
    """Train with differential privacy: epsilon of the whole training, at a delta of 1 / (10 rows).
    The gradient of each row is clipped at norm 1, and noise is added to the mean of the gradients.
    Methods in which rows depend on each other, such as batch normalization, cannot be trained so.
    """
    clients: int | None = None
    """The number of clients of federated averaging. In each epoch every client trains on its own
    rows, which are mostly of two classes. Training goes on from the mean of the clients' weights,
    projected back onto the constraint."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """The type of weights and activations in training; parameters and statistics are always
    float32."""
    rate_schedule: Suppress[tuple[tuple[float, float], ...]] = ()
    """(fraction of training, factor on the initial rate from then on); empty: half a cosine."""
    rate_decay: float = 0.0
    """The share of the learning rate that each step takes away, instead of half a cosine. Such a
    run can be extended: --resume with more --epochs."""
    alpha_dropout: Suppress[float] = 0.0
    """The rate of alpha dropout after each activation."""
    head_dropout: Suppress[float] = 0.0
    """The rate of dropout before the classifier of the mlp."""
    norm_at: Suppress[int] = 0
    """The one layer of cnn4, counted from 1, that is normalized; 0 for all."""
    nonfinite: Suppress[NonFinite] = "record"
    """The treatment of a step that would make a number not finite."""

    # Each of these sets the fields of its name in all parts of a method (`Method.adjusted`).
    noise: float | None = None
    """The noise's standard deviation. This flag and the next nine keep the method's own setting if
    they are left out."""
    clip: float | None = None
    """The largest norm of a layer's gradient with constrained weights (cwo) and with the variance
    constancy loss (vcl); 0 clips none."""
    sample_size: int | None = None
    """n of the variance constancy loss: 2n rows of each batch are read."""
    vcl_weight: float | None = None
    """The factor of the variance constancy loss."""
    vcl_per_channel: bool | None = None
    """Take a channel for a unit of the variance constancy loss, not a channel at a position."""
    refresh_every: int | None = None
    """The steps between refreshes of population statistics and decay strengths."""
    population_rows: int | None = None
    """The number of rows for population statistics; all rows if there are fewer."""
    probes: int | None = None
    """The number of probes of a gamma decay strength."""
    decay_times: float | None = None
    """The factor of the predicted strength of gamma decay."""
    dropout: float | None = None
    """The rate of dropout."""

    parallel: Parallelism = "jit"
    """The parallelism of a step on several devices. With jit the compiler spreads it; with
    shard_map, and with pmap, JAX's older way, each device runs the step on its own rows."""
    mesh: str = ""
    """The devices by axis, as data=4,model=2. Rows are spread over data, and units over model. If
    the flag is left out, all devices are along data."""
    coordinator: str = ""
    """HOST:PORT of process 0, if there are several processes. On SLURM and on TPU pods say auto, or
    leave the flag out."""
    processes: int | None = None
    """The number of processes; it goes with --coordinator."""
    process_id: int | None = None
    """The number of this process, from 0; process 0 writes the files."""
    join_timeout: float = 50.0
    """The seconds in which all processes must have joined."""
    tensorboard: Path | None = None
    """The folder for TensorBoard's event files, METHOD/seed-SEED, below NETWORK of several, written
    while the run trains."""

    def changed(self: AnyConfig, **changes: Any) -> AnyConfig:
        """Returns a copy with other values of some fields."""
        return replace(self, **changes)


#: The settings of methods' parts, by the names of their fields.
OF_PARTS = (
    *("noise", "clip", "sample_size", "vcl_weight", "vcl_per_channel"),
    *("refresh_every", "population_rows", "probes", "decay_times", "dropout"),
)


@dataclass(frozen=True, kw_only=True)
class Workers:
    """The processes that train runs."""

    jobs: int = 1
    """The number of runs at once, each in a process with its share of the cores and GPUs."""

    @property
    def uses_processes(self) -> bool:
        """True if other processes than the first one train the runs."""
        return self.jobs > 1


#: One run at a time, in this process.
HERE = Workers()
