"""Networks of the user's own: which runs are stale after an edit, and where errors are."""

import contextlib
import importlib
import importlib.metadata
import os
import sqlite3
import sys

import h5py
import numpy as np
import pytest

from experiments.cli import main
from experiments.config import Config
from experiments.errors import UserError
from experiments.models import sources
from experiments.models.from_file import load_maker
from experiments.models.sources import content_of
from experiments.runs.comparison import Comparison
from experiments.runs.spec import Spec
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

#: A function that makes the network by another file, and that file.
DEPENDS = {
    "an import inside the function": (
        "def make(rngs, shape, classes):\n    import part\n"
        "    return Net(rngs, shape, classes, part.W)",
        ("part.py", "W = 8"),
    ),
    "an import inside the call": (
        "class make(Net):\n    def __call__(self, x):\n        from part import W\n"
        "        return super().__call__(x) * W / 8",
        ("part.py", "W = 8"),
    ),
    "an import by name": (
        "def make(rngs, shape, classes):\n    import importlib\n"
        "    return Net(rngs, shape, classes, importlib.import_module('p' + 'art').W)",
        ("part.py", "W = 8"),
    ),
    "an import of an import": (
        "def make(rngs, shape, classes):\n    from between import W\n"
        "    return Net(rngs, shape, classes, W)",
        ("part.py", "W = 8"),
    ),
    "a module of a package": (
        "def make(rngs, shape, classes):\n    from pack import part\n"
        "    return Net(rngs, shape, classes, part.W)",
        ("pack/part.py", "W = 8"),
    ),
    "a file of settings": (
        "def make(rngs, shape, classes):\n"
        "    width = int(Path(__file__).with_name('width.txt').read_text())\n"
        "    return Net(rngs, shape, classes, width)",
        ("width.txt", "8"),
    ),
}


#: Code that reads by compiled code or another program.
COMPILED = {
    "HDF5": "int(h5py.File(HERE / 'w.h5')['w'][()])",
    "Polars": "int(polars.read_csv(HERE / 'w.csv')['w'][0])",
    "another program": "int(subprocess.check_output(['cat', str(HERE / 'width.txt')]))",
    "a path from the current folder": "int(polars.read_csv('w.csv')['w'][0])",
}


