"""Pictures of any kind: read whole; or cropped, streamed, and never all in memory."""

import os
import shutil
import tracemalloc

import jax
import numpy as np
import pytest
from PIL import Image

from experiments.data.crops import at_random, middle
from experiments.data.load import load
from experiments.data.pictures import Pictures, load_pictures
from experiments.data.stream import Stream, cropped_where_read, make_streamed
from experiments.data.tfds import labelled
from experiments.errors import UserError
from experiments.papers.data import load_data
from experiments.runs.spec import rows_digest
from tests.experiments.records import write_records

SIDE = 8
COUNTS = {"train": 12, "test": 5}


def picture(number, label):
    """Makes a picture of its own size, with its class in red and its number in green."""
    pixels = np.zeros((20 + number, 40 - number, 3), np.uint8)
    pixels[..., 0], pixels[..., 1] = 80 * label, 10 * number
    return pixels


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("imagenet")
    for part, count in COUNTS.items():
        for number in range(count):
            place = root / "imagenet" / part / "abc"[number % 3]
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(picture(number, number % 3)).save(place / f"{number:02}.png")
    return root


def epoch(data, seed, number, size=4):
    stream = data.stream._replace(crops=True)
    found = [jax.device_get(batch) for batch in stream.batches(seed, number, size)]
    return [np.concatenate(each) for each in zip(*found, strict=True)]


def test_a_folder_gives_squares_and_each_row_once(folder):
    data = load_data(folder, "imagenet", 0, None, None, side=SIDE)
    assert (data.train_rows, data.num_classes, len(data.stream.test)) == (12, 3, 5)
    X, y = epoch(data, 0, 0)
    assert (X.shape, X.dtype) == ((12, SIDE, SIDE, 3), np.uint8)
    # Red says the class, green which picture it is.
    np.testing.assert_array_equal(X[:, 0, 0, 0], 80 * y)
    assert sorted(X[:, 0, 0, 1].tolist()) == [10 * number for number in range(12)]


def test_records_give_the_same_pictures(folder, tmp_path):
    write_records(folder / "imagenet", tmp_path)
    records, files = load_pictures(tmp_path, SIDE), load_pictures(folder / "imagenet", SIDE)
    assert (records.train_rows, records.num_classes) == (12, 3)
    for one, other in zip(records.stream[:2], files.stream[:2], strict=True):
        X, y = (each[np.arange(len(each))] for each in (one, other))
        seen = [sorted(zip(p[:, 0, 0].tolist(), q.tolist(), strict=True)) for p, q in (X, y)]
        assert seen[0] == seen[1]


def test_a_picture_of_too_many_pixels_in_records_is_refused(folder, tmp_path):
    """Other pictures are read; without the limit, 16,000 x 16,000 pixels would be decoded."""
    shutil.copytree(folder / "imagenet" / "train", tmp_path / "files" / "train")
    (tmp_path / "files/test/a").mkdir(parents=True)
    Image.new("1", (16_000, 16_000)).save(tmp_path / "files/test/a/large.png")
    write_records(tmp_path / "files", tmp_path / "records")
    with pytest.raises(UserError, match=r"of row 0: .*bomb"):
        load_pictures(tmp_path / "records", SIDE).stream.test[[0]]


def test_the_middle_is_the_middle():
    pixels = np.zeros((64, 96, 3), np.uint8)
    pixels[4:60, 20:76] = 255  # 56 = 64 * 224 / 256, around the centre.
    pixels[30, 30] = 7
    np.testing.assert_array_equal(middle(Image.fromarray(pixels), 56), pixels[4:60, 20:76])
    grey = Image.fromarray(pixels[..., 0])
    assert middle(grey, 7).shape == (7, 7, 3)


def test_random_crops_have_the_papers_areas_and_ratios():
    """The pixels of the picture encode their positions, so that corners can be read off a crop."""
    places = np.mgrid[0:256, 0:256].astype(np.uint8)
    image = Image.fromarray(np.stack([places[0], places[1], 0 * places[0]], -1))
    random = np.random.default_rng(0)
    crops = np.array([at_random(image, 64, random) for _ in range(400)], np.float64)
    # Centres of the outer pixels are half a pixel of the crop inside.
    high = (crops[:, -1, 0, 0] - crops[:, 0, 0, 0]) * 64 / 63
    wide = (crops[:, 0, -1, 1] - crops[:, 0, 0, 1]) * 64 / 63
    areas, ratios = high * wide / 256**2, wide / high
    assert 0.06 < areas.min() < 0.12
    assert areas.max() > 0.85
    # Uniform in area but for parts that do not fit.
    assert 0.4 < areas.mean() < 0.56
    assert 0.7 < ratios.min() < 0.8
    assert 1.25 < ratios.max() < 1.42
    assert abs(np.log(ratios).mean()) < 0.03


