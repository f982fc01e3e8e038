"""What pytest does around the tests of a suite: none hangs, and without a binary they are skipped with a reason."""

import contextlib
import signal

import pytest
import sidecar


def skip_without_binary(items):
    """Skips these tests if there is no binary to test."""
    if not sidecar.binary():
        for item in items:
            item.add_marker(pytest.mark.skip(reason="no lapwing binary: build it or set LAPWING_BIN"))


@contextlib.contextmanager
def ended_after(seconds):
    """Fails what takes longer."""

    def over(*_):
        raise AssertionError(f"hung for {seconds} s")

    signal.signal(signal.SIGALRM, over)
    signal.alarm(seconds)
    yield
    signal.alarm(0)
