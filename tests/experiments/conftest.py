"""Settings of the experiments' tests."""

from collections.abc import Iterator

import pytest

from experiments.runs import comparison


@pytest.fixture(scope="session", autouse=True)
def _no_look() -> Iterator[None]:
    """Trains without a look at the network before, which `test_look` tests: it takes a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(comparison, "initial_signal", lambda *arguments: "")
        yield
