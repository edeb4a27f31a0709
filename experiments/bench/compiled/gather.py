"""The run of ``bench compiled``: compiles missing rows, then stores and shows all rows."""

from collections.abc import Sequence
from pathlib import Path

from experiments.analysis.table import markdown, show_table
from experiments.bench.compiled.compilations import compiled
from experiments.bench.compiled.rows import Row, merged, read_rows, write_rows
from experiments.bench.compiled.spec import Spec
from experiments.bench.compiled.targets import check_compiler, find_target
from experiments.bench.compiled.views import picture_of, table_of, title
from experiments.errors import UserError
from experiments.runs.files import prepare_folder, write_whole
from experiments.runs.progress import progress

FILE = "compiled.csv"


def gather(specs: Sequence[Spec], kept: Sequence[Spec], jobs: int, out: Path) -> None:
    """Compiles the specs that the folder does not have, or has but are not ``kept``; shows all."""
    check_compiler(find_target(specs[0].target))
    path = prepare_folder(out) / FILE
    there = {row.spec for row in read_rows(path)}
    failed = _compile([spec for spec in specs if spec not in there or spec not in kept], jobs, path)
    _show(specs[0].configuration, path)
    if failed:
        raise UserError("; ".join(f"{spec.method}: {why}" for spec, why in failed))


def _compile(specs: list[Spec], jobs: int, path: Path) -> list[tuple[Spec, str]]:
    """Compiles, writes each row as soon as it is measured, and returns failures with reasons."""
    failed = []
    with progress(len(specs)) as (advance, say):
        for spec, measurement in compiled(specs, jobs):
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


def _show(configuration: Spec, path: Path) -> None:
    """Prints the table of this configuration, and writes the tables and pictures of all."""
    groups: dict[Spec, list[Row]] = {}
    for row in read_rows(path):
        groups.setdefault(row.spec.configuration, []).append(row)
    if configuration in groups:
        print(f"\n{title(configuration)}\n")
        show_table(table_of(groups[configuration]))
    if groups:
        tables = (f"{title(name)}:\n\n{markdown(table_of(g))}\n" for name, g in groups.items())
        write_whole(path.with_name("table.md"), "\n".join(tables))
        write_whole(path.with_name("compiled.png"), picture_of(list(groups.values())))
        print(f"\nEstimates are rooflines; nothing was run. Written to {path.parent}: {FILE},")
        print("table.md, compiled.png, with what was there before.")
