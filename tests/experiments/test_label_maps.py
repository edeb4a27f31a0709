"""Label maps: reading them, training on them, mIoU, and the pictures of masks."""

import inspect
from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from PIL import Image

from experiments.analysis.comparison import comparison_table, conclusion
from experiments.analysis.masks import draw_masks
from experiments.cli import main
from experiments.config import Config
from experiments.data.bundled import BUNDLED
from experiments.data.dataset import Dataset
from experiments.data.load import load
from experiments.data.shapes import CLASSES, draw_shapes
from experiments.methods import statistics
from experiments.methods.table import METHODS
from experiments.models.registry import build
from experiments.models.unet import doubled, halved
from experiments.training.devices import ONE_DEVICE, Placement, make_placement
from experiments.training.fit import fit
from experiments.training.label_maps import MEAN_IOU, confusions, mean_iou, with_maps
from experiments.training.run import Run
from experiments.training.state import Batch
from experiments.training.step import score
from experiments.training.trainer import make_trainer
from tests.experiments.toy import rows_of, run_of

RANDOM = np.random.default_rng(0)
OWN = Path(__file__).parent / "own_network.py"


def bright_pixels(rows: int = 24) -> tuple[np.ndarray, np.ndarray]:
    """Makes images of 6 x 5 pixels, with class 1 or 2 where the first or second channel is."""
    random = np.random.default_rng(1)
    y = random.integers(0, 3, (rows, 6, 5))
    X = np.stack([y == 1, y == 2], -1) + 0.25 * random.normal(size=(rows, 6, 5, 2))
    return X, y


def save(folder: Path, **arrays: np.ndarray) -> str:
    np.savez(folder / "maps.npz", **arrays)
    return str(folder / "maps.npz")


def overlaps(truth: np.ndarray, found: np.ndarray) -> list[float]:
    """Returns |A and B| / |A or B| of each class that occurs, by sets of pixels."""
    ratios = []
    for label in range(max(truth.max(), found.max()) + 1):
        both, either = (truth == label) & (found == label), (truth == label) | (found == label)
        ratios += [both.sum() / either.sum()] if either.any() else []
    return ratios


