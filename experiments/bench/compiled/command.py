"""The flags of the command ``bench compiled``; what it needs is imported when it runs."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import arg

from experiments.bench.compiled.cards import GPUS, TPUS
from experiments.bench.compiled.names import KERNELS, KNOWN, MAKERS, OPTIMIZERS, PEERS, PRIVATE
from experiments.bench.compiled.spec import BASES, Shard, Spec, What
from experiments.errors import unknown
from experiments.models.registry import MODELS

STEP_METHODS = "none,bn,gn,cwo,lcw,vcl,normprop,wn"


@dataclass(frozen=True)
class Compiled:
    """Compile for TPUs or GPUs that are not there, and read the costs off the program.

    The compilers run on any machine, without a device, and what they print is the same on every
    machine: the bytes to and from the memory of each device (HBM), the kernels that it starts, the
    collectives in which devices exchange numbers. Bytes and operations are shown over those of
    the step without normalization (none). The compilers are extras that want an environment of
    their own: pip install -e '.[compile-tpu]', or '.[compile-gpu]'.

    est. ms is an estimate: bytes over the card's bandwidth, or operations over its peak, whichever
    takes longer. A step takes at least that long; it was not run.

    Each row is added to compiled.csv as soon as it is measured.

    Example: python -m experiments bench compiled --target v5e:4x4 --model cnn9 --rows-per-device
    1024 --methods none,bn,cwo --jobs 2
    """

    target: Annotated[
        str,
        arg(
            help=f"The devices: a TPU ({', '.join(TPUS)}) and its torus, as v5e:4x4 or v4:2x2x2; a "
            f"GPU ({', '.join(GPUS)}) and how many, as h100:8."
        ),
    ] = "v5e:4x4"
    what: What = "step"
    """The program to compile: a training step of a method, an optimizer's update of parameters, or
    weights from raw parameters with the pull-back of their gradient."""
    model: Annotated[
        str,
        arg(
            help=f"The network of a step: {', '.join(MODELS)}. For update and "
            f"effective, the kernels: {', '.join(KERNELS)}. If the flag is left out, the network "
            "is cnn9, and the kernels are conv3x3 (12 of 3 x 3 x 256 x 256)."
        ),
    ] = ""
    methods: Annotated[
        str,
        arg(
            help="The names to compare, comma-separated. For step: the methods that the command "
            f"methods lists, and {', '.join(PEERS)}. A name with {PRIVATE} behind it takes "
            f"gradients of single rows. If the flag is left out, the methods are {STEP_METHODS}. "
            f"For update: {', '.join(OPTIMIZERS)}. For effective: {', '.join(MAKERS)}. "
            "The baseline is always compiled."
        ),
    ] = ""
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    """The type of a step's weights and activations; parameters and statistics are always
    float32."""
    channels: int = 64
    """The channels of a convolutional network's first stage."""
    depth: int = 3
    """The hidden layers of the mlp, the blocks of the transformer."""
    width: int = 256
    """The units of each hidden layer of the mlp, of each token of the transformer."""
    rows_per_device: int = 128
    """The number of rows per step and device of the data axis. A row has 224 x 224 colour pixels
    for resnet50, 32 x 32 for other networks, and 64 characters for the transformer."""
    entry: Literal["jit", "shard_map"] = "jit"
    """The parallelism of a step: the compiler spreads it over the devices, or each device runs it
    on its own rows."""
    mesh: str = ""
    """The devices by axis, as data=8,model=2. Rows are spread over data. If the flag is left out,
    all devices are along data."""
    shard: Shard = ""
    """Shard every kernel along its fan-in or its units, over the model axis, or over the data axis
    if the mesh has no model axis."""
    donate: bool = True
    """Let the new state take the memory of the old, as in training; without it a TPU's compiler
    finds more room in its fast memory for parameters alone."""
    jobs: int = 1
    """The number of compilations at once; each keeps about one core busy and takes 1 to 4 GB."""
    resume: bool = False
    """Compile nothing that compiled.csv has already."""
    out: Path = Path("results/bench/compiled")
    """The folder for compiled.csv, table.md and compiled.png; made if it does not exist."""

    def run(self, command: str) -> None:
        """Compiles the programs that the flags name."""
        specs = specs_of(self)
        from experiments.bench.compiled.gather import gather

        # The baseline is compiled again only if it is asked for by its name.
        named = specs[0].method in self.methods.split(",")
        kept = specs if self.resume else [] if named else specs[:1]
        gather(specs, kept, self.jobs, self.out)


def specs_of(flags: Compiled) -> list[Spec]:
    """Returns the compilations that the flags name, the baseline first.

    Raises UserError for an unknown name.
    """
    step = flags.what == "step"
    models = MODELS if step else KERNELS
    methods = KNOWN[flags.what]
    model = flags.model or ("cnn9" if step else "conv3x3")
    names = [name.strip() for name in flags.methods.split(",") if name.strip()]
    names = names or (STEP_METHODS.split(",") if step else list(methods))
    for kind, name, known in (("model", model, models), *(("method", n, methods) for n in names)):
        plain = name.removesuffix(PRIVATE) if step else name
        if plain not in known:
            raise unknown(kind, name, known)
    base = Spec(flags.what, BASES[flags.what], flags.target, model)
    base = replace(base, entry=flags.entry, mesh=flags.mesh, shard=flags.shard, donate=flags.donate)
    if step:  # The other programs do not depend on the sizes of networks.
        sizes = {name: getattr(flags, name) for name in ("dtype", "channels", "depth", "width")}
        base = replace(base, rows=flags.rows_per_device, **sizes)
    return [replace(base, method=name) for name in dict.fromkeys([base.method, *names])]
