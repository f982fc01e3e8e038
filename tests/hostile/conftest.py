"""The suite that attacks. It has the fakes, the process under test and the hooks of the fault suite."""

import pathlib
import sys

import pytest

TESTS = pathlib.Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / "faults"), str(TESTS)]

import hooks  # noqa: E402
import not_run  # noqa: E402

SECONDS = 60


def pytest_configure(config):
    not_run.register(config)
    config.addinivalue_line("markers", "long: the same under more conditions; tests/run --long runs them")


def pytest_runtest_setup(item):
    # other proxies run there, and no Lapwing
    if item.path.name != "test_beside.py":
        hooks.needs_binary()


@pytest.fixture(autouse=True)
def time_limit():
    with hooks.ended_after(SECONDS):
        yield
