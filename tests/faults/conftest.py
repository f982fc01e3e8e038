"""Gives every test a time limit, so that none hangs, and skips it with a reason if there is no binary."""

import pathlib
import sys

import pytest

sys.path[:0] = map(str, pathlib.Path(__file__).parents[:2])  # this folder, and tests/ for ports

import hooks  # noqa: E402

SECONDS = 30


def pytest_collection_modifyitems(items):
    hooks.skip_without_binary([item for item in items if "wire" not in item.path.name])


@pytest.fixture(autouse=True)
def time_limit():
    with hooks.ended_after(SECONDS):
        yield