@pytest.mark.parametrize("kind", COMPILED)
def test_what_compiled_code_reads_belongs_to_it_by_its_name(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def content(width):
        (tmp_path / "width.txt").write_text(str(width))
        (tmp_path / "w.csv").write_text(f"w\n{width}\n")
        with h5py.File(tmp_path / "w.h5", "w") as file:
            file["w"] = width

    content(8)
    (tmp_path / "other.txt").write_text("1")
    lines = ["import h5py, polars, subprocess", "from pathlib import Path"]
    lines += ["HERE = Path(__file__).parent", f"X = {COMPILED[kind]}"]
    (tmp_path / "nets.py").write_text("\n".join([*lines, "def make(rngs, shape, classes): pass"]))
    model = str(tmp_path / "nets.py")
    load_maker(f"{model}:make")
    usual = content_of(model)
    (tmp_path / "other.txt").write_text("2")
    assert content_of(model) == usual
    content(9)
    assert content_of(model) != usual


def test_packages_that_it_imports_belong_to_it_by_their_versions(tmp_path, monkeypatch):
    (tmp_path / "nets.py").write_text("import os, jax\nfrom PIL import Image\nimport h5py.h5\n")
    usual = content_of(str(tmp_path / "nets.py"))
    assert usual.decode().splitlines()[-2:] == [
        f"PIL {importlib.metadata.version('pillow')}",
        f"h5py {importlib.metadata.version('h5py')}",
    ]
    sources._version.cache_clear()
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.1")
    assert content_of(str(tmp_path / "nets.py")) != usual
    sources._version.cache_clear()


#: Code that reads width.txt, or lists the folder names, or asks for the variable WIDTH.
READS = {
    "bytes for a path": "int(text(os.fsencode(HERE / 'width.txt')))",
    "a file in another folder": "int((HERE.parent / 'outer.txt').read_text())",
    "a file that is executed": "(space := {}, exec(text(HERE / 'part.py'), space))[0]['W']",
    "a database": "rows(HERE / 'w.db')[0][0]",
    "a folder's names": "len(os.listdir(HERE / 'names'))",
    "a variable": "int(os.environ['WIDTH'])",
    "a variable with a default": "int(os.getenv('WIDTH_IF_SET', '8'))",
}


@pytest.mark.parametrize("kind", READS)
def test_what_the_code_reads_and_asks_for_belongs_to_it(kind, tmp_path, monkeypatch):
    place = tmp_path / "inner"
    (place / "names").mkdir(parents=True)

    def content(width):
        (place / "width.txt").write_text(str(width))
        (tmp_path / "outer.txt").write_text(str(width))
        (place / "part.py").write_text(f"W = {width}")
        with contextlib.closing(sqlite3.connect(place / "w.db")) as database:
            database.executescript(f"drop table if exists w; create table w as select {width}")
        (place / "names" / str(width)).touch()
        monkeypatch.setenv("WIDTH", str(width))

    content(8)
    lines = [
        "import contextlib, os, sqlite3",
        "from pathlib import Path",
        "HERE = Path(__file__).parent",
    ]
    lines += ["def text(path):", "    with open(path) as file:", "        return file.read()"]
    lines += ["def rows(path):", "    with contextlib.closing(sqlite3.connect(path)) as database:"]
    lines += ["        return database.execute('select * from w').fetchall()"]
    lines += [f"X = {READS[kind]}", "def make(rngs, shape, classes): return X"]
    (place / "nets.py").write_text("\n".join(lines))
    model = str(place / "nets.py")
    load_maker(f"{model}:make")
    assert type(os.environ).__getitem__.__module__ == "os"  # Nothing of Python's is exchanged.
    usual = content_of(model)
    monkeypatch.setenv("OTHER", "1")
    assert content_of(model) == usual
    content(9)
    monkeypatch.setenv("WIDTH_IF_SET", "9")
    assert content_of(model) != usual


def forget():
    """Forgets the user's modules, as a new process has not seen them."""
    from experiments.models import from_file

    from_file._executed.cache_clear()
    for name in ("part", "between", "pack", "pack.part"):
        sys.modules.pop(name, None)
    importlib.invalidate_caches()


@pytest.fixture(autouse=True)
def modules_end_with_the_test(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    forget()
    yield
    forget()


def comparison_of(folder, name="make"):
    model = f"{folder / 'nets.py'}:{name}"
    return Comparison(Config(model=model, dataset=save_toy(folder), batch_size=16))


def spec_of(folder, name="make", method="none"):
    (spec,) = comparison_of(folder, name).specs([(method, (), 0)])
    return spec


def checksums_of(folder):
    """Returns what a run is stored with, once the network is made and called."""
    comparison = comparison_of(folder)
    comparison.trainer(Spec("none", 0, comparison.config), comparison.dataset(0))
    return comparison.checksums(0)


@pytest.mark.parametrize("kind", DEPENDS)
def test_an_edit_of_what_the_network_was_made_of_makes_its_run_stale(kind, tmp_path):
    code, (name, content) = DEPENDS[kind]
    (tmp_path / "nets.py").write_text(NET + code)
    (tmp_path / "between.py").write_text("from part import W")
    (tmp_path / "other.py").write_text("W = 1")
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").touch()
    (tmp_path / name).write_text(content)
    usual = checksums_of(tmp_path)
    forget()
    (tmp_path / "other.py").write_text("W = 2")
    assert checksums_of(tmp_path) == usual
    forget()
    (tmp_path / name).write_text(content.replace("8", "9"))
    assert checksums_of(tmp_path) != usual


def test_an_edit_of_what_a_call_imports_makes_a_spec_of_its_own(tmp_path):
    """The files count that were used until the network was made, called and checked."""
    code, (name, content) = DEPENDS["an import inside the call"]
    (tmp_path / "nets.py").write_text(NET + code)
    specs = []
    for text in (content, content + "\n"):
        (tmp_path / name).write_text(text)
        specs.append(spec_of(tmp_path))
        forget()
    one, other = specs
    assert one.network == other.network
    assert one.digest != other.digest


def test_a_network_of_one_file_has_the_checksum_that_it_had(tmp_path):
    path = tmp_path / "nets.py"
    path.write_text(NET)
    spec_of(tmp_path, "Net")
    assert content_of(str(path)) == path.read_bytes()


@pytest.mark.kept("part", "toy")
@pytest.mark.parametrize("edited", ["nets.py", "part.py", "toy.npz"])
def test_what_was_edited_since_the_command_began_is_not_trained(edited, tmp_path):
    """A worker reads the files again; its run would be stored as one of the files before."""
    (tmp_path / "nets.py").write_text(
        NET + "def make(rngs, shape, classes):\n    import part\n"
        "    return Net(rngs, shape, classes, part.W)"
    )
    (tmp_path / "part.py").write_text("W = 8")
    config = Config(model=f"{tmp_path / 'nets.py'}:make", dataset=save_toy(tmp_path), epochs=1)
    parent = Comparison(config)
    (spec,) = parent.specs([("none", (), 0)])
    make = parent.factory()
    assert make().unchanged(spec) is None
    forget()
    if edited == "toy.npz":
        with np.load(tmp_path / edited) as file:
            arrays = dict(file)
        np.savez(tmp_path / edited, **arrays | {"X": arrays["X"] ** 2})
    else:
        with (tmp_path / edited).open("a") as file:
            file.write("\n")
    with pytest.raises(UserError, match=f"{edited} was edited after the command began"):
        make()(spec, NoCheckpoints())


def test_an_edit_changes_nothing_for_the_command_that_runs(tmp_path):
    (tmp_path / "nets.py").write_text(NET)
    config = Config(model=f"{tmp_path / 'nets.py'}:Net", dataset=save_toy(tmp_path))
    comparison = Comparison(config)
    (spec,) = comparison.specs([("none", (), 0)])
    (tmp_path / "nets.py").write_text(NET + "W = 8")
    assert comparison.checksums(0) == spec.data


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
        assert spec_of(tmp_path, method="bn").data


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


#: Modules that make another network in each process, or the same.
MODULES = {
    "a draw of the file's": ("X = numpy.random.random()", "X", True),
    "a draw of a module's": ("from part import X", "X", True),
    "a draw that is called with": ("from part import X", "1; self.scale = X", True),
    "a seed and a draw": ("numpy.random.seed(0); X = numpy.random.random()", "X", False),
    "a function with its own gradient": (
        "@jax.custom_jvp\ndef f(x): return x\nf.defjvps(lambda t, y, x: t)\nX = f",
        "X(0.5)",
        False,
    ),
}


@pytest.mark.parametrize("kind", MODULES)
def test_a_network_of_one_process_alone_is_refused(kind, tmp_path):
    """Each process of --jobs, and each later call, would train another one under the same name."""
    lines, scale, refused = MODULES[kind]
    code = (
        f"import jax, numpy\n{lines}\nclass make(Net):\n    scale = 1.0\n"
        "    def __init__(self, *arguments):\n        super().__init__(*arguments)\n"
        f"        self.hidden.kernel[...] *= {scale}\n"
        "    def __call__(self, x):\n        return super().__call__(self.scale * x)\n"
    )
    (tmp_path / "nets.py").write_text(NET + code)
    (tmp_path / "part.py").write_text("import numpy\nX = numpy.random.random()")
    match = "another network each time .* or that its file is executed"
    with pytest.raises(UserError, match=match) if refused else contextlib.nullcontext():
        spec_of(tmp_path)


def test_a_file_that_cannot_be_executed_twice_is_trained(tmp_path):
    """As one that defines flags; nothing that it prints is printed twice."""
    once = "import sys\nassert not hasattr(sys, 'defined')\nsys.defined = print('hello')\n"
    (tmp_path / "nets.py").write_text(NET + once)
    try:
        assert spec_of(tmp_path, "Net").data
    finally:
        del sys.defined


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
    assert spec_of(tmp_path).data


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
