"""A run is its program, its parameters and its rows, whatever its network was drawn from."""

import itertools
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.config import Config
from experiments.errors import UserError
from experiments.methods.table import METHODS
from experiments.models import from_file
from experiments.runs.comparison import Comparison
from experiments.runs.spec import PROGRAMS, check_config
from experiments.runs.store import Store
from experiments.training.history import NoCheckpoints
from experiments.training.initial import initial_checksums
from experiments.training.programs import program_digest
from experiments.training.run import other_draws
from tests.experiments.toy import save_toy

ROOT = Path(__file__).parents[2]

#: A network of which a case decides VALUE.
NET = """
import os, time
from pathlib import Path
import jax, jax.numpy as jnp, numpy as np
from flax import nnx
HERE = Path(__file__).parent
WIDTHS = {"narrow": 3, "wide": 7, "middle": 5, "other": 4}

class Net(nnx.Module):
    def __init__(self, rngs, shape, classes, order=("narrow", "wide")):
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

SCALED = "class make(Net):\n    def __call__(self, x): return super().__call__(x * VALUE)\n"
FUNCTION = "class make(Net):\n    def __call__(self, x): return function(super().__call__(x))\n"


def compared(folder, code) -> Comparison:
    """Returns the comparison of a network, as a process of its own makes it."""
    from_file._executed.cache_clear()
    sys.modules.pop("part", None)
    (folder / "nets.py").write_text(NET + code)
    config = Config(model=f"{folder / 'nets.py'}:make", dataset=save_toy(folder), batch_size=16)
    return Comparison(config.changed(epochs=1))


def spec_of(comparison: Comparison, method="none"):
    (spec,) = comparison.specs([(method, (), 0)])
    return spec


@pytest.fixture(autouse=True)
def modules_end_with_the_test(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)


#: Two pieces of code of one program.
SAME = {
    "a docstring and a comment": (
        f"VALUE = 2.0\n{SCALED}",
        f'"""Words."""\nVALUE = 2.0  # Words.\n\n{SCALED}    """Words."""\n',
    ),
    "a renamed variable": (f"VALUE = 2.0\n{SCALED}", f"S = 2.0\n{SCALED}".replace("VALUE", "S")),
    "a function of another name": (
        f"function = jax.jit(lambda x: 2 * x)\n{FUNCTION}",
        f"@jax.jit\ndef function(array): return 2 * array\n{FUNCTION}",
    ),
    "a derivative of another name": (
        f"@jax.custom_jvp\ndef function(x): return x\nfunction.defjvps(lambda t, y, x: 2 * t)\n"
        f"{FUNCTION}",
        f"@jax.custom_jvp\ndef g(y): return y\ndef rule(t, y, x): return 2 * t\ng.defjvps(rule)\n"
        f"function = g\n{FUNCTION}",
    ),
    "a file that decides nothing": (
        f"VALUE = 2.0 if (HERE / 'nets.py').exists() else 1.0\n{SCALED}",
        f"VALUE = len((HERE / 'toy.npz').read_bytes()) and 2.0\n{SCALED}",
    ),
    "a sum of another spelling": (f"VALUE = 2.0\n{SCALED}", f"VALUE = 1.0 + 1.0\n{SCALED}"),
}


@pytest.mark.kept("comment", "spelling")
@pytest.mark.parametrize("kind", SAME)
def test_an_edit_of_words_keeps_the_run(kind, tmp_path):
    one, other = (spec_of(compared(tmp_path, code)) for code in SAME[kind])
    assert one.digest == other.digest


#: Constructors by VALUE, and the programs that follow it.
FOLLOWS = {
    "a factor": (SCALED, {"step", "score"}),
    "a factor that is an array": (
        "ARRAY = np.full((1, 6), VALUE, 'float32')\n" + SCALED.replace("VALUE", "ARRAY"),
        {"step", "score"},
    ),
    "a constant of a function inside": (
        "class make(Net):\n    def __call__(self, x):\n"
        "        scale = np.full((1, 3), VALUE, 'float32')\n"
        "        return jax.jit(lambda y: y * scale)(super().__call__(x))",
        {"step", "score"},
    ),
    "a rate of training alone": (
        "class make(Net):\n    def __init__(self, *arguments):\n"
        "        super().__init__(*arguments)\n        self.drop.rate = VALUE",
        {"step"},
    ),
    "a derivative": (
        "@jax.custom_jvp\ndef function(x): return x\n"
        f"function.defjvps(lambda t, y, x: VALUE * t)\n{FUNCTION}",
        {"step"},
    ),
    "a scale of the parameters": (
        "class make(Net):\n    def __init__(self, *arguments):\n"
        "        super().__init__(*arguments)\n        self.classifier.kernel[...] *= VALUE",
        {"initialization"},
    ),
    "a seed": (
        "def make(rngs, *a): return Net(nnx.Rngs(int(VALUE * 4)), *a)",
        {"initialization"},
    ),
    "the order of the layers": (
        "def make(*a): return Net(*a, sorted(WIDTHS, reverse=VALUE > 0.3))",
        {*PROGRAMS},
    ),
}


@pytest.mark.kept("rate", "array", "derivative", "seed")
@pytest.mark.parametrize("kind", FOLLOWS)
def test_an_edit_of_what_is_computed_is_another_run_and_names_its_part(kind, tmp_path):
    code, expected = FOLLOWS[kind]
    specs = [
        spec_of(compared(tmp_path, f"VALUE = {value}\n{code}")) for value in ("0.5", "0.5", "0.25")
    ]
    assert specs[0] == specs[1]
    assert {*specs[2].changed_parts(dict(specs[0].parts))} == expected


def touch(folder, patch):
    (folder / "flag").touch()


#: What a network is drawn from, and a change of it.
DRAWN = {
    "a file's existence": ("0.5 if (HERE / 'flag').exists() else 0.25", touch),
    "a listing": ("len(os.listdir(HERE)) / 8", touch),
    "a file": (
        "float(np.loadtxt(HERE / 'value.txt'))",
        lambda folder, patch: (folder / "value.txt").write_text("0.5"),
    ),
    "a module": (
        "__import__('part').X",
        lambda folder, patch: (folder / "part.py").write_text("X = 0.5"),
    ),
    "a variable": (
        "float(os.environ.get(''.join(['VAL', 'UE']), '0.25'))",
        lambda folder, patch: patch.setenv("VALUE", "0.5"),
    ),
    "the clock": ("time.perf_counter()", lambda folder, patch: None),
    "NumPy's random numbers": ("np.random.default_rng().random()", lambda folder, patch: None),
}


@pytest.mark.kept("existence", "variable", "clock")
@pytest.mark.parametrize("kind", DRAWN)
def test_whatever_a_network_is_drawn_from_shows_in_its_program(kind, tmp_path, monkeypatch):
    value, change = DRAWN[kind]
    (tmp_path / "value.txt").write_text("0.25")
    (tmp_path / "part.py").write_text("X = 0.25")
    one = spec_of(compared(tmp_path, f"VALUE = {value}\n{SCALED}"))
    change(tmp_path, monkeypatch)
    other = spec_of(compared(tmp_path, f"VALUE = {value}\n{SCALED}"))
    assert {*other.changed_parts(dict(one.parts))} == {"step", "score"}


#: What makes networks by the seed of hashes, and what does not.
HASHED = {
    "a set": "def make(*a): return Net(*a, {*WIDTHS})",
    "a seed": "def make(rngs, *a): return Net(nnx.Rngs(hash('x') % 2**31), *a)",
    "a set of a module": "from part import NAMES\ndef make(*a): return Net(*a, NAMES)",
    "a sorted set": "def make(*a): return Net(*a, sorted({*WIDTHS}))",
}

ASKED = """
import sys
from tests.experiments.test_programs import HASHED, METHODS, compared, spec_of
from experiments.config import Config
from experiments.runs.comparison import Comparison
from pathlib import Path
for kind, code in HASHED.items():
    folder = Path(sys.argv[1]) / kind
    print(spec_of(compared(folder, code)).digest)
