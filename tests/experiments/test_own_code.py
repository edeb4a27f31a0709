"""Networks of the user's own: which are refused, and where errors are."""

import sys

import pytest

from experiments.cli import main
from experiments.config import Config
from experiments.errors import UserError
from experiments.runs import comparison as comparison_module
from experiments.runs.comparison import Comparison
from experiments.runs.store import Store
from experiments.training.history import NoCheckpoints
from tests.experiments.toy import save_toy

NET = """
import sys
from pathlib import Path
from flax import nnx
import jax.numpy as jnp

class Net(nnx.Module):
    def __init__(self, rngs, shape, classes, width=8):
        self.hidden = nnx.Linear(shape[-1], width, rngs=rngs)
        self.classifier = nnx.Linear(width, classes, rngs=rngs)

    def __call__(self, x):
        return self.classifier(nnx.relu(self.hidden(x)))
"""


@pytest.fixture(autouse=True)
def modules_end_with_the_test(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)


def spec_of(folder, method="none"):
    config = Config(model=f"{folder / 'nets.py'}:make", dataset=save_toy(folder), batch_size=16)
    (spec,) = Comparison(config).specs([(method, (), 0)])
    return spec


#: Code of a user, the line (from 1) below NET that is at fault, and words of the message.
ERRORS = {
    "an exit": ("def make(rngs, shape, classes):\n    sys.exit(0)", 2, "ended the program"),
    "an exit by exception": ("def make(rngs, shape, classes):\n    raise SystemExit", 2, "status"),
    "an exit of the file": (
        "import argparse\nargparse.ArgumentParser().parse_args()",
        2,
        "status 2",
    ),
    "an exception": ("def make(rngs, shape, classes):\n    return 1 / 0", 2, "ZeroDivisionError"),
    "an exception of a library": (
        "def make(rngs, shape, classes):\n    return nnx.Linear(3, rngs=rngs)",
        2,
        "TypeError",
    ),
    "an exception in the call": (
        "class make(Net):\n    def __call__(self, x):\n        return self.absent(x)",
        3,
        "AttributeError",
    ),
    "an exception in training alone": (
        "class make(Net):\n    def __call__(self, x):\n        if len(x) > 2:\n"
        "            raise RuntimeError('too many')\n        return super().__call__(x)",
        4,
        "too many",
    ),
    "a branch on a value": (
        "class make(Net):\n    def __call__(self, x):\n        if x.sum() > 0:\n"
        "            x = -x\n        return super().__call__(x)",
        3,
        "TracerBoolConversionError",
    ),
    "too few arguments": ("def make(rngs):\n    return Net(rngs, (6,), 3)", 1, "make(rngs)"),
    "one argument too many": (
        "class make(Net):\n    def __call__(self, x, train):\n        return x",
        2,
        "'train'",
    ),
    "an import of nothing": ("import no_such_module", 1, "no_such_module"),
}


@pytest.mark.parametrize("kind", ERRORS)
def test_an_error_of_the_users_code_is_one_line_with_its_place(kind, tmp_path, capsys, monkeypatch):
    code, line, words = ERRORS[kind]
    monkeypatch.setattr(sys, "argv", ["experiments", "compare"])
    (tmp_path / "nets.py").write_text(NET + code)
    command = ["compare", "--dataset", save_toy(tmp_path), "--methods", "none", "--seeds", "1"]
    command += ["--model", f"{tmp_path / 'nets.py'}:make", "--epochs", "1"]
    command += ["--out", str(tmp_path / "out")]
    assert main(command) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("error: ")
    assert f"nets.py:{NET.count(chr(10)) + line}" in said
    assert words in said
    assert Store(tmp_path / "out").rows() == []


DRAWS = {
    "dropout that is left on": (
        "        self.drop = nnx.Dropout(0.5, rngs=rngs)",
        "self.drop(x, deterministic=False)",
    ),
    "noise": ("        self.rngs = rngs", "x + jax.random.normal(self.rngs.noise(), x.shape)"),
    "a mask in a function": (
        "        self.rngs = rngs",
        "jax.jit(lambda k: x * jax.random.rademacher(k, x.shape, x.dtype))(self.rngs.mask())",
    ),
    "noise in a loop": (
        "        self.rngs = rngs",
        "jax.lax.fori_loop(0, 2, lambda i, x: x + jax.random.uniform(k, x.shape), x)",
    ),
}


@pytest.mark.parametrize("kind", DRAWS)
def test_a_network_that_draws_in_evaluation_is_refused(kind, tmp_path):
    made, drawn = DRAWS[kind]
    (tmp_path / "nets.py").write_text(
        f"import jax\n{NET}class make(Net):\n"
        "    def __init__(self, rngs, shape, classes):\n"
        f"        super().__init__(rngs, shape, classes)\n{made}\n"
        f"    def __call__(self, x):\n        k = jax.random.key(0)\n"
        f"        return super().__call__({drawn})\n"
    )
    with pytest.raises(UserError, match="draws random numbers in evaluation"):
        spec_of(tmp_path)