def test_crops_are_decided_by_seed_epoch_and_row():
    noise = np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)
    source = Pictures(Listed(2 * [{"image": noise, "label": 0}]), SIDE)
    first, same, later, other = (
        source.cropped(*place)[[0, 1]][0] for place in ((0, 0), (0, 0), (0, 1), (1, 0))
    )
    np.testing.assert_array_equal(first, same)
    for different in (later[0], other[0], first[1]):
        assert not np.array_equal(first[0], different)


def test_crops_are_taken_where_pictures_are_whole(folder):
    streamed = load_pictures(folder / "imagenet", SIDE)
    data, augmentation = cropped_where_read(streamed, "resized-crop-flip")
    assert (data.stream.crops, augmentation) == (True, "flip")
    assert cropped_where_read(streamed, "flip") == (streamed, "flip")
    in_memory = streamed._replace(stream=None)
    assert cropped_where_read(in_memory, "resized-crop-flip") == (in_memory, "resized-crop-flip")


def test_pictures_of_a_stream_are_known_by_their_files(folder, tmp_path):
    def rows():
        return rows_digest(load_pictures(tmp_path, SIDE))

    shutil.copytree(folder / "imagenet", tmp_path, dirs_exist_ok=True)
    usual = rows()
    assert usual == rows_digest(load_pictures(folder / "imagenet", SIDE))
    file = next((tmp_path / "train").rglob("*.png"))
    os.utime(file, (0, 0))  # As an edit that leaves its size.
    assert rows() != usual


def test_a_folder_without_pictures_is_no_class(folder, tmp_path):
    """Sets in memory behave equally; test pictures may be in a folder val."""
    shutil.copytree(folder / "imagenet", tmp_path, dirs_exist_ok=True)
    (tmp_path / "train/empty").mkdir()
    (tmp_path / "test").rename(tmp_path / "val")
    data = load_pictures(tmp_path, SIDE)
    assert (data.num_classes, len(data.stream.test)) == (3, 5)


def test_a_part_without_labels_is_not_evaluated_on():
    """ImageNet's test part has the label -1 everywhere."""
    parts = {"test": [-1, -1], "validation": [2, 0]}
    assert labelled(list(parts), lambda part: parts[part][0]) == "validation"
    assert labelled(["test"], lambda part: parts[part][0]) == "test"
    train, test = (
        Pictures(Listed({"image": picture(0, 0), "label": i} for i in labels), SIDE)
        for labels in ([0, 1, 2], [-1, -1])
    )
    with pytest.raises(UserError, match="test labels are from -1 to -1"):
        make_streamed("imagenet", Stream(train, test), "abc")


def coloured(folder, size=(6, 4), suffix="png", count=4, **options):
    """Folders red, green and blue of pictures of their colour, brighter to the left."""
    for channel, name in enumerate(("red", "green", "blue")):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            pixels = np.zeros((size[1], size[0], 3), np.uint8)
            pixels[..., channel] = np.linspace(250, 100, size[0])
            file = folder / name / f"{number}.{suffix}"
            Image.fromarray(pixels).save(file, **options)
    return folder


@pytest.mark.parametrize("suffix", ["PNG", "jpeg", "bmp", "webp", "tif", "tiff"])
def test_folders_of_classes_are_split(tmp_path, suffix):
    """A quarter of each class is for the test."""
    data = load(str(coloured(tmp_path, suffix=suffix)), 0)
    assert data.classes == ("blue", "green", "red")
    assert sorted(data.y_test) == [0, 1, 2]
    for X, y in (data[:2], data[2:4]):
        # The largest channel is the class's.
        np.testing.assert_array_equal(X.mean((1, 2)).argmax(1), 2 - y)


def test_hidden_files_are_skipped_and_other_files_told_of(tmp_path):
    coloured(tmp_path)
    coloured(tmp_path / ".ipynb_checkpoints")
    (tmp_path / "red/.DS_Store").write_text("")
    (tmp_path / "red/Thumbs.db").write_text("")
    os.mkfifo(tmp_path / "blue" / "z.png")
    data = load(str(tmp_path), 0)
    assert data.classes == ("blue", "green", "red")
    left_out, classes = data.notes
    assert left_out.endswith("files left out: 2 (blue/z.png, red/Thumbs.db)")
    assert classes.endswith("12 pictures in 3 classes: blue, green, red")


