"""The answers of a store that are kept (`downstreams[].cache`): with a real Redis and redis-py, which must not notice. Judged are bytes, answers
and counts; how much faster it is, is measured by `benches/levers/hydration_cache.py`.
"""

import concurrent.futures
import http.client
import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import redis

from conftest import HERE
from ports import free_port
from process import wait_for, wait_listening
from test_downstreams import Relay, everything, figures, hydration, predict, start, store  # noqa: F401  (a fixture)

pytestmark = [pytest.mark.beside, pytest.mark.timeout(180)]
GO_REDIS = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or HERE.parents[1] / "target") / "tmp/go/bin/redis-client"
ALL = {"mode": "on", "prefixes": [""], "ttl": "60s"}


def through(start_lapwing, tmp_path, port, cache, **more):
    """Lapwing before the Redis at this port, with `store` as the port at which it is reached."""
    at = free_port()
    lapwing = start(start_lapwing, tmp_path, [{"name": "features", "listen": f"127.0.0.1:{at}", "to": f"redis://127.0.0.1:{port}", "kind": "redis", "cache": cache, **more}])
    lapwing.store = at
    return lapwing


def kept(lapwing, at=0):
    return figures(lapwing, at)["cache"]


@pytest.mark.parametrize("absent", ["pass", "keep"])
@pytest.mark.parametrize("protocol", [2, 3])
def test_redis_py_gets_the_same_bytes_and_some_of_them_from_memory(start_lapwing, store, tmp_path, protocol, absent):  # noqa: F811
    lapwing = through(start_lapwing, tmp_path, store.port, ALL | {"absent": absent})
    plain, cached = Relay(store.port), Relay(lapwing.store)

    def session(port):
        answers = [everything(port, protocol)]
        with redis.Redis(port=port, protocol=protocol) as client:
            for _ in range(3):
                answers += [client.get("k1"), client.mget("k1", "k2", "gone"), client.hgetall("h"), client.hmget("h", "a", "b"), client.hget("h", "b")]
                answers += [client.exists("k1"), client.zscore("z", "m"), client.smembers("none"), client.zrange("z", 0, -1, withscores=True)]
                with client.pipeline(transaction=False) as pipeline:
                    for n in range(50):
                        pipeline.get(f"k{n % 20}").hgetall("h")
                    answers.append(pipeline.execute())
            client.hset("h", "a", 2)
            answers += [client.hgetall("h"), client.hmget("h", "a", "b"), client.set("k1", "new"), client.get("k1"), client.mget("k1", "k2")]
            client.select(1)
            answers += [client.get("k1"), client.set("k1", "other"), client.get("k1"), client.get("k1")]
            client.select(0)
            answers += [client.get("k1"), client.expire("k1", 100), client.get("k1"), client.delete("k1"), client.get("k1"), client.flushall(), client.get("k2")]
        return answers

    assert session(cached.port) == session(plain.port)
    # on the last connection, what came from the store and from Lapwing: the same, but for the connection's number in the store
    plain_bytes, cached_bytes = (re.sub(rb"\$2\r\nid\r\n:\d+", b"id", relay.kept[-1][1]) for relay in (plain, cached))
    assert plain_bytes == cached_bytes and len(plain_bytes) > 5000
    shown = figures(lapwing)
    assert shown["cache"]["hits"] > 50 and shown["cache"]["untouched"] == 1, shown["cache"]
    assert shown["unread"] == {} and shown["cut"] == 0
    # all that was asked is counted, whoever answered
    assert shown["by_name"]["GET"]["calls"] > shown["cache"]["by_name"]["GET"]["misses"]
    assert shown["bytes_received"] < sum(len(got) for _, got in cached.kept)


@pytest.mark.skipif(not GO_REDIS.exists(), reason="no client of go-redis: it needs Go, and tests/run")
@pytest.mark.parametrize("protocol", [2, 3])
def test_go_redis_gets_the_same_answers(start_lapwing, store, tmp_path, protocol):  # noqa: F811
    lapwing = through(start_lapwing, tmp_path, store.port, ALL)
    direct, cached = (json.loads(subprocess.run([GO_REDIS, str(port), str(protocol)], check=True, capture_output=True, timeout=90).stdout) for port in (store.port, lapwing.store))
    assert direct == cached and len(direct) > 350
    shown = figures(lapwing)
    assert shown["cache"]["hits"] > 8 * 200 and shown["cache"]["untouched"] == 1 and shown["unread"] == {}, shown["cache"]


