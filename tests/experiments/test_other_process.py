"""Networks of the user's own that another process makes otherwise, of the same files."""

import os
import subprocess
import sys
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.config import Config
from experiments.errors import UserError
from experiments.models import from_file
from experiments.runs.comparison import Comparison
from experiments.runs.spec import Spec, check_config
from experiments.runs.store import Store
from experiments.training.history import NoCheckpoints
from experiments.training.programs import program_digest
from tests.experiments.toy import save_toy

#: A network of four layers in the order of ORDER, and what else may depend on it.
NET = """
import os
import jax, jax.numpy as jnp
from flax import nnx
WIDTHS = {"narrow": 3, "wide": 7, "middle": 5, "other": 4}
SWAPPED = os.environ.get("".join(["OR", "DER"])) == "other"
VALUE = 0.25 if SWAPPED else 0.5

class Net(nnx.Module):
    def __init__(self, rngs, shape, classes, order=tuple(WIDTHS)):
        layers, last = [], shape[-1]
        for name in order:
            layers.append(nnx.Linear(last, WIDTHS[name], rngs=rngs))
            last = WIDTHS[name]
        self.layers, self.drop = nnx.List(layers), nnx.Dropout(0.5, rngs=rngs)
        self.classifier = nnx.Linear(last, classes, rngs=rngs)

    def __call__(self, x):
        for layer in self.layers:
            x = nnx.relu(layer(x))
        return self.classifier(self.drop(x))
"""

#: Constructors whose network depends on something that no file, listing or variable tells.
KINDS = {
    "the order of the layers": (
        "def make(*arguments):\n    return Net(*arguments, sorted(WIDTHS, reverse=SWAPPED))"
    ),
    "a seed": (
        "def make(rngs, shape, classes):\n    return Net(nnx.Rngs(int(VALUE * 4)), shape, classes)"
    ),
    "a rate of training alone": (
        "class make(Net):\n    def __init__(self, *arguments):\n"
        "        super().__init__(*arguments)\n        self.drop.rate = VALUE"
    ),
    "a constant of a function inside": (
        "import numpy\nclass make(Net):\n    def __call__(self, x):\n"
        "        scale = numpy.full((1, 3), VALUE, 'float32')\n"
        "        return jax.jit(lambda y: y * scale)(super().__call__(x))"
    ),
    "a scale of the parameters": (
        "class make(Net):\n    def __init__(self, *arguments):\n"
        "        super().__init__(*arguments)\n        self.classifier.kernel[...] *= VALUE"
    ),
}


def compared(folder, code) -> Comparison:
    """Returns the comparison of a network, as a process of its own makes it."""
    from_file._executed.cache_clear()
    (folder / "nets.py").write_text(NET + code)
    config = Config(model=f"{folder / 'nets.py'}:make", dataset=save_toy(folder), batch_size=16)
    return Comparison(config.changed(epochs=1))


def spec_of(comparison: Comparison, method="none"):
    (spec,) = comparison.specs([(method, (), 0)])
    return spec


@pytest.mark.kept("order", "rate", "constant")
@pytest.mark.parametrize("kind", KINDS)
def test_another_network_of_the_same_files_has_another_digest(kind, tmp_path, monkeypatch):
    digests = []
    for order in ("", "", "other"):
        monkeypatch.setenv("ORDER", order)
        comparison = compared(tmp_path, KINDS[kind])
        digests.append(comparison.network(Spec("none", 0, comparison.config)))
    assert digests[0] == digests[1] != digests[2]


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """A comparison and the spec that another process made of its files."""
    folder = tmp_path_factory.mktemp("two")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ORDER", "other")
        other = spec_of(compared(folder, KINDS["the order of the layers"]))
    comparison = compared(folder, KINDS["the order of the layers"])
    return comparison, spec_of(comparison), other