built_in = Comparison(Config(model="mlp", depth=2, width=8, train_rows=128))
for method in ("bn", "lcw", "cwo", "vcl", "normprop", "moving-average", "normalizer-free"):
    print(spec_of(built_in, method).digest)
"""


@pytest.mark.slow
def test_the_seed_of_hashes_makes_runs_of_their_own(tmp_path):
    """Another process has other addresses, too."""
    for kind in HASHED:
        (tmp_path / kind).mkdir()
        (tmp_path / kind / "part.py").write_text("NAMES = {'narrow', 'wide', 'middle', 'other'}")
    digests = []
    for seed in ("1", "2", "1"):
        command = [sys.executable, "-c", ASKED, str(tmp_path)]
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True, cwd=ROOT
        )
        digests.append(done.stdout.split())
    one, other, again = digests
    assert again == one
    assert one[4:] == other[4:]  # Of the methods.
    same = [kind for kind, *both in zip(HASHED, one, other, strict=False) if len({*both}) == 1]
    assert same == ["a sorted set"]


#: Settings that a run's key tells, and the parts in which.
SETTINGS = {
    "learning_rate": (0.1, {"settings"}),  # It is an argument of the programs.
    "weight_decay": (0.1, {"settings"}),
    "width": (5, {*PROGRAMS}),
    "epochs": (2, {"step", "settings"}),
    "augment": ("none", set()),
    "channels": (5, set()),  # A perceptron has none.
    "rate_decay": (0.1, {"step"}),
    "batch_size": (32, {"step", "settings"}),
    "dtype": ("bfloat16", {"step"}),
    "mesh": ("data=8", set()),
    "nonfinite": ("skip", set()),
}


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """Returns the settings of a small training."""
    folder = tmp_path_factory.mktemp("toy")
    return Config(dataset=save_toy(folder), model="mlp", depth=1, width=4, batch_size=16, epochs=1)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_shows_in_the_parts_that_it_changes(name, toy):
    value, expected = SETTINGS[name]
    one, other = (spec_of(Comparison(each)) for each in (toy, toy.changed(**{name: value})))
    assert {*other.changed_parts(dict(one.parts))} == expected


def test_the_groups_of_a_loss_follow_the_devices_under_jit(toy):
    def parts(method, **changes):
        comparison = Comparison(toy.changed(sample_size=2, batch_size=32, **changes))
        return dict(spec_of(comparison, method).parts)

    meshes = ["data=1,model=8", "data=2,model=4", "data=8"]
    one, two, eight = (parts("vcl", mesh=mesh) for mesh in meshes)
    assert len({each["step"] for each in (one, two, eight)}) == 3
    assert parts("vcl", parallel="shard_map") == eight
    assert parts("bn", mesh=meshes[0]) == parts("bn", mesh=meshes[2])


def test_seeds_share_their_programs_and_not_their_rows(toy):
    comparison = Comparison(toy)
    one, other = comparison.specs([("bn", (), 0), ("bn", (), 1)])
    assert other.changed_parts(dict(one.parts)) == ["rows"]
    assert len(comparison._programs) == 1


def test_rates_and_decays_share_what_is_compiled_and_not_their_runs(toy):
    comparison = Comparison(toy)
    chosen = [(("learning_rate", rate), ("weight_decay", rate)) for rate in (0.05, 0.2)]
    specs = comparison.specs([("bn", changes, 0) for changes in chosen])
    assert specs[1].changed_parts(dict(specs[0].parts)) == ["settings"]
    one, other = (comparison.trainer(spec, comparison.dataset(0)) for spec in specs)
    assert one.epoch is other.epoch
    runs = [comparison(spec, NoCheckpoints()) for spec in specs]
    assert (one.init.compilations, one.epoch.compilations) == (1, 1)
    alone = Comparison(toy.changed(learning_rate=0.2, weight_decay=0.2))
    (spec,) = alone.specs([("bn", (), 0)])
    assert alone(spec, NoCheckpoints()).curve == runs[1].curve != runs[0].curve


def test_a_method_whose_steps_have_the_length_of_the_rate_is_a_program_per_rate(toy):
    changes = [(("learning_rate", rate),) for rate in (0.05, 0.2)]
    one, other = Comparison(toy).specs([("hyperball", each, 0) for each in changes])
    assert "step" in other.changed_parts(dict(one.parts))


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """A comparison and the spec that another process made of its files."""
    folder, code = tmp_path_factory.mktemp("two"), FOLLOWS["the order of the layers"][0]
    other = spec_of(compared(folder, f"VALUE = 0.25\n{code}"))
    comparison = compared(folder, f"VALUE = 0.5\n{code}")
    return comparison, spec_of(comparison), other


def test_a_process_refuses_the_run_of_another_network(two):
    """Makes it in another order of sets, like each process of --jobs."""
    comparison, _, other = two
    with pytest.raises(UserError, match=r"initialization, step and score differ here.* order of a"):
        comparison(other, NoCheckpoints())


def test_a_checkpoint_of_another_network_is_refused_with_the_reason(two):
    _, spec, other = two
    check_config(spec.resumed, spec.resumed, "here")
    with pytest.raises(UserError, match="its initialization, step and score are others than here"):
        check_config(other.resumed, spec.resumed, "here")


def test_runs_of_another_network_are_not_kept_and_the_reason_is_said(two, tmp_path):
    comparison, spec, other = two
    store = Store(tmp_path)
    run = comparison(spec, NoCheckpoints())
    store.add(other, run)
    assert store.finished([spec]) == {}
    (line,) = store.why_not([spec])
    assert line == "Trained again: 1 of 1, as their initialization, step and score changed."
    store.add(spec, run)
    assert [*store.finished([spec])] == [spec]
    store.add(other, run)  # The newest: --fresh alone trains the run again.
    assert store.why_not([spec]) == []


def test_a_run_that_draws_others_than_the_stored_one_raises_an_alarm(two, tmp_path):
    comparison, spec, _ = two
    store = Store(tmp_path)
    run = comparison(spec, NoCheckpoints())
    store.add(spec, run)
    store.add(spec, run)
    assert store.finished([spec])[spec].initial == run.initial
    norm, product = run.initial["layers/0/kernel"]
    changed = {**run.initial, "layers/0/kernel": (norm, product + 0.01 * norm)}
    with pytest.raises(UserError, match=r"drew other initial .*: layers/0/kernel; want"):
        store.add(spec, run._replace(initial=changed))
    store.add(spec, run._replace(initial={}))  # Of a training that keeps none.


def test_checksums_tell_draws_apart_and_not_rounding():
    keys = jax.random.split(jax.random.key(0), 2)
    draws = [{"a": {"w": jax.random.normal(key, (8, 5))}, "n": jnp.int32(3)} for key in keys]
    one, other = map(initial_checksums, draws)
    assert list(one) == ["a/w"]
    assert one["a/w"][0] == pytest.approx(np.linalg.norm(draws[0]["a"]["w"]), rel=1e-5)
    rounded = initial_checksums({"a": {"w": draws[0]["a"]["w"] * (1 + 1e-6)}})
    assert (other_draws(one, rounded), other_draws(one, other)) == ([], ["a/w"])
    swapped = initial_checksums({"a": {"w": draws[0]["a"]["w"][::-1]}})
    assert other_draws(one, swapped) == ["a/w"]
    assert other_draws(one, {}) == ["a/w"]


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


def test_rows_and_their_order_are_a_part(toy, tmp_path):
    with np.load(toy.dataset) as file:
        arrays = dict(file)
    usual = spec_of(Comparison(toy))
    for number, order in enumerate((slice(None), slice(None, None, -1))):
        path = str(tmp_path / f"{number}.npz")
        np.savez(path, **{name: each[order] for name, each in arrays.items() if name in "Xy"})
        spec = spec_of(Comparison(replace(toy, dataset=path)))
        assert spec.changed_parts(dict(usual.parts)) == ["rows"] * number
    pairs = itertools.combinations(sorted(METHODS)[:3], 2)
    assert all(replace(usual, method=a).digest != replace(usual, method=b).digest for a, b in pairs)