def test_writers_and_readers_at_once_never_see_what_was_overwritten(start_lapwing, store, tmp_path):  # noqa: F811
    lapwing = through(start_lapwing, tmp_path, store.port, {"mode": "on", "prefixes": ["n:"], "ttl": "60s"})
    written = [0] * 8
    clients = [redis.Redis(port=lapwing.store, protocol=2 + n % 2) for n in range(8)]
    count, stop = 300, threading.Event()

    def write(client, key):
        for number in range(1, count + 1):
            client.set(f"n:{key}", number)
            written[key] = number
            time.sleep(random.random() * 0.004)

    def read(client):
        reads = 0
        while not stop.is_set() or reads < 100:
            keys = [random.randrange(4), random.randrange(4)]
            least = [written[key] for key in keys]
            if reads % 3:
                found = [client.get(f"n:{key}") for key in keys]
            else:
                found = client.mget(f"n:{key}" for key in keys)
            assert all(int(value or 0) >= number for value, number in zip(found, least)), (found, least)
            reads += 1
        return reads

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        writers = [pool.submit(write, clients[n], n) for n in range(4)]
        readers = [pool.submit(read, clients[4 + n]) for n in range(4)]
        concurrent.futures.wait(writers)
        stop.set()
        assert [one.result() for one in writers] == [None] * 4 and min(one.result() for one in readers) >= 100
    shown = kept(lapwing)
    assert shown["hits"] > 100 and shown["forgot_keys"] == 4 * count, shown


def test_prefixes_time_to_live_and_writes_from_elsewhere(start_lapwing, store, tmp_path):  # noqa: F811
    lapwing = through(start_lapwing, tmp_path, store.port, {"mode": "on", "prefixes": ["user:"], "ttl": "400ms"})
    direct, client = redis.Redis(port=store.port), redis.Redis(port=lapwing.store)
    direct.mset({"user:1": 1, "other:1": 1})
    for _ in range(3):
        assert client.mget("user:1", "other:1") == [b"1", b"1"] and client.get("user:1") == b"1" and client.get("other:1") == b"1"
    shown = kept(lapwing)
    assert (shown["hits"], shown["misses"], shown["entries"]) == (2, 1, 1)
    assert shown["by_rule"] == {"user:": {"hits": 2, "misses": 1}} and shown["refused"] == {"unlisted": 6}
    direct.set("user:1", 2)
    assert client.get("user:1") == b"1", "the store was asked within the time to live"
    wait_for(lambda: client.get("user:1") == b"2", 5, "what is written elsewhere is seen after the time to live")
    assert kept(lapwing)["saved_ns"] > 0
    words = lapwing.get("/downstreams")[2].decode()
    assert "answered from memory" in words and "user:" in words and "6 not: unlisted" in words, words
    metrics = lapwing.metrics()
    for line in ('lapwing_downstream_cache_lookups_total{downstream="features",name="GET",result="hit"}', 'lapwing_downstream_cache_entries{downstream="features"} 1',
                 'lapwing_downstream_cache_refused_total{downstream="features",reason="unlisted"} 6'):
        assert line in metrics, line


def test_in_observe_every_byte_passes_and_what_would_differ_is_counted(start_lapwing, store, tmp_path):  # noqa: F811
    behind = Relay(store.port)
    lapwing = through(start_lapwing, tmp_path, behind.port, ALL | {"mode": "observe"})
    before = Relay(lapwing.store)
    for protocol in (2, 3):
        everything(before.port, protocol)
    wait_for(lambda: len(behind.kept) == len(before.kept), 5, "each connection has one behind")
    ours, theirs = (sorted((bytes(sent), bytes(got)) for sent, got in relay.kept) for relay in (before, behind))
    assert ours == theirs
    client, direct = redis.Redis(port=lapwing.store), redis.Redis(port=store.port)
    client.set("a", 1)
    for _ in range(4):
        client.get("a")
    direct.set("a", 2)
    assert client.get("a") == b"2"
    shown = kept(lapwing)
    assert shown["mode"] == "observe" and shown["hits"] >= 4 and shown["differed"] == 1, shown
    assert "could be answered from memory" in lapwing.get("/downstreams")[2].decode()


