"""Settings of the experiments' tests."""

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from experiments.runs import comparison


@pytest.fixture(scope="session", autouse=True)
def _no_look() -> Iterator[None]:
    """Trains without a look at the network before, which `test_look` tests: it takes a second."""
    with pytest.MonkeyPatch.context() as patch:
        network = SimpleNamespace(verdict=lambda: "")
        patch.setattr(comparison, "initial_network", lambda *arguments: network)
        yield
