"""The suite that attacks. It has the fakes, the process under test and the time limits of the fault suite."""

import pathlib
import sys

sys.path[:0] = [str(pathlib.Path(__file__).parents[1] / "faults"), str(pathlib.Path(__file__).parents[1])]

import sidecar  # noqa: E402
import pytest  # noqa: E402

SECONDS = 60


def pytest_collection_modifyitems(items):
    if not sidecar.binary():
        for item in items:
            item.add_marker(pytest.mark.skip(reason="no lapwing binary: build it or set LAPWING_BIN"))


@pytest.fixture(autouse=True)
def time_limit():
    import signal

    def over(*_):
        raise AssertionError(f"hung for {SECONDS} s")

    signal.signal(signal.SIGALRM, over)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
