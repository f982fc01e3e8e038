"""What the cases of cache.py share: the upstream that counts, Lapwing and nginx as caches before it, clients, and processor time."""

import contextlib
import json
import socket
import statistics
import sys
import tempfile
import time
import urllib.request

import load
import proxies
from cache_server import answer
from overhead import family
from parts import Child, Lapwing, free_port
from unqueued import interval
from upstreams import HERE

PROXY_CORE, LOAD_CORE = 0, 1
PATH = "/v2/models/m/infer"
NGINX = """
daemon off; worker_processes 1; %(user)s pid nginx.pid; error_log stderr; worker_rlimit_nofile 65536;
events { worker_connections 4096; }
http {
  access_log off; client_max_body_size 8m; client_body_buffer_size 2m; client_body_in_single_buffer on; client_body_temp_path body;
  keepalive_requests 100000000; keepalive_timeout 10m; proxy_http_version 1.1; open_file_cache max=20000 inactive=1h;
  proxy_cache_path %(store)s keys_zone=answers:64m max_size=1g inactive=1h use_temp_path=off;
  upstream server { server 127.0.0.1:%(upstream)d; keepalive 256; keepalive_requests 1000000; }
  server { listen 127.0.0.1:%(port)d backlog=4096;
    location / { proxy_pass http://server; proxy_set_header Connection ""; proxy_buffer_size 512k; proxy_buffers 8 512k;
      proxy_cache answers; proxy_cache_methods POST; proxy_cache_key "$request_uri|$request_body"; proxy_cache_valid 200 1h;
      proxy_cache_lock %(lock)s; proxy_cache_lock_age 1m; proxy_cache_lock_timeout 1m; } }
}
"""
"""The whole key is in the head of a file of its store, so `proxy_buffer_size` has room for it."""
CALM_S = 2.0
PROOF_S = 60.0
"""How long a cache may take until it answers for the first time."""


def body(number, size, rows=1):
    """A question of its own, exactly so long."""
    start = '{"inputs":[{"name":"x","shape":[%d,1],"datatype":"INT64","data":[%d' % (rows, number) + ",1" * (rows - 1)
    end = ']}],"parameters":{"of":"%s"}}'
    return (start + end % ("x" * max(0, size - len(start) - len(end % "")))).encode()


def message(number, size, rows=1):
    return load.message(PATH, body(number, size, rows))


@contextlib.contextmanager
def nginx(upstream, lock="on"):
    """Its store is in memory."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as store:
        # its worker is another user's if root starts it, unless it is told so
        with proxies.nginx_by(NGINX, {"upstream": upstream, "store": store, "lock": lock}, PROXY_CORE) as child:
            yield child


def lapwing(options, upstream, cache, core=PROXY_CORE, more=""):
    """`cache` is the section, a mapping."""
    return Lapwing(options.lapwing, upstream, core=core, config=f"{proxies.LAPWING}cache: {json.dumps(cache)}\n{more}")


class Upstream(Child):
    """cache_server.py."""

    def __init__(self, *more, core=LOAD_CORE):
        port = free_port()
        super().__init__([sys.executable, HERE / "cache_server.py", port, *more], port, core)

    def counts(self, path="/counts"):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=30) as response:
            return json.load(response)

    def afresh(self):
        return self.counts("/afresh")


class Client:
    """One kept connection; one question after the other."""

    def __init__(self, port):
        self.socket, self.read = socket.create_connection(("127.0.0.1", port)), bytearray()
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.settimeout(60)

    def ask(self, sent):
        """(the nanoseconds, the head in small letters, the body)"""
        read, clock = self.read, time.perf_counter_ns
        read.clear()
        began = clock()
        self.socket.sendall(sent)
        while True:
            piece = self.socket.recv(1 << 18)
            if not piece:
                raise SystemExit(f"the connection ended: {bytes(read)!r}")
            read += piece
            end = read.find(b"\r\n\r\n")
            if end < 0:
                continue
            head = bytes(read[:end]).lower()
            at = head.find(b"\r\ncontent-length:")
            if len(read) >= end + 4 + int(head[at + 17 :].split(b"\r\n", 1)[0]):
                break
        took = clock() - began
        if not head.startswith(b"http/1.1 200"):
            raise SystemExit(f"not answered: {bytes(read)[:500]!r}")
        return took, head, bytes(read[end + 4 :])

    def close(self):
        self.socket.close()


def is_hit(head):
    """Whether Lapwing answered from its cache."""
    return b"\r\nage:" in head


def is_own(sent, got):
    """Whether this is the answer of cache_server.py to that message."""
    return got.startswith(answer(sent.split(b"\r\n\r\n", 1)[1], 0)[:-5])


def prove(lapwing, size=1024, first=1_000_000):
    """Asks until the cache answers, which it does once the upstream was seen to say the same again; how many questions that took."""
    client, end, asked = Client(lapwing.port), time.monotonic() + PROOF_S, 0
    try:
        while time.monotonic() < end:
            # several questions, since a cache may want to see more than one
            for number in range(first, first + 16):
                asked += 1
                if is_hit(client.ask(message(number, size))[1]):
                    return asked
    finally:
        client.close()
    raise SystemExit(f"no answer from the cache after {asked} questions in {PROOF_S:.0f} s; /cache says {json.dumps(lapwing.get('/cache'))[:2000]}")


def cpu_ns(pid):
    """User and system time of a process and its descendants so far, to the nanosecond."""
    # CPUCLOCK_SCHED of a process: what clock_getcpuclockid(3) returns
    return sum(time.clock_gettime_ns((~one << 3) | 2) for one in family(pid))


class Rounds:
    """Rounds in which each of the named has a turn, in an order that moves. Those in which other processes took too much of the machine are
    repeated while patience lasts; if that left fewer than half of those asked for, all count, and that is said."""

    def __init__(self, options, rounds):
        self.options, self.wanted, self.calm, self.others = options, rounds, [], []

    def run(self, names, turn):
        """`turn(name)` is the figures of one turn. Returns rounds of figures by name."""
        names, rounds, end = list(names), [], time.monotonic() + self.options.patience
        while len(self.calm) < self.wanted and not (len(rounds) >= self.wanted and time.monotonic() > end):
            at = len(rounds) % len(names)
            with load.Others() as others:
                rounds.append({name: turn(name) for name in names[at:] + names[:at]})
            self.others.append(others.share)
            if others.share <= self.options.others:
                self.calm.append(rounds[-1])
        self.used = self.calm if len(self.calm) >= self.wanted / 2 else rounds
        return self.used

    def said(self):
        text = f"{len(self.used)} rounds of {len(self.others)}; others took {statistics.median(self.others):.0%} of the machine in the median, {max(self.others):.0%} at most"
        return text + ("" if self.used is self.calm else f". WARNING: only {len(self.calm)} were calm, so all count")


def within(values, form="{:.2f}"):
    """A median with its interval."""
    if len(values) < 2:
        return form.format(values[0])
    low, high = interval(values)
    return f"{form.format(statistics.median(values))} ({form.format(low)} to {form.format(high)})"
