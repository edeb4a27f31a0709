"""The command ``bench compiled``: compiles missing rows, then stores and shows all rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from experiments.analysis.table import markdown, show_table
from experiments.bench.compiled import measure
from experiments.bench.compiled.parameters import KERNELS, MAKERS, OPTIMIZERS
from experiments.bench.compiled.report import (
    Row,
    configurations,
    merged,
    picture_of,
    read_rows,
    table_of,
    title,
    write_rows,
)
from experiments.bench.compiled.spec import BASES, Dtype, Shard, Spec, What
from experiments.bench.compiled.step import PEERS, PRIVATE
from experiments.bench.compiled.targets import GPUS, TPUS, check_compiler, find_target
from experiments.config import UserError, unknown
from experiments.methods.table import METHODS
from experiments.models.registry import MODELS
from experiments.runs.files import prepare_folder, write_whole
from experiments.runs.progress import progress

FILE = "compiled.csv"

STEP_METHODS = "none,bn,gn,cwo,lcw,vcl,normprop,wn"

#: The names that --methods and --model take, by --what.
KNOWN: Mapping[str, Sequence[str]] = {
    "step": [*METHODS, *PEERS],
    "update": list(OPTIMIZERS),
    "effective": list(MAKERS),
}


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
    dtype: Dtype = "bfloat16"
    """The type of a step's weights and activations; parameters and statistics are always
    float32."""
    channels: int = 64
    """The channels of a convolutional network's first stage."""
    depth: int = 3
    """The hidden layers of the mlp, the blocks of the transformer."""
    width: int = 256
    """The units of each hidden layer of the mlp, of each token of the transformer."""
    rows_per_device: int = 128
    """The number of rows per step and device. A row has 224 x 224 colour pixels for resnet50,
    32 x 32 for other networks, and 64 characters for the transformer."""
    shard: Shard = ""
    """Shard every kernel of an update or of weights along its fan-in or its units."""
    jobs: int = 1
    """The number of compilations at once; each keeps about one core busy and takes 1 to 4 GB."""
    fresh: bool = False
    """Compile again what compiled.csv has already."""
    out: Path = Path("results/bench/compiled")
    """The folder for compiled.csv, table.md and compiled.png; made if it does not exist."""

    def run(self, command: str) -> None:
        """Compiles the programs that the flags name, and shows all of this configuration."""
        specs = specs_of(self)
        check_compiler(find_target(self.target))
        path = prepare_folder(self.out) / FILE
        there = set() if self.fresh else {row.spec for row in read_rows(path)}
        failed = compile_into(path, [spec for spec in specs if spec not in there], self.jobs)
        show(specs[0].configuration, path)
        if failed:
            raise UserError("; ".join(f"{spec.method}: {why}" for spec, why in failed))


def specs_of(flags: Compiled) -> list[Spec]:
    """Returns the compilations that the flags name, the baseline first.

    Raises:
        UserError: for an unknown name, or a sharded step.
    """
    step, known = flags.what == "step", KNOWN[flags.what]
    model, models = flags.model or ("cnn9" if step else "conv3x3"), MODELS if step else KERNELS
    names = [name.strip() for name in flags.methods.split(",") if name.strip()]
    names = names or (STEP_METHODS.split(",") if step else list(known))
    if model not in models:
        raise unknown("model", model, models)
    for name in names:
        if (name.removesuffix(PRIVATE) if step else name) not in known:
            raise unknown("method", name, known)
    if step and flags.shard:
        raise UserError("--shard is for --what update and effective; a step shards its rows.")
    base = Spec(flags.what, BASES[flags.what], flags.target, model, shard=flags.shard)
    if step:  # The other programs do not depend on the sizes of networks.
        sizes = {name: getattr(flags, name) for name in ("dtype", "channels", "depth", "width")}
        base = replace(base, rows=flags.rows_per_device, **sizes)
    return [replace(base, method=name) for name in dict.fromkeys([base.method, *names])]


def compile_into(path: Path, specs: Sequence[Spec], jobs: int) -> list[tuple[Spec, str]]:
    """Compiles, writes each row as soon as it is measured, and returns failures with reasons."""
    failed = []
    with progress(len(specs)) as (advance, say):
        for spec, measurement in measure.compile_all(specs, jobs):
            advance(spec.method)
            if isinstance(measurement, str):
                failed.append((spec, measurement))
                say(f"{spec.method}: failed")
                continue
            # Read again: another command may have written since.
            write_rows(path, merged(read_rows(path), [Row(spec, measurement)]))
            size, seconds = measurement.hbm_bytes / 1e9, measurement.compile_s
            say(f"{spec.method}: {size:.3g} GB, {seconds:.0f} s")
    return failed


def show(configuration: Spec, path: Path) -> None:
    """Prints the table of this configuration, and writes the tables and pictures of all."""
    groups = configurations(read_rows(path))
    if configuration in groups:
        print(f"\n{title(configuration)}\n")
        show_table(table_of(groups[configuration]))
    if groups:
        tables = (f"{title(name)}:\n\n{markdown(table_of(g))}\n" for name, g in groups.items())
        write_whole(path.with_name("table.md"), "\n".join(tables))
        write_whole(path.with_name("compiled.png"), picture_of(list(groups.values())))
        print(f"\nEstimates are rooflines; nothing was run. Written to {path.parent}: {FILE},")
        print("table.md, compiled.png, with what was there before.")
