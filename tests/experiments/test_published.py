"""Published sub-policies, read from a file of code that is not run."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.augmentation.operations import OPERATIONS
from experiments.augmentation.published import POLICIES_FILE, read_policies
from experiments.augmentation.table import POLICIES, find_augmentation
from experiments.errors import UserError
from experiments.papers.data import policies_note, published_policies
from experiments.papers.grid import Protocol
from experiments.papers.training import config_of

#: In the forms of the published file: nested lists of lists or tuples, assigned or returned.
ARCHIVE = """
import a_module_that_is_not_installed

def fa_reduced_cifar10():
    p = [[[["Invert", 1.0, 0.0], ["Rotate", 0.0, 0.2]]], [[["Invert", 1, 1.0], ["Cutout", 0, 1]]]]
    return p

def others():
    first = [[('Color', 0.5, 0.75), ('ShearX', 0.125, 0.5)]]
    second = [[('Solarize', 0.0, 1.0), ('Color', 1.0, 0.0)]]
    return first + second
"""


@pytest.fixture
def archive(tmp_path):
    (tmp_path / POLICIES_FILE).write_text(ARCHIVE)
    return tmp_path / POLICIES_FILE


def test_the_lists_of_a_function_are_read(archive):
    found, names = read_policies(f"{archive}#others"), list(OPERATIONS)
    places = [
        [names.index(one) for one in two] for two in (("Color", "ShearX"), ("Solarize", "Color"))
    ]
    np.testing.assert_array_equal(found.operations, places)
    np.testing.assert_array_equal(found.probabilities, [[0.5, 0.125], [0.0, 1.0]])
    np.testing.assert_array_equal(found.levels, [[0.75, 0.5], [1.0, 0.0]])
    assert found.operations.dtype == jnp.int32
    assert read_policies(str(archive)).operations.shape == (2, 2)


@pytest.mark.slow
def test_an_augmentation_with_a_file_chooses_from_it(archive):
    """Both sub-policies of the file invert every image, and change nothing else."""
    images = np.random.default_rng(0).normal(size=(4, 8, 8, 3)).astype(np.float32)
    augment = find_augmentation(f"{POLICIES}:{archive}", "images", (8, 8, 3))
    black, white = images.min((0, 1, 2)), images.max((0, 1, 2))
    changed = np.asarray(jax.jit(augment)(jax.random.key(1), jnp.asarray(images)))
    inverted = black + white - images
    # Cropped, flipped and cut out after that: zeros, or levels of the inverted images.
    kept = changed[changed != 0]
    nearest = np.abs(kept[:, None] - inverted.ravel()).min(1)
    assert kept.size > 100
    assert nearest.max() < 0.51 * (white - black).max() / 255
    with pytest.raises(UserError, match="flip takes no file"):
        find_augmentation(f"flip:{archive}", "images", (8, 8, 3))


def test_a_table_takes_them_from_the_data_folder(archive, tmp_path):
    protocol = Protocol(augment=POLICIES, policies=published_policies(tmp_path))
    assert protocol.policies == POLICIES_FILE
    assert config_of(protocol, tmp_path).augment == f"{POLICIES}:{archive}"
    assert config_of(protocol.changed(augment="flip"), tmp_path).augment == "flip"
    assert published_policies(None) == published_policies(tmp_path / "other") == ""
    assert config_of(Protocol(augment=POLICIES), tmp_path).augment == POLICIES
    assert policies_note(POLICIES_FILE).startswith("Fast AutoAugment's sub-policies: those of")
    assert "drawn" in policies_note("")
