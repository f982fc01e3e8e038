"""Gives every test a time limit, so that none hangs, and skips it with a reason if there is no binary."""

import pathlib
import signal
import sys

import pytest

sys.path[:0] = map(str, pathlib.Path(__file__).parents[:2])  # this folder, and tests/ for ports

import sidecar  # noqa: E402

SECONDS = 30


def pytest_collection_modifyitems(items):
    if sidecar.binary():
        return
    for item in items:
        if "wire" not in item.path.name:
            item.add_marker(pytest.mark.skip(reason="no lapwing binary: build it or set LAPWING_BIN"))


@pytest.fixture(autouse=True)
def time_limit():
    def over(*_):
        raise AssertionError(f"hung for {SECONDS} s")

    signal.signal(signal.SIGALRM, over)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
