"""Photographs of mixed sizes, written as a folder and as TensorFlow records."""

import importlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from experiments.data.images import PARTS, picture_files
from experiments.errors import UserError

#: The sides in pixels, of which height and width are drawn.
SIDES = (160, 640)

Records = Iterator[tuple[str, dict[str, Any]]]


def write_enlarged(source: Path, out: Path, count: int) -> int:
    """Writes ``train|test/CLASS/*.jpg``, pictures of a folder enlarged to sizes of their own.

    Args:
        source: a folder ``train|test/CLASS/*.{jpg,png}``.
        out: the folder to write to.
        count: the training pictures; of test pictures a tenth.

    Returns:
        The bytes of all their pixels.
    """
    random, size = np.random.default_rng(0), 0
    for part, wanted in zip(PARTS, (count, max(1, count // 10)), strict=True):
        found = picture_files(source / part)
        if len(found) < wanted:
            raise UserError(
                f"{source} has {len(found):,} pictures {part}/CLASS/*.jpg or *.png; wanted "
                f"{wanted:,} to enlarge: give another --data-dir, or a smaller --enlarged."
            )
        for number in random.permutation(len(found))[:wanted]:
            path = found[number]
            width, height = map(int, random.integers(SIDES[0], SIDES[1] + 1, 2))
            place = out / part / path.parent.name / f"{number}.jpg"
            place.parent.mkdir(parents=True, exist_ok=True)
            with Image.open(path) as image:
                larger = image.convert("RGB").resize((width, height), Image.Resampling.BICUBIC)
            larger.save(place, quality=90)
            size += 3 * width * height
    return size


def write_records(folder: Path, out: Path) -> None:
    """Writes the files of such a folder, byte by byte, as a TensorFlow dataset into ``out``."""
    tfds = importlib.import_module("tensorflow_datasets")
    files = {part: picture_files(folder / part) for part in PARTS}
    classes = sorted({path.parent.name for path in files[PARTS[0]]})
    _builder(tfds, files, classes)(data_dir=out, file_format="array_record").download_and_prepare()


def _builder(tfds: Any, files: Mapping[str, Sequence[Path]], classes: Sequence[str]) -> Any:
    features = {
        "image": tfds.features.Image(shape=(None, None, 3)),
        "label": tfds.features.ClassLabel(names=classes),
    }

    # Not registered: a name may be that of one class only.
    class MixedSizes(tfds.core.GeneratorBasedBuilder, skip_registration=True):  # type: ignore[call-arg, misc]
        """Pictures of mixed sizes."""

        VERSION = tfds.core.Version("1.0.0")

        def _info(self) -> Any:
            return tfds.core.DatasetInfo(
                builder=self,
                features=tfds.features.FeaturesDict(features),
                supervised_keys=tuple(features),
            )

        def _split_generators(self, dl_manager: Any) -> dict[str, Records]:
            return {part: self._generate_examples(part) for part in files}

        def _generate_examples(self, part: str) -> Records:
            for path in files[part]:
                name = path.parent.name
                yield f"{name}/{path.name}", {"image": str(path), "label": name}

    return MixedSizes
