#!/usr/bin/env python3
"""What TLS costs: Lapwing with all profiling on beside HAProxy, both with TLS to the client and to the upstream, in one run.

Both ends speak TLS 1.3 with X25519, AES-256-GCM and certificates of ECDSA P-256, which the run checks. Requests and answers are tensors of 1 KiB on
connections that stay; each target is measured in turn, --rounds times, as by overhead.py: latency with one connection (the proxy adds the
difference to the direct one), then CPU microseconds per request with 32. Then connections that only make a handshake, in full and resumed: how
many of them a second of the proxy's processor time makes. Proxies run on core 0; upstream (nginx, fixed answers) and load on core 1.
Ratios are medians of the rounds' ratios, with the least and the greatest.

usage: python3 benches/tls.py [--lapwing PATH] [--rounds N] [--seconds S] [--handshakes N] [--json FILE]
Needs wrk, nginx, haproxy, openssl and taskset. Exit code 1 if a count misses its bound, 3 if only a time or memory does.
"""

import argparse
import contextlib
import os
import re
import shutil
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from overhead import HAPROXY_CONF, LOAD_CORE, NGINX_CONF, PROXY_CORE, cpu_seconds, measure, post_script, profiling, report, tensors, written
from parts import Child, Lapwing, arguments, finish, free_port, table, timed

CPU, ADDED, HANDSHAKES = 1.2, 1.1, 0.9
BYTES = 1024
REST_S = 0.3
SUITE = "TLS_AES_256_GCM_SHA384"
OPENSSL_CONF = f"""openssl_conf = all
[all]
ssl_conf = ssl
[ssl]
system_default = tls
[tls]
MinProtocol = TLSv1.3
Ciphersuites = {SUITE}
Groups = X25519
"""
"""What every end by OpenSSL speaks: nginx, HAProxy and the load."""


# === the ends ===


def certificates(folder):
    """An authority, and a certificate with its key, each by itself and together."""
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj"]
    names = "subjectAltName=DNS:localhost,IP:127.0.0.1"
    for command in (
        ["req", "-x509", *key, "/CN=ca", "-keyout", "ca.key", "-out", "ca.pem", "-addext", "basicConstraints=critical,CA:TRUE"],
        ["req", *key, "/CN=s", "-keyout", "s.key", "-out", "s.csr", "-addext", names],
        ["x509", "-req", "-in", "s.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-copy_extensions", "copy", "-out", "s.pem"],
    ):
        subprocess.run(["openssl", *command], cwd=folder, check=True, capture_output=True)
    Path(folder, "both.pem").write_text(Path(folder, "s.pem").read_text() + Path(folder, "s.key").read_text())


def upstream(folder, port):
    """nginx, which says at /spoken what a connection to it speaks."""
    shown = f"ssl_certificate {folder}/s.pem; ssl_certificate_key {folder}/s.key; ssl_protocols TLSv1.3; ssl_conf_command Ciphersuites {SUITE};"
    spoken = 'location = /spoken {{ return 200 "$ssl_protocol $ssl_cipher $ssl_curve\\n"; }} location'
    conf = NGINX_CONF.replace("default_type", shown + " default_type").replace("location", spoken, 1)
    does = f"return 200 '{tensors('outputs', 'y', BYTES)}';"
    return Child(["nginx", "-c", written(folder, "upstream.conf", conf, name="upstream", port=port, upstream=port, does=does, http2=" ssl")], port, LOAD_CORE)


def haproxy(folder, upstream_port):
    conf = HAPROXY_CONF.replace("{port}{proto}", "{port} ssl crt {dir}/both.pem alpn http/1.1")
    conf = conf.replace("{upstream}{proto}", "{upstream} ssl verify required ca-file {dir}/ca.pem sni str(localhost) alpn http/1.1")
    port = free_port()
    return Child(["haproxy", "-db", "-f", written(folder, "haproxy.cfg", conf, port=port, upstream=upstream_port)], port, PROXY_CORE)


def lapwing(folder, binary, upstream_port):
    config = f"tls: {{listen: {{certificate: {folder}/s.pem, key: {folder}/s.key}}, upstream: {{ca: {folder}/ca.pem}}}}\n"
    return Lapwing(binary, upstream_port, core=PROXY_CORE, config=config, scheme="https")


def spoken(port, folder):
    """What a client and this port speak, and what it speaks with the upstream."""
    command = ["openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-CAfile", f"{folder}/ca.pem", "-verify_return_error", "-ign_eof"]
    request = "GET /spoken HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    said = subprocess.run(command, input=request, capture_output=True, text=True, timeout=20, check=True).stdout
    client = [re.search(text, said)[1] for text in (r"New, (TLSv[\d.]+), Cipher", r"Cipher is (\S+)", r"Server Temp Key: (\S+),", r"Peer signature type: (\S+)")]
    return " ".join(client), re.search(r"TLSv1\S* TLS_\S+ \S+$", said, re.MULTILINE)[0]


# === handshakes ===