def test_pictures_are_turned_as_their_camera_was_held(tmp_path):
    """Orientation 6: what lies at the left of the file is the top of the picture."""
    data = load(str(coloured(tmp_path / "as they lie")), 0)
    turned = Image.Exif()
    turned[0x0112] = 6
    coloured(tmp_path / "turned", exif=turned)
    found = load(str(tmp_path / "turned"), 0)
    np.testing.assert_array_equal(found.X_test, data.X_test.transpose(0, 2, 1, 3))
    for part in ("train", "test"):
        coloured(tmp_path / "parts" / part, exif=turned)
    streamed = load_pictures(tmp_path / "parts", 4).stream.train[[0]][0][0, ..., 2]
    assert (np.diff(streamed.mean(1)) < 0).all()
    assert (np.ptp(streamed, axis=1) == 0).all()


def test_a_phones_file_of_several_pictures_is_its_first(tmp_path):
    coloured(tmp_path, suffix="jpg")
    first, second = (Image.new("RGB", (6, 4), colour) for colour in ("red", "blue"))
    for number in range(4):
        file = tmp_path / "red" / f"{number}.jpg"
        first.save(file, format="MPO", save_all=True, append_images=[second])
    data = load(str(tmp_path), 0)
    assert data.X_train[data.y_train == 2].mean((0, 1, 2)).argmax() == 0


def test_gray_beside_colour_has_three_channels(tmp_path):
    coloured(tmp_path)
    for number, mode in enumerate(("L", "LA", "1")):
        Image.new("L", (6, 4), 255).convert(mode).save(tmp_path / "red" / f"{number}.png")
    data = load(str(tmp_path), 0)
    assert data.X_train.shape == (9, 4, 6, 3)
    white = data.X_train.max((0, 1, 2))
    assert (data.X_train == white).all((1, 2, 3)).sum() + (data.X_test == white).all(
        (1, 2, 3)
    ).sum() == 3


def test_transparency_is_said_where_there_is_some(tmp_path):
    """The colours behind it are whatever the program left there, as in icons."""
    coloured(tmp_path)
    usual = load(str(tmp_path), 0)
    for number, (colour, alpha) in enumerate((("RGBA", 255), ("RGBA", 9), ("P", 9))):
        file = tmp_path / "red" / f"{number}.png"
        image = Image.open(file).convert("RGBA")
        image.putalpha(alpha)
        image.convert(colour).save(file)
    data = load(str(tmp_path), 0)
    notes = "\n".join(data.notes)
    assert "the transparency of 2 pictures is not read (red/1.png, red/2.png)" in notes
    assert "the transparency of" not in "\n".join(usual.notes)
    for one, other in zip(data[:4], usual[:4], strict=True):
        np.testing.assert_allclose(one, other, atol=0.2)  # A palette has fewer colours.


def test_resize_makes_squares_of_the_middle(tmp_path):
    """The four middle columns of 12 x 4 pixels are left."""
    for number, name in enumerate("ab"):
        (tmp_path / name).mkdir()
        for size in ((12, 4), (4, 20), (8, 8), (4, 4)):
            pixels = np.zeros((size[1], size[0]), np.uint8)
            pixels[size[1] // 2 - 2 : size[1] // 2 + 2, size[0] // 2 - 2 : size[0] // 2 + 2] = 99
            pixels += np.uint8(number)
            Image.fromarray(pixels).save(tmp_path / name / f"{size[0]}-{size[1]}.png")
    data = load(str(tmp_path), 0, resize=4)
    assert data.X_train.shape[1:] == data.X_test.shape[1:] == (4, 4, 1)
    X, y = np.concatenate([data.X_train, data.X_test]), np.concatenate([data.y_train, data.y_test])
    # Three of four pictures are their middle alone, which is of one shade.
    flat = np.ptp(X, axis=(1, 2, 3)) == 0
    np.testing.assert_array_equal(np.bincount(y[flat]), [3, 3])


class Listed(list):
    def __getitems__(self, rows):
        return [self[row] for row in rows]


@pytest.mark.slow
def test_two_thousand_pictures_stay_on_disk(tmp_path):
    """Twenty batches of 2,000 pictures of mixed sizes take at most a tenth of their pixels."""
    random = np.random.default_rng(0)
    total = 0
    for number in range(2000):
        part = "train" if number % 10 else "test"
        place = tmp_path / part / str(number % 4)
        place.mkdir(parents=True, exist_ok=True)
        height, width = random.integers(80, 200, 2)
        coarse = Image.fromarray(random.integers(0, 256, (8, 8, 3), dtype=np.uint8))
        coarse.resize((int(width), int(height))).save(place / f"{number}.jpg")
        total += 3 * int(height) * int(width)
    data = load_pictures(tmp_path, 16)
    stream = data.stream._replace(crops=True)
    next(stream.batches(0, 1, 32))  # What is imported at the first batch is no picture.
    tracemalloc.start()
    steps = sum(1 for batch, _ in zip(stream.batches(0, 0, 32), range(20), strict=False))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert steps == 20
    assert peak < total / 10
