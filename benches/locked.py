#!/usr/bin/env python3
"""How many atomic instructions a request costs the data plane, and in which functions they are: locks, counts of references, exchanges.

Such an instruction waits for all stores before it, and takes tens of cycles even if no other core wants its memory; so a count of instructions
does not show what it costs. Lapwing runs under valgrind's callgrind, which counts each instruction by its address, and objdump tells the atomic
ones (x86-64: those with `lock`, and exchanges with memory). One connection sends --requests inference requests, each in one piece, after as many that
are not counted. With --bare, hyper alone is counted too.

usage: python3 benches/locked.py [--lapwing PATH] [--bare PATH] [--requests N] [--top N] [--json FILE]
Needs valgrind, objdump and binaries with symbols: cargo build --profile instructions --no-default-features --features jemalloc --bin lapwing --example bare
"""

import argparse
import collections
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from parts import ROOT, Child, Lapwing, arguments, finish, free_port, table
from plane import UPSTREAM, control, thread_number, under_callgrind

# positions by address, and neither positions nor names shortened
OPTIONS = "--dump-instr=yes --compress-pos=no --compress-strings=no"
BODY = b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 60], "data": [' + b", ".join([b"0.25"] * 60) + b"]}]}"
REQUEST = b"POST /v2/models/m/infer HTTP/1.1\r\nHost: m\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY
ANSWER_END = b'{"ok":true}'
SETTINGS = "attribution: {expect_spans: never, poll: off}\n"


def atomic_addresses(binary):
    """The addresses of the atomic instructions of a binary."""
    listing = subprocess.run(["objdump", "-d", "--no-show-raw-insn", binary], check=True, capture_output=True, text=True).stdout
    found = re.findall(r"^\s*([0-9a-f]+):\s+(?:lock\b|xchg\s+.*\().*$", listing, re.MULTILINE)
    return {int(address, 16) for address in found}


def executed(path, binary):
    """How often each instruction of the binary was executed, by function and address."""
    counts, mine, function, is_call = collections.Counter(), False, None, False
    for line in path.read_text().splitlines():
        if line.startswith("ob="):
            mine = Path(line[3:]).name == Path(binary).name
        elif line.startswith("fn="):
            function = line[3:]
        elif line.startswith("calls="):
            is_call = True  # the next line is what was called
        elif found := re.fullmatch(r"0x([0-9a-f]+) \S+ (\d+)", line):
            if mine and not is_call:
                counts[function, int(found[1], 16)] += int(found[2])
            is_call = False
    return counts


def send(port, requests):
    with socket.create_connection(("127.0.0.1", port), 60) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(2):
            for _ in range(requests):
                connection.sendall(REQUEST)
                answer = b""
                while not answer.endswith(ANSWER_END):
                    answer += connection.recv(65536)
            yield


def counted(binary, start, find_thread, requests):
    """Atomic instructions and all instructions of the data plane for each request, by function."""
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        with start(under_callgrind(Path(binary).resolve(), folder, OPTIONS)) as proxy:
            number, rounds = find_thread(proxy.pid), send(proxy.port, requests)
            next(rounds)
            control("--zero", proxy.pid)
            next(rounds)
            control("--dump", proxy.pid)
            rounds.close()
            proxy.process.send_signal(signal.SIGKILL)
        counts = executed(folder / f"out.1-{number:02}", binary)
    atomic, functions = atomic_addresses(binary), collections.Counter()
    for (function, address), n in counts.items():
        if address in atomic:
            functions[function] += n
    return {name: n / requests for name, n in functions.most_common()}, counts.total() / requests


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments(parser)
    parser.set_defaults(lapwing=str(ROOT / "target/instructions/lapwing"))
    parser.add_argument("--bare", help="hyper alone, to be counted too")
    parser.add_argument("--requests", type=int, default=1000, help="requests that are counted (default: 1000)")
    parser.add_argument("--top", type=int, default=20, help="how many functions are shown (default: 20)")
    options = parser.parse_args()
    for needed in ("valgrind", "objdump"):
        if not shutil.which(needed):
            raise SystemExit(f"{needed} is not installed")
    upstream_port, figures = free_port(), {}
    with Child([sys.executable, UPSTREAM, upstream_port], upstream_port):
        start = lambda binary: Lapwing(binary, upstream_port, config=SETTINGS)  # noqa: E731
        figures["Lapwing"] = counted(options.lapwing, start, thread_number, options.requests)
        if options.bare:
            port = free_port()
            start = lambda binary: Child([binary, f"127.0.0.1:{port}", f"127.0.0.1:{upstream_port}"], port)  # noqa: E731
            figures["hyper alone"] = counted(options.bare, start, lambda _: 1, options.requests)
    if not all(functions for functions, _ in figures.values()):
        raise SystemExit("no atomic instruction was found: has the binary been stripped?")
    rows = [(what, f"{sum(functions.values()):.1f}", f"{all_of_them:,.0f}") for what, (functions, all_of_them) in figures.items()]
    table(("for each request", "atomic instructions", "all instructions"), rows)
    functions, _ = figures["Lapwing"]
    table(("function", "atomic"), [(name[:110], f"{n:.1f}") for name, n in list(functions.items())[: options.top]])
    return finish(options, {"atomic": {what: functions for what, (functions, _) in figures.items()}, "requests": options.requests}, [])


if __name__ == "__main__":
    sys.exit(main())
