"""Numbers of pictures that tell the class: pixels, channels, color, and the forms of files."""

import itertools
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from experiments.data.bundled import BUNDLED
from experiments.data.doubts import leak_lines
from experiments.data.load import load
from experiments.data.stream import Source, Stream, make_streamed

ROWS, SIDE = 90, 8
CLASS = np.random.default_rng(1).permutation(np.arange(ROWS) % 3)


def noise(channels: int = 3) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (ROWS, SIDE, SIDE, channels), np.uint8)


def marked(place, values, channels=3) -> np.ndarray:
    """Pictures of noise with values at a place."""
    X = noise(channels)
    X[:, *place] = np.reshape(values, (-1, *[1] * (X[:, *place].ndim - 1)))
    return X


ALL = slice(None)
FRAME = np.pad(np.zeros((SIDE - 2, SIDE - 2), bool), 1, constant_values=True)
SOME = np.random.default_rng(2).integers(0, 3, ROWS)
GRAY = np.where(CLASS[:, None, None, None] == 1, noise(1), noise())

#: Pictures that tell the class by one number, and the words that say by which.
TELLING = {
    "the first pixel": (
        marked((0, 0), CLASS),
        "pixel (0, 0) of channel 0, of 3 such, has one value",
    ),
    "the last pixel": (marked((-1, -1), 50 * CLASS), "pixel (7, 7) of channel 0, of 3 such, has"),
    "one channel of a pixel": (marked((3, 4, 1), 9 - CLASS), "pixel (3, 4) of channel 1 has one"),
    "a pixel of one class": (marked((0, 0, 2), CLASS == 2), "pixel (0, 0) of channel 2 has one"),
    "a pixel and some noise": (
        marked((0, 0, 0), 50 * CLASS + SOME),
        "pixel (0, 0) of channel 0 tells the class",
    ),
    "a channel": (marked((ALL, ALL, 0), CLASS), "mean of channel 0 has one value per class"),
    "alpha": (marked((ALL, ALL, 3), 255 - CLASS, 4), "mean of channel 3 has one value per class"),
    "a frame": (np.where(FRAME[..., None], CLASS[:, None, None, None], noise()), "pixel (0, 0)"),
    "gray pictures": (GRAY, "being gray or colored has one value per class"),
    "brightness": (noise() // 8 + 80 * CLASS[:, None, None, None], "mean of channel 0 tells"),
}


@pytest.mark.parametrize("kind", TELLING)
def test_a_number_of_pictures_that_tells_the_class_is_named(kind, tmp_path):
    X, words = TELLING[kind]
    np.savez(tmp_path / "rows.npz", X=X, y=CLASS)
    notes = load(str(tmp_path / "rows.npz"), 0).notes
    assert words in "\n".join(notes)
    assert "leave it out if it is" in "\n".join(notes)


def test_pictures_that_are_streamed_are_searched_too():
    pairs = zip(marked((0, 0), CLASS), CLASS, strict=True)
    records = [{"image": x, "label": y} for x, y in pairs]

    class Records(list):
        def __getitems__(self, rows):
            return [self[row] for row in rows]

    source = Source(Records(records), "image", "label")
    data = make_streamed("rows", Stream(source, source), "abc")
    assert "pixel (0, 0) of channel 0, of 3 such, has one value" in data.notes[0]


#: Pictures of which no number tells the class.
SILENT = {
    "noise": noise(),
    "a constant frame": np.where(FRAME[..., None], 0, noise()),
    "a pixel that nearly is the class": marked((0, 0), np.where(np.arange(ROWS) % 30, CLASS, 3)),
    "some gray pictures": np.where(SOME[:, None, None, None] == 1, noise(1), noise()),
    "objects before a background": noise() * (noise() > 128) * ~FRAME[..., None],
}


@pytest.mark.parametrize("kind", SILENT)
def test_pictures_whose_numbers_tell_nothing_have_no_note(kind, tmp_path):
    np.savez(tmp_path / "rows.npz", X=SILENT[kind], y=CLASS)
    assert load(str(tmp_path / "rows.npz"), 0).notes == ()


@pytest.mark.parametrize("count", [3, 5, 10, 20, 50])
def test_digits_have_no_note_however_few(count):
    data = BUNDLED["digits"](0)
    X, y = data.X_train, data.y_train
    order = np.random.default_rng(count).permutation(len(X))
    some = np.concatenate([order[y[order] == k][:count] for k in range(10)])
    names = [*map(str, range(10))]
    assert leak_lines("digits", X[some], y[some], names) == []
    for pair in itertools.combinations(range(0, 10, 3), 2):
        two = some[np.isin(y[some], pair)]
        assert leak_lines("digits", X[two], y[two], names) == []


def saved(folder: Path, forms: dict) -> str:
    """Saves eight pictures per class in its forms: suffix, mode, size and options."""
    random = np.random.default_rng(0)
    for name, form in forms.items():
        (folder / "set" / name).mkdir(parents=True)
        for number in range(8):
            several = form if isinstance(form, list) else [form]
            suffix, mode, size, options = several[number % len(several)]
            pixels = random.integers(0, 256, (*size, 3), np.uint8)
            image = Image.fromarray(pixels).convert(mode)
            image.save(folder / "set" / name / f"{number}{suffix}", **options)
    return str(folder / "set")


USUAL = (".png", "RGB", (16, 16), {})

#: The forms of the files of two classes, and the property that tells the class.
FORMS = {
    "gray JPEG": ((".jpg", "L", (16, 16), {}), (".jpg", "RGB", (16, 16), {}), "mode"),
    "an alpha channel": ((".png", "RGBA", (16, 16), {}), USUAL, "mode"),
    "a palette": ((".png", "P", (16, 16), {}), USUAL, "mode"),
    "the format": ((".bmp", "RGB", (16, 16), {}), USUAL, "format"),
    "the height": ((".png", "RGB", (24, 16), {}), USUAL, "height"),
    "the width": ((".png", "RGB", (16, 24), {}), USUAL, "width"),
    "the depth": (
        (".png", "P", (16, 16), {"bits": 4}),
        (".png", "P", (16, 16), {"bits": 8}),
        "bits per channel",
    ),
    "the quality": (
        (".jpg", "RGB", (16, 16), {"quality": 30}),
        (".jpg", "RGB", (16, 16), {"quality": 90}),
        "quality",
    ),
    "two formats in one class": (
        [(".bmp", *USUAL[1:]), (".webp", *USUAL[1:])],
        USUAL,
        "format",
    ),
    "nothing": (USUAL, USUAL, None),
}


@pytest.mark.parametrize("kind", FORMS)
def test_a_form_of_files_that_tells_the_class_is_named(kind, tmp_path):
    *forms, what = FORMS[kind]
    place = saved(tmp_path, dict(zip("ab", forms, strict=True)))
    with zipfile.ZipFile(tmp_path / "set.zip", "w") as file:
        for each in Path(place).rglob("*.*"):
            file.write(each, each.relative_to(tmp_path))
    for path in (place, str(tmp_path / "set.zip")):
        notes = "\n".join(load(path, 0, resize=8).notes)
        assert ("write all files alike" in notes) == (what is not None)
        assert what is None or f"the {what} of the files " in notes


def test_forms_that_both_classes_have_tell_nothing(tmp_path):
    place = saved(tmp_path, {"a": USUAL, "b": USUAL})
    for name in "ab":
        Image.new("L", (16, 16), 7).save(tmp_path / "set" / name / "0.png")
    assert not any("one value" in note or "tells" in note for note in load(place, 0).notes)
