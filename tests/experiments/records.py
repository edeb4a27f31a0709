"""A folder of pictures, written as TensorFlow records."""

import importlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.data.images import find_images

Records = Iterator[tuple[str, dict[str, Any]]]


def write_records(folder: Path, out: Path) -> None:
    """Writes the pictures of a folder, byte by byte, as a TensorFlow dataset into ``out``."""
    tfds = importlib.import_module("tensorflow_datasets")
    images = find_images(folder)
    assert images.test is not None
    paths = ([Path(str(file)) for file in part.values()] for part in (images.train, images.test))
    files = dict(zip(("train", "test"), paths, strict=True))
    classes = images.classes
    _builder(tfds, files, classes)(data_dir=out, file_format="array_record").download_and_prepare()


def _builder(tfds: Any, files: Mapping[str, Sequence[Path]], classes: Sequence[str]) -> Any:
    features = {
        "image": tfds.features.Image(shape=(None, None, 3)),
        "label": tfds.features.ClassLabel(names=classes),
    }

    # Not registered: a name may be that of one class only.
    class Pictures(tfds.core.GeneratorBasedBuilder, skip_registration=True):  # type: ignore[call-arg, misc]
        """A builder of the pictures without changes."""

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

    return Pictures