class Handshakes:
    """Connections to a port, one after the other, that make a handshake and end."""

    def __init__(self, port):
        self.port, self.context = port, ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.context.check_hostname, self.context.verify_mode = False, ssl.CERT_NONE
        self.context.minimum_version = ssl.TLSVersion.TLSv1_3

    def connect(self, session=None):
        return self.context.wrap_socket(socket.create_connection(("127.0.0.1", self.port), 10), session=session)

    def session(self):
        """One that can be resumed: its ticket comes before an answer."""
        with self.connect() as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: m\r\nConnection: close\r\n\r\n")
            while client.recv(65536):
                pass
            return client.session

    def make(self, n, session):
        """Returns how many were not as asked."""
        odd = 0
        for _ in range(n):
            with self.connect(session) as client:
                odd += client.session_reused != (session is not None)
        return odd


def handshakes(options, targets):
    """By target and kind: handshakes in a second of processor time, by rounds; and how many were not of that kind."""
    figures, odd = {name: {"full": [], "resumed": []} for name in targets}, 0
    for _ in range(options.rounds):
        for name, child in targets.items():
            load = Handshakes(child.port)
            for kind, rates in figures[name].items():
                session = load.session() if kind == "resumed" else None
                odd += load.make(50, session)
                time.sleep(REST_S)
                before = cpu_seconds(child.pid)
                odd += load.make(options.handshakes, session)
                time.sleep(REST_S)
                rates.append(options.handshakes / (cpu_seconds(child.pid) - before))
    return figures, odd


# === results ===


def spread(mine, theirs):
    """The median of the rounds' ratios, and both ends of them."""
    ratios = [one / other for one, other in zip(mine, theirs)]
    return statistics.median(ratios), f"{statistics.median(ratios):.2f}× ({min(ratios):.2f} to {max(ratios):.2f})"


def verdicts(rounds, made, odd):
    by = lambda key: [[one[key] for one in rounds[name]] for name in ("lapwing", "haproxy")]  # noqa: E731
    for what, key, bound in (("CPU per request", "cpu_us", CPU), ("added p50 at one connection", "added_p50_us", ADDED)):
        ratio, text = spread(*by(key))
        yield timed(f"{what}, of HAProxy's", text, f"≤ {bound}×", ratio <= bound)
    for kind in ("full", "resumed"):
        ratio, text = spread(made["lapwing"][kind], made["haproxy"][kind])
        yield timed(f"handshakes in a second of processor time, {kind}, of HAProxy's", text, f"≥ {HANDSHAKES}×", ratio >= HANDSHAKES)
    yield "failed requests", str(sum(one["bad"] for name in rounds for one in rounds[name])), "0", not any(one["bad"] for name in rounds for one in rounds[name])
    yield "handshakes that were not as asked", str(odd), "0", odd == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments(parser)
    parser.add_argument("--rounds", type=int, default=7, help="(default: 7)")
    parser.add_argument("--seconds", type=int, default=3, help="seconds of each measurement (default: 3)")
    parser.add_argument("--handshakes", type=int, default=2000, help="handshakes of each measurement (default: 2000)")
    options = parser.parse_args()
    for needed in ("wrk", "nginx", "haproxy", "openssl", "taskset"):
        if not shutil.which(needed):
            raise SystemExit(f"{needed} is not installed")
    os.sched_setaffinity(0, {LOAD_CORE})  # taskset moves what is not load
    with tempfile.TemporaryDirectory(prefix="tls-") as folder, contextlib.ExitStack() as started:
        certificates(folder)
        os.environ["OPENSSL_CONF"] = str(written(folder, "openssl.cnf", OPENSSL_CONF))
        options.upstream_port = free_port()
        started.enter_context(upstream(folder, options.upstream_port))
        proxies = {
            "haproxy": started.enter_context(haproxy(folder, options.upstream_port)),
            "lapwing": started.enter_context(lapwing(folder, options.lapwing, options.upstream_port)),
        }
        said = {name: spoken(child.port, folder) for name, child in proxies.items()}
        print("\n".join(f"{name}: {client}; upstream {server}" for name, (client, server) in said.items()), "\n")
        rounds = measure(options, {"direct": None, **proxies}, post_script(folder, BYTES), "https")
        medians = report(rounds)
        made, odd = handshakes(options, proxies)
        rates = {name: {kind: statistics.median(values) for kind, values in by.items()} for name, by in made.items()}
        table(["handshakes in a second of processor time", "full", "resumed"], [[name, *(f"{rate:.0f}" for rate in by.values())] for name, by in rates.items()])
        counts = profiling(proxies["lapwing"])
    same = len(set(said.values())) == 1
    judged = [("what is spoken at both ends", said["lapwing"][0], said["haproxy"][0], same), *verdicts(rounds, made, odd)]
    return finish(options, {"spoken": said, "rounds": rounds, "medians": medians, "handshakes": made, "lapwing": counts}, judged)


if __name__ == "__main__":
    sys.exit(main())