#: What a network returns that calls the host.
CALLS = {
    "io_callback": "io_callback(lambda y: y, x, x)",
    "pure_callback": "jax.pure_callback(lambda y: y, x, x, vmap_method='sequential')",
    "debug_print": "(jax.debug.print('{}', x), x)[1]",
    "debug_callback": "jax.jit(lambda y: (jax.debug.callback(print, y), y)[1])(x)",
}


@pytest.mark.parametrize("kind", CALLS)
def test_a_network_that_calls_the_host_is_refused(kind, tmp_path):
    """What the host returns stands in no program."""
    (tmp_path / "nets.py").write_text(
        f"import jax\nfrom jax.experimental import io_callback\n{NET}class make(Net):\n"
        f"    def __call__(self, x):\n        return super().__call__({CALLS[kind]})\n"
    )
    with pytest.raises(UserError, match=rf"calls the host .*\({kind}\).* leave out io_callback"):
        spec_of(tmp_path)


def test_a_network_that_draws_from_numpy_when_it_is_called_is_refused(tmp_path):
    code = (
        "import numpy\nclass make(Net):\n    def __call__(self, x):\n"
        "        return super().__call__(x) * numpy.random.normal()\n"
    )
    (tmp_path / "nets.py").write_text(NET + code)
    with pytest.raises(UserError, match="is another network each time that it is made or called"):
        spec_of(tmp_path)


#: What a network of batch normalization by hand, or of a slip of an axis, does with its rows.
MIXED = {
    "the mean of a batch": "super().__call__(x / (x.std(0, keepdims=True) + 0.1))",
    "a softmax over rows": "jax.nn.softmax(super().__call__(x), 0)",
    "statistics that are not kept": "super().__call__(self.norm(x, use_running_average=False))",
}


APART = {"statistics that are kept": "super().__call__(self.norm(x))"}


@pytest.mark.parametrize("kind", MIXED | APART)
def test_a_network_whose_rows_meet_in_evaluation_is_refused(kind, tmp_path):
    """Its test accuracy would be that of the size of the evaluation's batches."""
    code = (
        "import jax\nclass make(Net):\n    def __init__(self, rngs, shape, classes):\n"
        "        super().__init__(rngs, shape, classes)\n"
        "        self.norm = nnx.BatchNorm(shape[-1], rngs=rngs)\n"
        f"    def __call__(self, x):\n        return {(MIXED | APART)[kind]}\n"
    )
    (tmp_path / "nets.py").write_text(NET + code)
    if kind in MIXED:
        with pytest.raises(UserError, match="gives a row other logits beside another row"):
            spec_of(tmp_path, method="bn")
    else:
        assert spec_of(tmp_path, method="bn").parts


@pytest.mark.parametrize("kind", ["int32", "complex64"])
def test_logits_without_gradients_are_refused(kind, tmp_path):
    code = (
        "class make(Net):\n    def __call__(self, x):\n"
        f"        return super().__call__(x).astype(jnp.{kind})\n"
    )
    (tmp_path / "nets.py").write_text(NET + code)
    with pytest.raises(UserError, match=f"logits of type {kind}; wanted floating"):
        spec_of(tmp_path)


#: Constructors that make another network each time.
OTHERS = {
    "NumPy's global draws": "import numpy\nSCALE = lambda: numpy.random.normal()",
    "the clock": "import time\nSCALE = lambda: time.perf_counter()",
    "a count of calls": "import itertools\nSCALE = itertools.count(1).__next__",
}


@pytest.mark.parametrize("kind", OTHERS)
def test_a_network_that_is_another_each_time_is_refused(kind, tmp_path):
    """Its results would be those of no network that one can make again."""
    code = (
        f"{OTHERS[kind]}\nclass make(Net):\n    def __init__(self, *arguments):\n"
        "        super().__init__(*arguments)\n        self.hidden.kernel[...] *= SCALE()\n"
    )
    (tmp_path / "nets.py").write_text(NET + code)
    with pytest.raises(UserError, match="is another network each time that it is made or called"):
        spec_of(tmp_path)


def test_dropout_that_evaluation_turns_off_is_trained(tmp_path):
    (tmp_path / "nets.py").write_text(
        f"{NET}class make(Net):\n    def __init__(self, rngs, shape, classes):\n"
        "        super().__init__(rngs, shape, classes)\n"
        "        self.drop = nnx.Dropout(0.5, rngs=rngs)\n"
        "    def __call__(self, x):\n        return super().__call__(self.drop(x))\n"
    )
    assert spec_of(tmp_path).parts


def test_the_whole_trace_is_shown_on_request(tmp_path, capsys):
    (tmp_path / "nets.py").write_text(NET + ERRORS["an exception"][0])
    command = ["train", "--dataset", save_toy(tmp_path), "--out", str(tmp_path / "out")]
    command += ["--model", f"{tmp_path / 'nets.py'}:make"]
    assert main(command) == 2
    assert "Traceback" not in capsys.readouterr().err
    assert main([*command, "--traceback"]) == 2
    said = capsys.readouterr().err
    assert "ZeroDivisionError: division by zero" in said
    assert "return 1 / 0" in said


