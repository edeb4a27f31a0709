"""What tells whether finished runs were trained on the data that are there now."""

import zlib
from collections.abc import Iterable
from pathlib import Path

from experiments.papers.data import BUNDLED, find
from experiments.reading import reading

#: The bytes of a file that are read at once.
CHUNK = 1 << 20


def data_of(data_dir: Path | None, names: Iterable[str]) -> dict[str, object]:
    """By the name of a dataset, what tells its data from others."""
    return {
        name: BUNDLED if data_dir is None else fingerprint(Path(find(data_dir, name)))
        for name in dict.fromkeys(names)
    }


def fingerprint(path: Path) -> int:
    """A number that other data change: of a file's bytes; of a folder's files, names and sizes."""
    with reading(path, "wanted the data: give their folder as --data-dir"):
        if path.is_file():
            return _of_bytes(path)
        files = sorted(each for each in path.rglob("*") if each.is_file())
        named = (f"{each.relative_to(path).as_posix()} {each.stat().st_size}\n" for each in files)
        return zlib.crc32("".join(named).encode(errors="surrogateescape"))


def _of_bytes(path: Path) -> int:
    number = 0
    with path.open("rb") as file:
        while content := file.read(CHUNK):
            number = zlib.crc32(content, number)
    return number
