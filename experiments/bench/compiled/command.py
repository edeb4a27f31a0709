"""The command ``bench compiled``: compiles missing rows, then stores and shows all rows."""

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

from experiments.analysis.table import markdown, show_table
from experiments.bench.compiled import measure
from experiments.bench.compiled.flags import Compiled
from experiments.bench.compiled.parameters import KERNELS, MAKERS, OPTIMIZERS
from experiments.bench.compiled.report import (
    read_rows,
    row_of,
    spec_of,
    table_of,
    tables,
    title,
    write_row,
)
from experiments.bench.compiled.spec import BASES, Spec
from experiments.bench.compiled.step import PRIVATE, STEPS
from experiments.bench.compiled.targets import check_compiler, find_target
from experiments.errors import UserError, check_known
from experiments.models.own_code import is_from_file
from experiments.models.registry import MODELS
from experiments.runs.files import prepare_folder, write_whole
from experiments.runs.progress import progress

STEP_METHODS = ["none", "bn", "gn", "cwo", "lcw", "vcl", "normprop", "wn"]


def compile_and_show(flags: Compiled) -> None:
    """Compiles the programs that the flags name, and shows all rows of their table."""
    specs = specs_of(flags)
    check_compiler(find_target(flags.target))
    path = prepare_folder(flags.out) / "compiled.csv"
    there = set() if flags.fresh else {spec_of(row) for row in read_rows(path)}
    missing = [spec for spec in specs if spec not in there]
    failed = compile_into(path, missing, flags.jobs)
    show(path, specs[0])
    if failed:
        raise UserError("; ".join(failed))


def specs_of(flags: Compiled) -> list[Spec]:
    """Returns the compilations that the flags name, the baseline first.

    Raises:
        UserError: for an unknown name, or a sharded step.
    """
    if flags.what == "step":
        if not is_from_file(flags.model):
            check_known("model", flags.model, MODELS)
        if flags.shard:
            raise UserError("--shard is for --what update and effective; a step shards its rows.")
        known, usual, ending = [*STEPS], STEP_METHODS, PRIVATE
        base = Spec(**{field.name: getattr(flags, field.name) for field in fields(Spec)})
    else:  # The programs do not depend on the sizes of networks.
        known = [*(OPTIMIZERS if flags.what == "update" else MAKERS)]
        usual, ending = known, ""
        base = Spec(flags.target, flags.what, KERNELS, "float32", shard=flags.shard)
    names = [name.strip() for name in flags.methods.split(",") if name.strip()] or usual
    for name in names:
        check_known("method", name.removesuffix(ending), known)
    return [replace(base, method=name) for name in dict.fromkeys([BASES[flags.what], *names])]


def compile_into(path: Path, specs: Sequence[Spec], jobs: int) -> list[str]:
    """Compiles, writes each row as soon as it is measured, and returns the failures."""
    failed = []
    with progress(len(specs)) as (advance, say):
        for spec, costs in measure.compile_all(specs, jobs):
            advance(spec.method)
            if isinstance(costs, str):
                failed.append(f"{spec.method}: {costs}")
                say(f"{spec.method}: failed")
            else:
                write_row(path, row_of(spec, costs))
                size, seconds = costs["hbm_bytes"] / 1e9, costs["compile_s"]
                say(f"{spec.method}: {size:.3g} GB, {seconds:.0f} s")
    return failed


def show(path: Path, spec: Spec) -> None:
    """Prints the table of a compilation, and writes all tables."""
    groups = tables(read_rows(path))
    if rows := groups.get(replace(spec, method="")):
        print(f"\n{title(rows[0])}\n")
        show_table(table_of(rows))
    if groups:
        texts = (f"{title(g[0])}:\n\n{markdown(table_of(g))}\n" for g in groups.values())
        write_whole(path.with_name("table.md"), "\n".join(texts))
        print(f"\nEstimates are rooflines; nothing was run. Written to {path.parent}: {path.name},")
        print("table.md, with what was there before.")
