"""Uploads through Lapwing in every mix of protocols: none stands still.

Node's servers and uvicorn behind, which read with back-pressure; curl, h2load and Go's client before, whose bodies go on as far as the windows of HTTP/2 let them. A lost
wake-up stops an upload until a time limit, five minutes later, so an upload that takes a few seconds has stalled.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

import pytest

from lapwing import NO_SPANS
from ports import free_port
from process import wait_for, wait_listening

SERVERS = pathlib.Path(__file__).parent / "servers"
PATIENCE_S = 20
MIXES = [(client, upstream) for client in ("h1", "h2") for upstream in ("h1", "h2")]
MANY = int(os.environ.get("UPLOADS_OF_EACH_MIX", "100000"))
"""Uploads of each mix in the long run."""

pytestmark = [pytest.mark.beside, pytest.mark.skipif(not shutil.which("node"), reason="node is not installed")]


@pytest.fixture(scope="module")
def before(processes, start_lapwing):
    """Lapwing before a server for a protocol; each is started once."""
    started = {}

    def before(upstream):
        if upstream not in started:
            port = free_port()
            if upstream == "uvicorn":
                command = [sys.executable, "-m", "uvicorn", "uploads:app", "--app-dir", str(SERVERS), "--port", str(port), "--log-level", "warning"]
            else:
                command = ["node", str(SERVERS / "uploads.js"), upstream, str(port)]
            processes(f"uploads_{upstream}", command)
            wait_listening(port)
            protocol = "h2" if upstream == "h2" else "h1"
            lapwing = start_lapwing(f"http://127.0.0.1:{port}", env={**NO_SPANS, "LAPWING_PROXY__UPSTREAM_PROTOCOL": protocol})
            wait_for(lapwing.is_ready, 20, "lapwing is ready")
            started[upstream] = lapwing
        return started[upstream]

    return before


@pytest.fixture(scope="module")
def body(tmp_path_factory):
    """A file of so many bytes."""
    folder = tmp_path_factory.mktemp("bodies")

    def of(size):
        path = folder / str(size)
        if not path.exists():
            path.write_bytes(os.urandom(size))
        return path

    return of


def stalls_of_curl(port, client, path, n):
    """How many of `n` uploads had no right answer in time. Each has a curl of its own, for over HTTP/2 some use a connection once only."""
    flag = "--http2-prior-knowledge" if client == "h2" else "--http1.1"
    command = ["curl", "-s", flag, "--max-time", str(PATIENCE_S), "-H", "content-type: application/octet-stream"]
    command += ["--data-binary", f"@{path}", f"http://127.0.0.1:{port}/{path.name}"]
    answers = [subprocess.run(command, capture_output=True, text=True, check=False).stdout for _ in range(n)]
    return sum(answer != f"{path.name}\n" for answer in answers)


def stalls_of_h2load(port, client, path, n):
    """How many of `n` uploads, four at once over two connections, had no right answer."""
    shape = ["--h1", "-c4"] if client == "h1" else ["-c2", "-m2"]
    command = ["h2load", f"-n{n}", *shape, f"--connection-inactivity-timeout={PATIENCE_S}", "-d", str(path), f"http://127.0.0.1:{port}/{path.name}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    succeeded = re.search(r"(\d+) succeeded", done.stdout)
    assert succeeded, done.stdout + done.stderr
    return n - int(succeeded[1])


@pytest.mark.parametrize("client, upstream", MIXES)
def test_no_upload_stalls(before, body, client, upstream):
    lapwing = before(upstream)
    # below the stream window, just above it, and far above
    sizes = [(200_000, 10), (1_100_000, 10), (5_000_000, 20)]
    assert [stalls_of_curl(lapwing.port, client, body(size), n) for size, n in sizes] == [0, 0, 0]
    assert [stalls_of_h2load(lapwing.port, client, body(size), n) for size, n in sizes] == [0, 0, 0]


@pytest.fixture(scope="module")
def go_client(tmp_path_factory):
    if not shutil.which("go"):
        pytest.skip("go is not installed")
    binary = tmp_path_factory.mktemp("go") / "uploads"
    subprocess.run(["go", "build", "-o", str(binary), str(SERVERS / "uploads.go")], check=True)
    return binary


@pytest.mark.parametrize("upstream", ["h1", "h2", "uvicorn"])
def test_no_upload_of_go_stalls(before, go_client, upstream):
    url = f"http://127.0.0.1:{before(upstream).port}/5000000"
    done = subprocess.run([str(go_client), url, "5000000", "30"], capture_output=True, text=True, check=True)
    assert done.stdout == "0\n", done.stderr


def test_no_upload_to_uvicorn_stalls(before, body):
    port, path = before("uvicorn").port, body(5_000_000)
    assert [stalls_of_curl(port, client, path, 20) for client in ("h1", "h2")] == [0, 0]
    assert stalls_of_h2load(port, "h2", path, 20) == 0


@pytest.mark.long
@pytest.mark.timeout(6 * 3600)
@pytest.mark.parametrize("client, upstream", MIXES)
def test_no_upload_of_many_stalls(before, body, client, upstream):
    """Prints what was made: run it with `-s`."""
    lapwing = before(upstream)
    sizes = [(100_000, 0.5), (300_000, 0.3), (1_000_000, 0.15), (1_200_000, 0.04), (5_000_000, 0.0095), (100_000_000, 0.0005)]
    stalled = {}
    for size, share in sizes:
        n, began = max(round(MANY * share), 4), time.monotonic()
        stalled[size] = stalls_of_h2load(lapwing.port, client, body(size), n)
        print(f"{client} to {upstream}: {n} uploads of {size} bytes, {stalled[size]} stalled, {time.monotonic() - began:.0f} s", flush=True)
    assert not any(stalled.values()), stalled