@pytest.mark.parametrize("classes", [2, 3, 7])
def test_mean_iou_is_that_of_sets_of_pixels(classes: int) -> None:
    """Also with a class in the truth alone, in the prediction alone, and in neither."""
    truth = RANDOM.integers(0, classes, (4, 5, 6))
    logits = RANDOM.normal(size=(4, 5, 6, classes)).astype(np.float32)
    truth[truth == classes - 2] = 0
    logits[..., classes // 2] -= 100 * (classes > 3)
    found = confusions(jnp.asarray(logits), jnp.asarray(truth, jnp.int32), classes)
    assert found.shape == (4, classes, classes)
    total = np.asarray(found).sum(0)
    np.testing.assert_array_equal(total.sum(1), np.bincount(truth.ravel(), minlength=classes))
    assert mean_iou(total) == pytest.approx(np.mean(overlaps(truth, logits.argmax(-1))))
    assert mean_iou(total / 7) == pytest.approx(mean_iou(total))


def test_the_loss_is_the_mean_over_pixels() -> None:
    logits, labels = RANDOM.normal(size=(3, 4, 5, 6)), RANDOM.integers(0, 6, (3, 4, 5))
    shares = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    losses = -np.log(np.take_along_axis(shares, labels[..., None], -1))[..., 0]
    got = score(jnp.asarray(logits, jnp.float32), jnp.asarray(labels, jnp.int32))
    np.testing.assert_allclose(got.loss, losses.mean((1, 2)), rtol=1e-5)
    np.testing.assert_allclose(got.accuracy, (logits.argmax(-1) == labels).mean((1, 2)), rtol=1e-6)


@pytest.mark.parametrize(
    "form",
    [
        lambda y: y,
        lambda y: y + 1,
        lambda y: y.astype(np.uint8)[..., None],
        lambda y: y.astype(np.float64),
    ],
    ids=["from 0", "from 1", "an axis of one channel", "floats"],
)
def test_label_maps_in_their_usual_forms(form, tmp_path: Path) -> None:
    X, y = bright_pixels()
    data = load(save(tmp_path, X=X, y=form(y), test=np.arange(24) < 8), 0)
    assert data.has_label_maps
    assert (data.num_classes, data.y_train.dtype) == (3, np.int32)
    np.testing.assert_array_equal(data.y_test, y[:8])
    np.testing.assert_array_equal(data.y_train, y[8:])


def test_truth_values_are_two_classes_and_gray_images_need_no_channel(tmp_path: Path) -> None:
    X, y = bright_pixels()
    data = load(save(tmp_path, X=X[..., 0], y=y == 1), 0)
    assert data.X_train.shape == (18, 6, 5, 1)
    assert (data.classes, data.y_test.shape) == (("0", "1"), (6, 6, 5))
    fewer = data.with_rows(7, 3)
    assert (fewer.y_train.shape, fewer.y_test.shape) == ((7, 6, 5), (3, 6, 5))
    assert fewer.has_label_maps


def test_the_seed_draws_a_quarter_of_the_images(tmp_path: Path) -> None:
    X, y = bright_pixels()
    X[:, 0, 0, 0] = np.arange(24)
    path = save(tmp_path, X=X, y=y)
    one, same, other = (load(path, seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one.y_test, same.y_test)
    assert not np.array_equal(one.y_test, other.y_test)
    both = np.concatenate([one.y_train, one.y_test])
    assert {each.tobytes() for each in both} == {each.astype(np.int32).tobytes() for each in y}


def test_labels_of_images_and_tokens_are_no_maps() -> None:
    assert [name for name in BUNDLED if load(name, 0).has_label_maps] == ["shapes"]


def test_shapes_are_a_function_of_the_seed() -> None:
    (X, y), (again, _), (other, _) = draw_shapes(20, 3), draw_shapes(20, 3), draw_shapes(20, 4)
    np.testing.assert_array_equal(X, again)
    assert not np.array_equal(X, other)
    assert set(np.unique(y)) == set(range(len(CLASSES)))
    data = load("shapes", 0)
    assert data.X_train.shape == data.X_test.shape == (128, 32, 32, 1)
    rows = {row.tobytes() for row in np.concatenate([data.y_train, data.y_test])}
    swapped = load("shapes", 1)
    assert rows == {row.tobytes() for row in np.concatenate([swapped.y_train, swapped.y_test])}
    assert not np.array_equal(data.y_test, swapped.y_test)


@pytest.mark.parametrize("sides", [(8, 8), (13, 10), (5, 4)])
def test_the_unet_has_logits_at_each_pixel_of_any_image(sides: tuple[int, int]) -> None:
    def logits(x: jax.Array) -> jax.Array:
        network = build(Config(model="unet", channels=2), (*sides, 3), 4, nnx.Rngs(0))
        return network(x)

    assert jax.eval_shape(logits, jnp.zeros((2, *sides, 3))).shape == (2, *sides, 4)


def test_halving_and_doubling() -> None:
    x = RANDOM.normal(size=(2, 5, 4, 3)).astype(np.float32)
    small = halved(jnp.asarray(x))
    assert small.shape == (2, 3, 2, 3)
    for i, j in np.ndindex(3, 2):
        window = x[:, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2]
        np.testing.assert_array_equal(small[:, i, j], window.max((1, 2)))
    np.testing.assert_array_equal(doubled(jnp.asarray(x)), x.repeat(2, 1).repeat(2, 2))


@cache
def trained(placement: Placement = ONE_DEVICE, epochs: int = 20) -> tuple[Dataset, Run]:
    X, y = bright_pixels(20)
    rows = (X.astype(np.float32), y.astype(np.int32))
    data = Dataset(*(each[:16] for each in rows), *(each[16:] for each in rows), "maps", 3)
    config = Config(model=f"{OWN}:Pixels", epochs=epochs, batch_size=8, learning_rate=0.2)
    trainer = make_trainer(METHODS["none"], config, data, placement)
    return data, with_maps(fit(trainer, data, 0), trainer, data)


def test_a_run_has_the_score_and_the_maps_of_its_network() -> None:
    data, run = trained()
    assert run.maps.shape == data.y_test.shape == (4, 6, 5)
    assert run.maps.dtype == np.uint8
    assert run.curve[-1].test_accuracy > 0.8
    assert (run.maps == data.y_test).mean() == pytest.approx(run.curve[-1].test_accuracy)
    assert run.scores[MEAN_IOU] == pytest.approx(np.mean(overlaps(data.y_test, run.maps)))


@pytest.mark.slow
@pytest.mark.usefixtures("_fresh_pixels")
def test_large_maps_are_evaluated_in_smaller_parts() -> None:
    """Three rows at once, of four: the last part has two rows that are not there."""
    _, whole = trained()
    trained.cache_clear()
    _, parts = trained()
    assert parts.scores[MEAN_IOU] == pytest.approx(whole.scores[MEAN_IOU])
    np.testing.assert_allclose(parts.curve[-1][:5], whole.curve[-1][:5], rtol=1e-5)


@pytest.fixture
def _fresh_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    trained()  # with the usual parts
    monkeypatch.setattr(statistics, "PIXELS", 100)


@pytest.mark.slow
@pytest.mark.usefixtures("standard_promotion")
def test_devices_that_share_the_rows_measure_the_same() -> None:
    _, one = trained(epochs=3)
    _, eight = trained(make_placement(), epochs=3)
    assert eight.scores[MEAN_IOU] == pytest.approx(one.scores[MEAN_IOU], abs=1e-6)
    np.testing.assert_array_equal(eight.maps, one.maps)


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("maps")
    X, y = bright_pixels()
    assert main(command(save(folder, X=X, y=y), folder)) == 0
    return folder


def command(data: str, folder: Path) -> list[str]:
    flags = {"--model": f"{OWN}:Pixels", "--dataset": data, "--methods": "none,bn", "--seeds": "1"}
    flags |= {"--epochs": "8", "--batch-size": "8", "--learning-rate": "0.2", "--out": str(folder)}
    return ["compare", *(word for pair in flags.items() for word in pair)]


@pytest.mark.slow
def test_compare_reports_miou_and_draws_masks(compared: Path) -> None:
    rows = rows_of(compared / "results.csv")
    assert all(0.5 < float(row[MEAN_IOU]) <= float(row["test_accuracy"]) for row in rows)
    table = (compared / "table.md").read_text()
    assert "mIoU, %" in table
    assert "in points of mIoU" in table
    assert "A difference is in points of mIoU" in table
    with Image.open(compared / "masks.png") as picture:
        assert min(picture.size) > 300


@pytest.mark.slow
def test_a_kept_run_is_drawn_from_the_store(
    compared: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (compared / "masks.png").read_bytes()
    (compared / "masks.png").unlink()
    assert main(command(str(compared / "maps.npz"), compared)) == 0
    assert "2 of 2 runs are kept" in capsys.readouterr().err
    assert (compared / "masks.png").read_bytes() == before


def test_a_picture_shows_each_class_in_its_colour(tmp_path: Path) -> None:
    """For one image, for more classes than named colours, and for three channels or fewer."""
    for classes, channels in ((3, 1), (30, 3), (2, 2)):
        images = RANDOM.normal(size=(1, 8, 8, channels)).astype(np.float32)
        truth = np.tile(np.arange(8) % classes, (1, 8, 1))
        names = [f"class {number}" for number in range(classes)]
        draw_masks(tmp_path / "masks.png", images, truth, {"bn": 0 * truth}, names)
        with Image.open(tmp_path / "masks.png") as picture:
            colours = {colour for _, colour in picture.convert("RGB").getcolors(2**20)}
        assert len(colours) > classes


def test_runs_without_a_score_leave_the_others_theirs() -> None:
    """A run that diverged has none."""
    scored = [
        run_of(name, seed)._replace(scores={MEAN_IOU: 0.5 + 0.1 * (name == "gn")})
        for name in ("bn", "gn")
        for seed in range(3)
    ]
    lost = run_of("cwo")._replace(outcome="diverged, not finite")
    header, rows = comparison_table([*scored, lost])
    assert header[1:4] == ("mIoU, %", "difference", "pixels, %")
    assert [row[1] for row in rows] == ["50.00 ± 0.00", "60.00 ± 0.00", ""]
    assert "in points of mIoU" in conclusion([*scored, lost])[0]
    header, _ = comparison_table([run_of("bn"), run_of("gn")])
    assert header[1:4] == ("test, %", "difference", "test loss")


@pytest.mark.slow
@pytest.mark.parametrize("method", ["normalizer-free", "cwo", "vcl", "pn+gamma-decay", "bn+sl"])
def test_methods_trace_the_unet(method: str) -> None:
    """Initialization, a step and the refreshes have the shapes of label maps throughout."""
    X, y = (each.astype(kind) for each, kind in zip(bright_pixels(), ("f4", "i4"), strict=True))
    data = Dataset(X, y, X, y, "maps", 3)
    trainer = make_trainer(METHODS[method], Config(channels=4, batch_size=16), data)
    state = jax.eval_shape(inspect.unwrap(trainer.init), jnp.uint32(0), X)
    batch = jax.eval_shape(lambda: Batch(X[:16], y[:16], jax.random.split(jax.random.key(0), 16)))
    after, metrics = jax.eval_shape(trainer.step, state, batch)
    assert jax.tree.map(jnp.shape, after) == jax.tree.map(jnp.shape, state)
    assert metrics.loss.shape == ()
    for refresh in trainer.plan.refreshes:
        jax.eval_shape(refresh.run, state, X, y, jnp.int32(0))
