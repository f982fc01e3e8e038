#!/usr/bin/env python3
"""A client that reads nothing beside clients that share its connection to the upstream (HTTP/2): do they get slower?

nghttpd serves a large and a small file over h2c. A connection of its own asks Lapwing for the large one and reads nothing of the answer;
h2load's clients ask for the small one meanwhile. Rounds without and with the client that stalls take turns; the bound is on the ratio of
p99, the median of the rounds.

usage: python3 benches/stalled.py [--lapwing PATH] [--rounds N] [--requests N] [--json FILE]
needs: pip install h2, apt-get install nghttp2-client nghttp2-server
"""

import argparse
import contextlib
import pathlib
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import urllib.request

from parts import MIB, Child, Lapwing, arguments, finish, free_port, quantile, table, timed

SLOWER = 1.1
STALLED = 4
"""Streams that stall, on one connection."""


@contextlib.contextmanager
def stalled(port):
    """Streams of which the client reads a window each, and then nothing."""
    import h2.config
    import h2.connection

    connection = socket.create_connection(("127.0.0.1", port))
    state = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    state.initiate_connection()
    for _ in range(STALLED):
        head = [(":method", "GET"), (":path", "/large"), (":scheme", "http"), (":authority", "h")]
        state.send_headers(state.get_next_available_stream_id(), head, end_stream=True)
    connection.sendall(state.data_to_send())
    connection.settimeout(1)
    came = 0
    with connection:
        with contextlib.suppress(TimeoutError):
            while data := connection.recv(65_536):
                came += len(data)
                state.receive_data(data)
                connection.sendall(state.data_to_send())
        assert came > 30_000, f"{came} bytes: the streams stall when their windows are full"
        yield


def latencies(port, requests):
    """Microseconds of each request to the small file, of 8 clients with 4 streams each."""
    with tempfile.NamedTemporaryFile() as log:
        command = ["h2load", f"-n{requests}", "-c8", "-m4", f"--log-file={log.name}", f"http://127.0.0.1:{port}/small"]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert f"{requests} succeeded" in said, said
        return [int(line.split()[2]) for line in pathlib.Path(log.name).read_text().splitlines()]


def connections(lapwing):
    """How many were opened to the upstream."""
    with urllib.request.urlopen(f"http://127.0.0.1:{lapwing.admin}/metrics") as metrics:
        lines = metrics.read().decode().splitlines()
    return next(int(float(line.split()[1])) for line in lines if line.startswith("lapwing_upstream_connections_total "))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments(parser)
    parser.add_argument("--rounds", type=int, default=15, help="rounds of each kind (default: 15)")
    parser.add_argument("--requests", type=int, default=20_000, help="requests of a round (default: 20,000)")
    options = parser.parse_args()
    if not (shutil.which("nghttpd") and shutil.which("h2load")):
        parser.error("nghttpd and h2load are needed: apt-get install nghttp2-client nghttp2-server")
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "small").write_bytes(bytes(1024))
        (pathlib.Path(folder) / "large").write_bytes(bytes(16 * MIB))
        upstream = free_port()
        serve = ["nghttpd", "--no-tls", "-a", "127.0.0.1", "-d", folder, upstream]
        with Child(serve, upstream), Lapwing(options.lapwing, upstream, config="proxy: {upstream_protocol: h2}\n") as lapwing:
            latencies(lapwing.port, options.requests)
            rows, ratios = [], []
            for round_ in range(options.rounds):
                alone = quantile(latencies(lapwing.port, options.requests), 0.99)
                with stalled(lapwing.port):
                    beside = quantile(latencies(lapwing.port, options.requests), 0.99)
                ratios.append(beside / alone)
                rows.append([round_ + 1, alone, beside, f"{ratios[-1]:.3f}"])
            opened = connections(lapwing)
    table(["round", "p99 alone, µs", "beside, µs", "ratio"], rows)
    median = statistics.median(ratios)
    verdicts = [
        ("connections to the upstream, all rounds together", opened, options.rounds, opened < options.rounds),
        timed("p99 beside a client that reads nothing, times alone", round(median, 3), SLOWER, median <= SLOWER),
    ]
    return finish(options, {"ratios": ratios, "median": median, "connections": opened}, verdicts)


if __name__ == "__main__":
    sys.exit(main())