def test_a_stopped_store_delays_only_what_it_is_asked(start_lapwing, store, tmp_path):  # noqa: F811
    lapwing = through(start_lapwing, tmp_path, store.port, ALL)
    client = redis.Redis(port=lapwing.store, socket_timeout=0.5, retry=None)
    client.mset({"a": 1, "b": 2})
    assert client.get("a") == b"1" and kept(lapwing)["entries"] == 1
    other = redis.Redis(port=lapwing.store)
    other.ping()
    store.send(signal.SIGSTOP)
    try:
        waiting = threading.Thread(target=lambda: other.get("b"))
        waiting.start()
        took = []
        for _ in range(200):
            began = time.monotonic()
            assert client.get("a") == b"1"
            took.append(time.monotonic() - began)
        assert waiting.is_alive() and sorted(took)[100] < 0.1
        began = time.monotonic()
        with pytest.raises(redis.TimeoutError):
            client.get("b")
        assert 0.4 < time.monotonic() - began < 5
    finally:
        store.send(signal.SIGCONT)
    waiting.join(20)
    # a call that was given up takes nobody else's answer
    assert [client.get(key) for key in ("a", "b", "a")] == [b"1", b"2", b"1"]


def test_users_do_not_see_one_anothers_answers(start_lapwing, processes, tmp_path):
    port = free_port()
    processes("redis-acl", ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(tmp_path)])
    wait_listening(port)
    admin = redis.Redis(port=port)
    admin.execute_command("ACL", "SETUSER", "reader", "on", ">secret", "~user:*", "+@read", "+@connection")
    admin.execute_command("ACL", "SETUSER", "stranger", "on", ">secret", "~nothing:*", "+@read", "+@connection")
    admin.set("user:1", "mine")
    lapwing = through(start_lapwing, tmp_path, port, ALL)
    for protocol in (2, 3):
        reader, stranger = (redis.Redis(port=lapwing.store, username=name, password="secret", protocol=protocol) for name in ("reader", "stranger"))
        assert [reader.get("user:1") for _ in range(3)] == [b"mine"] * 3
        for _ in range(2):
            with pytest.raises(redis.exceptions.NoPermissionError):
                stranger.get("user:1")
        with pytest.raises(redis.exceptions.AuthenticationError):
            redis.Redis(port=lapwing.store, username="reader", password="wrong", protocol=protocol).get("user:1")
    assert kept(lapwing)["hits"] == 4 and kept(lapwing)["refused"]["error"] == 4


class FeatureStore(BaseHTTPRequestHandler):
    """Features by `GET`, Feast's `POST`, and `POST /push`, which changes them; it takes 20 ms and counts what it is asked."""

    protocol_version = "HTTP/1.1"
    asked, version = 0, 1

    def do_GET(self):
        self.answer({"path": self.path, "version": FeatureStore.version})

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path == "/push":
            FeatureStore.version += 1
        self.answer({"results": [{"values": asked["entities"]["id"]}, {"values": [FeatureStore.version]}]} if "entities" in asked else {})

    def answer(self, said):
        FeatureStore.asked += 1
        time.sleep(0.02)
        body = json.dumps(said).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        if self.path.startswith("/own"):
            self.send_header("cache-control", "private")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def test_http_stores_are_answered_for_by_path_and_by_feasts_body(start_lapwing, tmp_path):
    server = ThreadingHTTPServer(("127.0.0.1", 0), FeatureStore)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    at = free_port()
    cache = {"mode": "on", "paths": ["/features/*", "/own/*", "/get-online-features"], "ttl": "60s"}
    lapwing = start(start_lapwing, tmp_path, [{"name": "feast", "listen": f"127.0.0.1:{at}", "to": f"http://127.0.0.1:{server.server_port}", "kind": "http", "cache": cache}])
    connection = http.client.HTTPConnection("127.0.0.1", at, timeout=30)

    def ask(method, path, said=None, **fields):
        before = FeatureStore.asked
        connection.request(method, path, said and json.dumps(said), fields)
        response = connection.getresponse()
        body = json.loads(response.read())
        assert response.status == 200 and (FeatureStore.asked > before) == (response.getheader("age") is None)
        return body, FeatureStore.asked == before

    one, other = ({"features": ["a:b"], "entities": {"id": [number]}} for number in (1, 2))
    for _ in range(2):
        for said in (one, other):
            first, again = ask("POST", "/get-online-features", said), ask("POST", "/get-online-features", said, traceparent=f"00-{os.urandom(16).hex()}-{os.urandom(8).hex()}-01")
            assert first[0] == again[0] and again[0]["results"][0]["values"] == said["entities"]["id"] and again[1]
        assert ask("GET", "/features/7")[0] == {"path": "/features/7", "version": FeatureStore.version} and ask("GET", "/features/7")[1]
        assert not ask("GET", "/features/7", Authorization=f"somebody {_}")[1] and not ask("GET", "/other")[1]
        assert not ask("GET", "/own/7")[1] and not ask("GET", "/own/7")[1]
        ask("POST", "/push", {"pushed": 1})
    shown = figures(lapwing)
    kept = shown["cache"]
    assert kept["by_name"]["get-online-features"]["hits"] == 4 and kept["by_name"]["get-online-features"]["store_mean_ns"] > 20e6
    assert (kept["hits"], kept["forgot_all"], kept["refused"]) == (6, 2, {"private": 4, "unlisted": 2}), kept
    # all that was asked is counted, and its entities, whoever answered
    assert shown["by_name"]["get-online-features"]["calls"] == 8 and shown["keys"] == 8 and shown["unread"] == {}
    assert kept["saved_ns"] > 6 * 20e6