@pytest.mark.parametrize(
    ("code", "method", "words"),
    [
        ("", "none", "defines no function or class"),
        (
            "class make(nnx.Module):\n    def __init__(self, rngs, shape, classes):\n"
            "        self.n = classes\n    def __call__(self, x):\n        return x[:, : self.n]",
            "none",
            "without parameters",
        ),
        (
            "class make(nnx.Module):\n    def __init__(self, rngs, shape, classes):\n"
            "        self.only = nnx.Linear(shape[-1], classes, rngs=rngs)",
            "none",
            "without __call__; wanted",
        ),
        *[
            (
                "class make(nnx.Module):\n    def __init__(self, rngs, shape, classes):\n"
                "        self.only = nnx.Linear(shape[-1], classes, rngs=rngs)\n"
                "    def __call__(self, x):\n        return self.only(x)",
                method,
                "--constrain-head",
            )
            for method in ("cwo", "wn", "lcw", "normalizer-free")
        ],
        ("from pathlib import Path as make", "none", r"raised TypeError: .*wanted FILE\.py:NAME"),
    ],
)
def test_a_network_that_cannot_be_trained_says_why(code, method, words, tmp_path):
    imports = "from flax import nnx\n" if code else ""
    (tmp_path / "nets.py").write_text(imports + code)
    config = Config(model=f"{tmp_path / 'nets.py'}:make", dataset=save_toy(tmp_path), batch_size=16)
    with pytest.raises(UserError, match=words):
        Comparison(config).specs([(method, (), 0)])


READS = """
class make(Net):
    def __call__(self, x):
        return float(Path(__file__).with_name("factor.txt").read_text()) * super().__call__(x)
"""


@pytest.fixture
def reading(tmp_path):
    """A comparison of a network that reads a factor in its call, and that factor's file."""
    (tmp_path / "nets.py").write_text(NET + READS)
    factor = tmp_path / "factor.txt"
    factor.write_text("1")
    config = Config(model=f"{tmp_path / 'nets.py'}:make", dataset=save_toy(tmp_path), batch_size=16)
    return Comparison(config.changed(epochs=1)), factor


@pytest.mark.slow
def test_a_file_that_a_call_reads_and_that_is_edited_before_a_method_begins_is_noticed(reading):
    comparison, factor = reading
    none, wn = comparison.specs([("none", (), 0), ("wn", (), 0)])
    comparison(none, NoCheckpoints())
    factor.write_text("2")
    with pytest.raises(UserError, match=r"wn, seed 0 cannot be trained: its .* a file was edited"):
        comparison(wn, NoCheckpoints())


def test_so_is_one_that_is_edited_before_the_method_is_scored(reading, monkeypatch):
    comparison, factor = reading
    (none,) = comparison.specs([("none", (), 0)])

    def edited(*arguments):
        factor.write_text("2")
        return fit(*arguments)

    fit = comparison_module._fit_or_diverge
    monkeypatch.setattr(comparison_module, "_fit_or_diverge", edited)
    with pytest.raises(UserError, match=r"none, seed 0 cannot be trained: .* a file was edited"):
        comparison(none, NoCheckpoints())


PIXELS = """

class make(nnx.Module):
    def __init__(self, rngs, shape, classes):
        self.hidden = nnx.Conv(shape[-1], 4, (3, 3), rngs=rngs)
        self.classifier = nnx.Conv(4, classes, (1, 1), rngs=rngs)

    def __call__(self, x):
        factor = float(Path(__file__).with_name("factor.txt").read_text())
        return factor * self.classifier(nnx.relu(self.hidden(x)))
"""


@pytest.mark.slow
@pytest.mark.usefixtures("standard_promotion")
def test_so_is_one_that_is_edited_before_label_maps_are_scored(tmp_path, monkeypatch):
    (tmp_path / "nets.py").write_text(NET + PIXELS)
    factor = tmp_path / "factor.txt"
    factor.write_text("1")
    sizes = {"train_rows": 16, "test_rows": 16, "batch_size": 8, "epochs": 1}
    config = Config(model=f"{tmp_path / 'nets.py'}:make", dataset="shapes").changed(**sizes)
    comparison = Comparison(config)
    specs = comparison.specs([("none", (), 0), ("none", (), 1)])
    comparison(specs[0], NoCheckpoints())

    def edited(*arguments):
        run = fit(*arguments)
        factor.write_text("-1")
        return run

    fit = comparison_module._fit_or_diverge
    monkeypatch.setattr(comparison_module, "_fit_or_diverge", edited)
    with pytest.raises(UserError, match=r"none, seed 1 cannot be trained: .* a file was edited"):
        comparison(specs[1], NoCheckpoints())
