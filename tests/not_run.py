"""What every suite does with a test that is not run: in CI it fails, elsewhere it is in the report of tests/run (tests/report.sh).

A reason that begins with `this machine` is about the machine, such as one with a GPU. Every other reason is something that could be
installed: in CI, where everything is, that is a failure. A module that cannot be imported is an error everywhere.
"""

import os
import pathlib
import sys

import pytest

IS_CI = os.environ.get("CI", "").lower() not in ("", "0", "false")
OF_THE_MACHINE = "this machine"


def register(config):
    """Has these hooks called, once in each process; for the `pytest_configure` of a suite."""
    this = sys.modules[__name__]
    if not config.pluginmanager.is_registered(this):
        config.pluginmanager.register(this)
    # an assertion in a thread of a test is one of the test
    config.addinivalue_line("filterwarnings", "error::pytest.PytestUnhandledThreadExceptionWarning")


def _reason(report):
    """Why a test was skipped."""
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")


def _judged(report):
    """Turns what may not be skipped into a failure."""
    is_expected_failure = hasattr(report, "wasxfail")
    if IS_CI and report.skipped and not is_expected_failure and not _reason(report).startswith(OF_THE_MACHINE):
        report.longrepr = f"CI skips nothing: {_reason(report)}"
        report.outcome = "failed"
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport():
    return _judged((yield))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report():
    return _judged((yield))


def pytest_terminal_summary(terminalreporter, config):
    # of several processes, only the one that hears of every test
    if not (path := os.environ.get("TESTS_REPORT")) or hasattr(config, "workerinput"):
        return
    counts = {}
    for report in terminalreporter.stats.get("skipped", []):
        suite = pathlib.PurePosixPath(report.nodeid.split("::")[0])
        # only one of the suites' folders stands before the file's name
        key = (suite.name, _reason(report))
        counts[key] = counts.get(key, 0) + 1
    with open(path, "a") as out:
        for (suite, reason), count in counts.items():
            out.write(f"not run\t{suite}, {count} test{'s' * (count > 1)}: {reason}\n")