def test_a_process_refuses_the_run_of_another_network(two):
    """Makes it in another order of sets, like each process of --jobs."""
    comparison, _, other = two
    with pytest.raises(UserError, match="make another network in this process: sort"):
        comparison(other, NoCheckpoints())


def test_a_checkpoint_of_another_network_is_refused_with_the_reason(two):
    _, spec, other = two
    with pytest.raises(UserError, match=r"network .* there and .* here; the same files make"):
        check_config(other.described, spec.described, "here")


def test_runs_of_another_network_are_not_kept_and_the_reason_is_said(two, tmp_path):
    comparison, spec, other = two
    assert other.data == spec.data
    assert other.digest != spec.digest
    store = Store(tmp_path)
    run = comparison(spec, NoCheckpoints())
    store.add(other, run)
    assert store.finished([spec]) == {}
    (line,) = store.why_not([spec])
    assert "the same files make another network" in line
    store.add(spec, run)
    assert [*store.finished([spec])] == [spec]
    assert store.why_not([spec]) == []


def test_methods_share_the_digest_of_a_network_and_built_in_ones_have_none(two):
    comparison, spec, _ = two
    assert comparison.network(replace(spec, method="wn")) == spec.network
    builtin = Comparison(comparison.config.changed(model="mlp", width=4, depth=1))
    assert spec_of(builtin).network is None
    assert "network" not in spec_of(builtin).described


def test_a_digest_is_of_the_program_alone():
    def digest(function, *inputs):
        return program_digest(jax.make_jaxpr(function)(*inputs))

    x, constant = np.float32([1, 2]), np.float32([3, 4])
    usual = digest(lambda x: jax.jit(lambda y: y * constant)(x), x)
    assert digest(lambda z: jax.jit(lambda name: name * np.float32([3, 4]))(z), x) == usual
    assert digest(lambda x: jax.jit(lambda y: y * (constant + 1))(x), x) != usual
    assert digest(lambda x: jax.jit(lambda y: y + constant)(x), x) != usual
    assert digest(lambda x, y: x - y, x, x) != digest(lambda x, y: y - x, x, x)
    assert digest(lambda x: x * 2.0, x) != digest(lambda x: x * 3.0, x)
    keys = [jax.random.key(seed) for seed in (0, 0, 1)]
    drawn = [digest(lambda key=key: jax.random.bits(key)) for key in keys]
    assert drawn[0] == drawn[1] != drawn[2]
    summed = [
        digest(lambda x, axes=axes: jax.lax.reduce(x, jnp.float32(0), jax.lax.add, axes), x)
        for axes in ((0,), (0,))
    ]
    assert summed[0] == summed[1]


#: What makes networks by the seed of hashes, and what does not.
HASHED = {
    "a set": "def make(*a): return Net(*a, {*WIDTHS})",
    "a seed": "def make(rngs, *a): return Net(nnx.Rngs(hash('x') % 2**31), *a)",
    "a set of a module": "from part import NAMES\ndef make(*a): return Net(*a, NAMES)",
    "a sorted set": "def make(*a): return Net(*a, sorted({*WIDTHS}))",
}

ASKED = """
import sys
from tests.experiments.test_other_process import HASHED, compared, spec_of
from pathlib import Path
for kind, code in HASHED.items():
    folder = Path(sys.argv[1]) / kind
    print(spec_of(compared(folder, code)).digest)
"""


@pytest.mark.slow
def test_the_seed_of_hashes_makes_runs_of_their_own(tmp_path):
    for kind in HASHED:
        (tmp_path / kind).mkdir()
        (tmp_path / kind / "part.py").write_text("NAMES = {'narrow', 'wide', 'middle', 'other'}")
    digests = []
    for seed in ("1", "2", "1"):
        command = [sys.executable, "-c", ASKED, str(tmp_path)]
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        digests.append(done.stdout.split())
    one, other, again = (dict(zip(HASHED, each, strict=True)) for each in digests)
    assert again == one
    assert [kind for kind in HASHED if one[kind] == other[kind]] == ["a sorted set"]
