"""The suite that attacks. It has the fakes, the process under test and the hooks of the fault suite."""

import pathlib
import sys

import pytest

TESTS = pathlib.Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / "faults"), str(TESTS)]

import hooks  # noqa: E402

SECONDS = 60


def pytest_collection_modifyitems(items):
    hooks.skip_without_binary([item for item in items if "beside" not in item.path.name])


@pytest.fixture(autouse=True)
def time_limit():
    with hooks.ended_after(SECONDS):
        yield