def test_hydration_of_a_hit_is_observed_as_before(start_lapwing, processes, store, tmp_path):  # noqa: F811
    redis_port, http_port, port = free_port(), free_port(), free_port()
    lapwing = start(start_lapwing, tmp_path, [
        {"name": "redis", "listen": f"127.0.0.1:{redis_port}", "to": f"redis://127.0.0.1:{store.port}", "kind": "redis", "cache": {"mode": "on", "prefixes": ["feature:"]}},
    ], upstream=f"http://127.0.0.1:{port}")
    processes("app", [sys.executable, str(HERE / "servers/feature_app.py"), str(port), str(redis_port), str(http_port)])
    redis.Redis(port=store.port).mset({f"feature:{number}": number for number in range(60)})
    wait_listening(port, 60)
    asked = dict(predict(lapwing, "keys=10&rounds=1") for _ in range(6))
    for trace, exchange in lapwing.exchanges_of(asked).items():
        own_ns, (ns, source) = asked[trace]["hydration_s"] * 1e9, hydration(exchange)
        assert source == "observed" and 0 < ns <= own_ns, (ns, own_ns)
    assert [answer["found"] for answer in asked.values()] == [[10]] * 6
    shown = figures(lapwing)
    assert (shown["cache"]["hits"], shown["cache"]["misses"]) == (5, 1) and shown["waits"]["alone"]["count"] >= 6, shown


def test_hostile_bytes_pass_untouched(start_lapwing, store, tmp_path):  # noqa: F811
    lapwing = through(start_lapwing, tmp_path, store.port, ALL)
    for bytes_sent in [b"*1\r\n$99999999999\r\n", b"*-5\r\nPING\r\n", b"*3\r\n$3\r\nSET\r\n:1\r\n", b"POST / HTTP/1.1\r\n\r\n", b"GET  a \r\n", b"\r\n\r\n*1\r\n$4\r\nPING\r\n", b"$3\r\nGET\r\n"]:
        answers = []
        for port in (store.port, lapwing.store):
            with socket.create_connection(("127.0.0.1", port), 5) as sock:
                sock.sendall(bytes_sent)
                sock.settimeout(1)
                try:
                    answers.append(sock.recv(1000))
                except TimeoutError:
                    answers.append(None)
        assert answers[0] == answers[1], (bytes_sent, answers)


def test_a_client_that_sends_much_before_it_reads_is_served(start_lapwing, store, tmp_path):  # noqa: F811
    lapwing = through(start_lapwing, tmp_path, store.port, ALL)
    text = os.urandom(2000)
    client = redis.Redis(port=lapwing.store, protocol=2)
    client.set("a", text)
    client.get("a")
    with socket.create_connection(("127.0.0.1", lapwing.store), 5) as sock:
        count = 20_000
        sock.settimeout(30)
        sock.sendall(b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n" * count)
        reply, left = b"$2000\r\n" + text + b"\r\n", count * (2000 + 9)
        got = bytearray()
        while len(got) < left:
            got += sock.recv(1 << 20)
        assert got == reply * count
    shown = kept(lapwing)
    assert shown["refused"]["backlog"] > 0, shown
