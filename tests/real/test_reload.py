"""The configuration is loaded again while requests are served: a mounted ConfigMap as Kubernetes swaps it, and SIGHUP."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
from concurrent import futures

import grpc
import pytest

from lapwing import NO_SPANS, OPENER
from ports import free_port
from process import wait_for, wait_listening
from raw_server import RawServer

pytestmark = pytest.mark.beside
IN_EFFECT_S = 3
"""Within what time a new content is in effect."""


class ConfigMap:
    """A mounted ConfigMap: the file is a link into `..data`, which is a link to a folder; a new one is renamed over it."""

    def __init__(self, folder):
        self.folder, self.version, self.file = folder, 0, folder / "lapwing.yaml"
        self.file.symlink_to("..data/lapwing.yaml")

    def write(self, text):
        self.version += 1
        data = self.folder / f"..2026_{self.version}"
        data.mkdir()
        (data / "lapwing.yaml").write_text(text)
        link = self.folder / "..data_tmp"
        link.symlink_to(data.name)
        link.rename(self.folder / "..data")
        return self


def generation(lapwing):
    return lapwing.json("/config")["generation"]


class Load:
    """Requests one after the other on connections that stay open, until it is stopped."""

    def __init__(self, port, connections):
        self.port, self.stopped = port, threading.Event()
        self.answered, self.failed, self.timed = [0] * connections, [], [None] * connections
        self.threads = [threading.Thread(target=self.run, args=(at,)) for at in range(connections)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def run(self, at):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        connection.connect()
        socket_of = connection.sock
        while not self.stopped.is_set():
            try:
                connection.request("POST", "/head", body=b"12345678")
                response = connection.getresponse()
                response.read()
                assert response.status == 200, response.status
                assert connection.sock is socket_of, "the connection was closed"
                self.timed[at] = response.headers.get("server-timing") is not None
                self.answered[at] += 1
            except Exception as error:
                self.failed.append(repr(error))
                return
            time.sleep(0.002)

    def __exit__(self, *_):
        self.stopped.set()
        for thread in self.threads:
            thread.join(20)


@pytest.mark.parametrize("swaps", [6, pytest.param(200, marks=[pytest.mark.long, pytest.mark.timeout(900)])])
@pytest.mark.parametrize("by", ["ConfigMap", "SIGHUP"])
def test_swaps_under_load_lose_nothing_and_are_in_effect_on_open_connections(start_lapwing, raw_server, tmp_path, swaps, by):
    watch = "2s" if by == "ConfigMap" else "off"
    text = "respond_server_timing: {}\nconfig: {{watch: " + watch + "}}\n"
    mounted = ConfigMap(tmp_path).write(text.format("false"))
    lapwing = start_lapwing(raw_server.url, config=mounted.file, env=NO_SPANS)
    with Load(lapwing.port, 4) as load:
        wait_for(lambda: all(load.answered), 20, "every connection has carried a request")
        for swap in range(swaps):
            is_told = swap % 2 == 0
            mounted.write(text.format(str(is_told).lower()))
            if by == "SIGHUP":
                lapwing.process.send(signal.SIGHUP)
            wait_for(lambda: load.failed or load.timed == [is_told] * 4, IN_EFFECT_S + 1, f"swap {swap} is in effect", 0.02)
            assert not load.failed, load.failed
    assert not load.failed, load.failed
    assert generation(lapwing) == 1 + swaps
    wait_for(lambda: lapwing.count() == sum(load.answered), 20, "every request is counted once")
    assert lapwing.outcomes()["ok"] == sum(load.answered)
    metrics = lapwing.metrics()
    assert f"\nlapwing_config_generation {1 + swaps}\n" in metrics and "\nlapwing_config_reload_failures_total 0\n" in metrics


def test_weights_tags_routes_and_the_policy_of_upstreams_follow_under_load(start_lapwing, tmp_path):
    with RawServer() as a, RawServer() as b:

        def write(weights, zones="eu us", more=""):
            of = [
                f"  {name}: {{url: '{server.url}', weight: {weight}, tags: {{zone: {zone}}}}}\n"
                for name, server, weight, zone in zip("ab", (a, b), weights, zones.split())
            ]
            return mounted.write("upstreams:\n" + "".join(of) + more)

        mounted = ConfigMap(tmp_path)
        lapwing = start_lapwing(None, config=write((1, 1)).file, env=NO_SPANS)

        def share_of_a():
            before = len(a.seen), len(b.seen)
            wait_for(lambda: load.failed or len(a.seen) + len(b.seen) > sum(before) + 100, 10, "answers come", 0.005)
            of_a, of_b = len(a.seen) - before[0], len(b.seen) - before[1]
            return of_a / (of_a + of_b)

        def becomes(share, what):
            wait_for(lambda: load.failed or abs(share_of_a() - share) < 0.05, IN_EFFECT_S + 1, what, 0.01)
            assert not load.failed, load.failed

        with Load(lapwing.port, 4) as load:
            becomes(0.5, "both have their share")
            for weights in [(9, 1), (1, 9), (3, 1)] * 2:
                write(weights)
                becomes(weights[0] / sum(weights), f"{weights} are in effect")
            route = "upstream_policy: least_requests\nroutes: [{match: {route: POST /head}, to: ['tag:zone=eu']}]\n"
            for zones, share in [("eu us", 1), ("us eu", 0), ("eu us", 1)]:
                write((1, 1), zones, route)
                becomes(share, f"the route leads to eu: {zones}")
            assert [one["tags"] for one in lapwing.stats()["upstreams"]] == [{"zone": "eu"}, {"zone": "us"}]
            assert '\nlapwing_upstream_tags{upstream="b",zone="us"} 1\n' in lapwing.metrics()
            assert lapwing.json("/config")["needs_restart"] == []
            # other upstreams need a restart; those that are there go on
            mounted.write(f"upstreams:\n  a: {{url: '{b.url}', weight: 9}}\n  c: {{url: '{a.url}'}}\n")
            wait_for(lambda: lapwing.json("/config")["needs_restart"], IN_EFFECT_S + 1, "what needs a restart is said")
            assert lapwing.json("/config")["needs_restart"] == ["upstreams.a.url", "upstreams.b", "upstreams.c"]
            becomes(0.9, "the weight follows")
        assert not load.failed, load.failed
        wait_for(lambda: lapwing.count() == sum(load.answered), 20, "every request is counted once")
        assert lapwing.outcomes()["ok"] == sum(load.answered) == len(a.seen) + len(b.seen)
        assert {one["in_flight"] for one in lapwing.stats()["upstreams"]} == {0}


class Echo(grpc.GenericRpcHandler):
    """Answers every call with its bytes."""

    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(lambda request, context: request)


def test_a_new_configuration_is_in_effect_on_an_open_http2_connection(start_lapwing, tmp_path):
    server = grpc.server(futures.ThreadPoolExecutor(2), handlers=[Echo()])
    upstream = server.add_insecure_port("127.0.0.1:0")
    server.start()
    mounted = ConfigMap(tmp_path).write("respond_server_timing: false\n")
    lapwing = start_lapwing(f"http://127.0.0.1:{upstream}", config=mounted.file, env=NO_SPANS)
    with grpc.insecure_channel(f"127.0.0.1:{lapwing.port}") as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ServerLive")

        def is_told():
            _, call_of = call.with_call(b"", timeout=10)
            return any(name == "server-timing" for name, _ in [*call_of.initial_metadata(), *call_of.trailing_metadata()])

        assert not is_told()
        mounted.write("respond_server_timing: true\n")
        wait_for(is_told, IN_EFFECT_S + 1, "the new configuration is in effect", 0.1)
    assert "\nlapwing_client_connections_total 1\n" in lapwing.metrics(), "all of it on one connection"
    server.stop(0)


def test_a_request_ends_under_the_configuration_that_it_began_with(start_lapwing, raw_server, tmp_path):
    mounted = ConfigMap(tmp_path).write("respond_server_timing: false\n")
    lapwing = start_lapwing(raw_server.url, config=mounted.file, env=NO_SPANS)
    with socket.create_connection(("127.0.0.1", lapwing.port), 10) as slow:
        slow.sendall(b"GET /head?ms=1500 HTTP/1.1\r\nhost: h\r\n\r\n")
        time.sleep(0.3)
        mounted.write("respond_server_timing: true\nproxy: {header_timeout: 100ms}\n")
        lapwing.process.send(signal.SIGHUP)
        wait_for(lambda: generation(lapwing) == 2, IN_EFFECT_S, "the new configuration is in force")
        answer = slow.recv(65536).lower()
        assert answer.startswith(b"http/1.1 200") and b"server-timing" not in answer, answer
        slow.sendall(b"GET /head?ms=1500 HTTP/1.1\r\nhost: h\r\n\r\n")
        assert slow.recv(65536).startswith(b"HTTP/1.1 504"), "the next one on the same connection has the new limit"


def test_a_faulty_file_changes_nothing_and_every_fault_is_said_at_once(start_lapwing, raw_server, tmp_path):
    mounted = ConfigMap(tmp_path).write("respond_server_timing: true\n")
    lapwing = start_lapwing(raw_server.url, config=mounted.file, env=NO_SPANS)
    before = lapwing.json("/config")
    assert before["failed_reload"] is None and before["needs_restart"] == [] and before["generation"] == 1
    mounted.write("respond_server_timing: false\nlisten: nowhere\nproxy: {max_in_flight: 0, wrokers: 2}\nbudget: 3\n")
    failed = wait_for(lambda: lapwing.json("/config")["failed_reload"], IN_EFFECT_S + 1, "the faults are said")
    # the address of the file does not count: a flag has it
    paths = [fault.split(":")[0] for fault in failed["faults"]]
    assert paths == ["budget", "proxy.max_in_flight", "proxy.wrokers"], failed
    assert abs(failed["unix_ns"] / 1e9 - time.time()) < 30
    after = lapwing.json("/config")
    assert {**after, "failed_reload": None} == before
    log = lapwing.process.output()
    assert "3 faults in the configuration, so nothing of it is in force" in log
    assert all(fault in log for fault in failed["faults"])
    assert "\nlapwing_config_reload_failures_total 1\n" in lapwing.metrics()
    # a file that is gone is a fault too
    (tmp_path / "..data").unlink()
    wait_for(lambda: "cannot be read" in str(lapwing.json("/config")["failed_reload"]), IN_EFFECT_S + 1, "the loss is said")
    mounted.write("respond_server_timing: false\n")
    wait_for(lambda: generation(lapwing) == 2, IN_EFFECT_S + 1, "it is mended")
    now = lapwing.json("/config")
    assert now["failed_reload"] is None and now["values"]["respond_server_timing"] is False


def test_what_is_fixed_at_the_start_is_named_and_stays(start_lapwing, raw_server, tmp_path):
    mounted = ConfigMap(tmp_path).write("proxy: {workers: 1}\nlog: info\n")
    lapwing = start_lapwing(raw_server.url, config=mounted.file, env=NO_SPANS)
    mounted.write("proxy: {workers: 2, connect_timeout: 1s}\nlog: warn\nmetrics: {max_series: 50}\n")
    lapwing.process.send(signal.SIGHUP)
    wait_for(lambda: generation(lapwing) == 2, IN_EFFECT_S, "the new configuration is in force")
    now = lapwing.json("/config")
    assert now["needs_restart"] == ["metrics.max_series", "proxy.workers"]
    values = now["values"]
    assert values["proxy"]["workers"] == 1 and values["proxy"]["connect_timeout"] == "1s" and values["metrics"]["max_series"] != 50
    log = lapwing.process.output()
    assert re.search(r"INFO.*SIGHUP: the configuration is loaded again changed=\"log, proxy.connect_timeout\"", log), log
    assert "proxy.workers: is fixed at the start; the new value needs a restart" in log
    # the filter is the new one: only warnings from here on
    marked = len(lapwing.process.output())
    mounted.write("proxy: {workers: 1}\nlog: warn\n")
    lapwing.process.send(signal.SIGHUP)
    wait_for(lambda: generation(lapwing) == 3, IN_EFFECT_S, "the new configuration is in force")
    assert lapwing.json("/config")["needs_restart"] == []
    assert "INFO" not in lapwing.process.output()[marked:]


def test_without_watch_only_a_signal_reloads(start_lapwing, raw_server, tmp_path):
    mounted = ConfigMap(tmp_path).write("config: {watch: off}\n")
    lapwing = start_lapwing(raw_server.url, config=mounted.file, env=NO_SPANS)
    mounted.write("config: {watch: off}\nrespond_server_timing: true\n")
    time.sleep(4)
    assert generation(lapwing) == 1
    lapwing.process.send(signal.SIGHUP)
    wait_for(lambda: generation(lapwing) == 2, IN_EFFECT_S, "the signal reloads")
    assert lapwing.json("/config")["values"]["respond_server_timing"] is True


def test_a_file_that_is_written_in_pieces_is_read_when_it_is_whole(start_lapwing, raw_server, tmp_path):
    config = tmp_path / "lapwing.yaml"
    config.write_text("log: info\n")
    lapwing = start_lapwing(raw_server.url, config=config, env=NO_SPANS)
    with open(config, "w") as out:
        for line in ("respond_server_timing: true\n", *(f"# {n}\n" for n in range(20)), "proxy: {max_in_flight: 77}\n"):
            out.write(line)
            out.flush()
            time.sleep(0.2)
    wait_for(lambda: generation(lapwing) == 2, IN_EFFECT_S + 1, "the whole file is in force")
    values = lapwing.json("/config")["values"]
    assert values["respond_server_timing"] is True and values["proxy"]["max_in_flight"] == 77


def test_a_file_that_is_emptied_first_is_read_when_it_is_whole(start_lapwing, raw_server, tmp_path):
    config = tmp_path / "lapwing.yaml"
    config.write_text("respond_server_timing: true\n")
    lapwing = start_lapwing(raw_server.url, config=config, env=NO_SPANS)
    config.write_text("")
    time.sleep(4)
    assert generation(lapwing) == 1 and lapwing.json("/config")["values"]["respond_server_timing"] is True
    config.write_text("respond_server_timing: true\nproxy: {max_in_flight: 77}\n")
    wait_for(lambda: generation(lapwing) == 2, IN_EFFECT_S + 1, "the whole file is in force")


def test_a_file_that_is_too_large_to_be_read_beside_requests_is_said(start_lapwing, raw_server, tmp_path):
    config = tmp_path / "lapwing.yaml"
    config.write_text("respond_server_timing: true\n")
    lapwing = start_lapwing(raw_server.url, config=config, env=NO_SPANS)
    with open(config, "r+b") as out:
        out.truncate(1 << 40)
    failed = wait_for(lambda: lapwing.json("/config")["failed_reload"], IN_EFFECT_S + 1, "the size is said")
    assert failed["faults"][0].endswith("is larger than 16 MiB, and is not read while requests are served"), failed
    assert generation(lapwing) == 1


def test_a_pipe_is_read_once(binary, raw_server):
    (port, admin), (read, write) = (free_port(), free_port()), os.pipe()
    os.write(write, f"upstream: {raw_server.url}\nadmin: 127.0.0.1:{admin}\nlisten: 127.0.0.1:{port}\notlp_grpc: off\notlp_http: off\n".encode())
    os.close(write)
    child = subprocess.Popen([binary, "--config", f"/dev/fd/{read}"], pass_fds=[read], stderr=subprocess.PIPE, text=True)
    try:
        wait_listening(admin)
        child.send_signal(signal.SIGHUP)

        def config():
            with OPENER.open(f"http://127.0.0.1:{admin}/config", timeout=10) as answer:
                return json.load(answer)

        failed = wait_for(lambda: config()["failed_reload"], IN_EFFECT_S, "the signal is answered")
        assert failed["faults"][0].endswith("is not a regular file, which alone can be read again"), failed
        assert config()["values"]["upstream"] == raw_server.url and config()["generation"] == 1
    finally:
        child.send_signal(signal.SIGTERM)
        assert child.wait(20) == 0
        child.stderr.close()
