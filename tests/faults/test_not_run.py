"""A test that was not run is never one that passed: it is reported, and in CI it fails (tests/not_run.py, for every suite)."""

import os
import pathlib
import subprocess
import sys

import pytest

TESTS = pathlib.Path(__file__).parents[1]
QUICK = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
"""Without the plugins of installed packages, which take seconds to load."""
SUITE = """
import pytest

@pytest.mark.skipif(True, reason="wrk is not installed")
def test_with_wrk():
    pass

@pytest.mark.skipif(True, reason="this machine has a driver")
def test_without_driver():
    pass

@pytest.mark.parametrize("row", [])
def test_of_rows(row):
    pass

@pytest.mark.xfail(strict=True)
def test_that_fails_as_it_should():
    raise AssertionError

def test_that_runs():
    pass
"""


def run(folder, *options, name="test_x.py", text=SUITE, **environment):
    """The exit code, the output and the report of pytest for a suite of this text."""
    (folder / "conftest.py").write_text(f"import sys\nsys.path[:0] = [{str(TESTS)!r}]\nimport not_run\npytest_configure = not_run.register\n")
    (folder / name).write_text(text)
    report = folder / "report"
    report.write_text("")
    env = {k: v for k, v in os.environ.items() if k not in ("CI", "TESTS_REPORT")} | {"TESTS_REPORT": str(report)} | QUICK | environment
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=env, timeout=25)
    return done.returncode, done.stdout, sorted(report.read_text().splitlines())


@pytest.mark.parametrize("options", [(), ("-p", "xdist", "-n", "2")], ids=["one at a time", "two at a time"])
def test_what_was_not_run_is_reported(tmp_path, options):
    code, out, report = run(tmp_path, *options)
    assert code == 0 and "2 passed" not in out and "1 passed, 3 skipped, 1 xfailed" in out, out
    assert report[1:] == [
        "not run\ttest_x.py, 1 test: this machine has a driver",
        "not run\ttest_x.py, 1 test: wrk is not installed",
    ]
    assert report[0].startswith("not run\ttest_x.py, 1 test: got empty parameter set")


def test_in_ci_it_has_failed(tmp_path):
    code, out, report = run(tmp_path, CI="true")
    assert code == 1 and "1 passed, 1 skipped, 1 xfailed, 2 errors" in out and "CI skips nothing: wrk is not installed" in out, out
    assert report == ["not run\ttest_x.py, 1 test: this machine has a driver"]


def test_an_assertion_in_a_thread_is_one_of_the_test(tmp_path):
    text = """
import threading

def fails():
    assert 1 == 2

def test_x():
    thread = threading.Thread(target=fails)
    thread.start()
    thread.join()
"""
    code, out, _ = run(tmp_path, text=text)
    assert code == 1 and "assert 1 == 2" in out, out


def test_a_module_that_is_left_out_has_failed_in_ci(tmp_path):
    text = 'import pytest\npytest.importorskip("no_such_module")\n\ndef test_x():\n    pass\n'
    assert run(tmp_path, text=text)[0] == 5, "no tests"
    code, out, _ = run(tmp_path, text=text, CI="1")
    assert code == 2 and "CI skips nothing: could not import 'no_such_module'" in out, out


def test_a_binary_that_is_missing_fails_the_suites(tmp_path):
    env = {k: v for k, v in os.environ.items() if k != "BINARY_OF_WORKERS"} | QUICK | {"LAPWING_BIN": str(tmp_path / "lapwing")}
    for suite in ("faults/test_clients.py", "hostile/test_names.py"):
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(TESTS / suite)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=env, timeout=25)
        assert done.returncode == 1 and "no lapwing binary" in done.stdout, done.stdout
