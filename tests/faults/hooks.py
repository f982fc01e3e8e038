"""What pytest does around the tests of a suite: none hangs, and without a binary they fail with a reason."""

import contextlib
import signal

import pytest
import sidecar


def needs_binary():
    """Fails a test if there is no binary to test."""
    if not sidecar.binary():
        pytest.fail("no lapwing binary: cargo build, or set LAPWING_BIN", pytrace=False)


@contextlib.contextmanager
def ended_after(seconds):
    """Fails what takes longer."""

    def over(*_):
        raise AssertionError(f"hung for {seconds} s")

    signal.signal(signal.SIGALRM, over)
    signal.alarm(seconds)
    yield
    signal.alarm(0)
