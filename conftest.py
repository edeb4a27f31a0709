"""Strict settings for every test and every doctest, made before JAX starts a backend.

This file is at the root, not in `tests/`, because the doctests of `jaxnorm/` run under it too.
"""

import atexit
import gc
import itertools
import os
import sys
import tempfile
import typing
from collections.abc import Callable, Iterator

# Tests compile much and compute little: LLVM's optimizations cost more than they save. XLA's own
# passes, fusion and partitioning among them, run as ever. For subprocesses too, so before JAX.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")

import hypothesis
import jax
import jaxtyping
import pytest

from tests import names_an_array

# The CPU's fusion emitters lower each fusion by a pipeline of MLIR's, a third of all compile time;
# without them XLA lowers the same fusions itself. Each program is handed to LLVM whole: cut in 32
# parts, small ones take twice as long. Later releases refuse the one and gain nothing of the other.
if jax.__version_info__ < (0, 11):
    fast = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
    os.environ["XLA_FLAGS"] = f"{fast} {os.environ.get('XLA_FLAGS', '')}"

# Many tests trace one program anew, a quarter of all compile time: the process compiles it once.
# Each worker has a folder of its own, because JAX writes programs while another process may read.
# Earlier releases say on stderr of each stored program that it may not suit the machine.
programs = tempfile.TemporaryDirectory(prefix="jaxnorm-programs-")
if jax.__version_info__ >= (0, 11):
    jax.config.update("jax_compilation_cache_dir", programs.name)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)

# Eight fake CPU devices, also where there is an accelerator; JAX_PLATFORMS chooses otherwise.
# `jax_num_cpu_devices` raises if a backend runs already: settings that come too late are seen.
jax.config.update("jax_platforms", os.environ.get("JAX_PLATFORMS") or "cpu")
jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

# The same few examples in every run; no deadline, because a first call compiles.
hypothesis.settings.register_profile("jaxnorm", derandomize=True, deadline=None, max_examples=20)
hypothesis.settings.load_profile("jaxnorm")

# What imports leave lives to the end: no collection of garbage walks through it again.
gc.disable()


@pytest.hookimpl(tryfirst=True)  # before marks select
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        kept = item.get_closest_marker("kept")
        case = item.nodeid.partition("[")[2]
        if kept and not any(name in case for name in kept.args):
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    check_shapes_alone()
    gc.freeze()
    # JAX makes many objects, and what it keeps grows to the end: the usual collections walk through
    # it so often that they take four percent of the time.
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


def check_shapes_alone() -> None:
    """Ends the checks of annotations without an array, which mypy proves and each call would pay.

    A check binds the arguments and runs beartype twice: as long as a small function takes. The
    fields of records are checked whatever their type.
    """
    names = [name for name in sys.modules if name.partition(".")[0] in ("jaxnorm", "experiments")]
    for name in names:
        module = vars(sys.modules[name])
        classes = [x for x in module.values() if isinstance(x, type) and x.__module__ == name]
        methods = [f for kind in classes for key, f in vars(kind).items() if key != "__init__"]
        for function in (*module.values(), *methods):
            wrapped = getattr(getattr(function, "fget", function), "__wrapped__", None)
            if wrapped is not None and not names_an_array(wrapped):
                typing.no_type_check(wrapped)


@pytest.hookimpl(tryfirst=True)  # before pytest collects it all five times more
def pytest_unconfigure() -> None:
    programs.cleanup()
    gc.collect()
    gc.freeze()
    if "PYTEST_XDIST_WORKER" in os.environ:
        # What JAX frees one by one at the end, for seconds, the end of the process frees at once.
        atexit.register(os._exit, 0)


@pytest.fixture
def key() -> Callable[[], jax.Array]:
    """Give a function whose every call returns a fresh random key, the same ones in every run."""
    root, calls = jax.random.key(0), itertools.count()
    return lambda: jax.random.fold_in(root, next(calls))


@pytest.fixture
def standard_promotion() -> Iterator[None]:
    """Allow the implicit promotion that optax itself needs.

    Its Adam, Muon, schedules, MultiSteps and inject_hyperparams multiply floats by int32 counts,
    an error under strict promotion. For a test that composes with them; ours alone stay strict.
    """
    with jax.numpy_dtype_promotion("standard"):
        yield


@pytest.fixture
def unchecked() -> Iterator[None]:
    """A user's process, in which the shapes and types of arguments are not checked in front."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
