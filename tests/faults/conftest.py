"""Gives every test a time limit, so that none hangs, and fails it with a reason if there is no binary."""

import pathlib
import sys

import pytest

sys.path[:0] = map(str, pathlib.Path(__file__).parents[:2])  # this folder, and tests/ for ports

import hooks  # noqa: E402
import not_run  # noqa: E402

SECONDS = 30


def pytest_configure(config):
    not_run.register(config)


def pytest_runtest_setup(item):
    if item.path.name not in ("test_wire.py", "test_not_run.py"):
        hooks.needs_binary()


@pytest.fixture(autouse=True)
def time_limit():
    with hooks.ended_after(SECONDS):
        yield
