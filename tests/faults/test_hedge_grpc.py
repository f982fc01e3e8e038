"""gRPC calls that take long and are sent to a second upstream (`dispatch.hedge`), by a real client, in front of real servers: the one that answers too
late is told to stop."""

import collections
import contextlib
import gzip
import itertools
import json
import threading
import time
from concurrent import futures

import grpc
import pytest
from fake import await_true
from hedging import HEDGE, Hedging
from http2 import Client
from one_by_one import BATCH, ON, UNIT_S, WORKS
from sidecar import Sidecar
from test_dispatch_grpc import METHOD, request_of
from tritonclient.grpc import service_pb2


class Server(grpc.GenericRpcHandler):
    """A grpcio server with one thread. `copies` are the bytes and the metadata of each call by its id, with when it came; `cancelled` the ids of those
    that it was told to stop. While it is closed it works on nothing. `instead` are codes by id with which it answers."""

    def __init__(self, name):
        self.name, self.copies, self.cancelled, self.instead = name, collections.defaultdict(list), [], {}
        self.opened = threading.Event()
        self.opened.set()
        self.server = grpc.server(futures.ThreadPoolExecutor(1), handlers=[self], options=[("grpc.so_reuseport", 0)])
        self.url = f"http://127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"

    def service(self, details):
        encode = service_pb2.ModelInferResponse.SerializeToString
        return grpc.unary_unary_rpc_method_handler(self.infer, bytes, encode) if details.method == METHOD else None

    def infer(self, message, context):
        metadata = context.invocation_metadata()
        tag = service_pb2.ModelInferRequest.FromString(message).id
        self.copies[tag].append((message, tuple(metadata), time.monotonic()))
        while not self.opened.wait(0.01):
            if not context.is_active():
                self.cancelled.append(tag)
                context.abort(grpc.StatusCode.CANCELLED, "told to stop")
        time.sleep(UNIT_S * int(dict(metadata).get("x-takes", "1")))
        if code := self.instead.get(tag):
            context.abort(code, f"{self.name} cannot")
        return service_pb2.ModelInferResponse(model_name=self.name, id=tag)

    def gate(self, is_open):
        (self.opened.set if is_open else self.opened.clear)()

    def has(self, tag):
        return tag in self.copies

    def __enter__(self):
        self.server.start()
        return self

    def __exit__(self, *_):
        self.opened.set()
        self.server.stop(0).wait()


class Callers:
    def __init__(self, proxy, channel):
        self.proxy, self.numbers, self.sent = proxy, itertools.count(), {}
        self.infer = channel.unary_unary(METHOD, bytes, service_pb2.ModelInferResponse.FromString)

    def call(self, work, takes=1, timeout=30):
        tag = f"g{next(self.numbers)}"
        self.sent[tag] = request_of(tag, work).SerializeToString()
        return tag, self.infer.future(self.sent[tag], timeout=timeout, metadata=[("x-takes", str(takes)), ("x-own-bin", b"\0\1"), ("x-own", tag)])

    def view(self):
        return json.loads(self.proxy.get("/dispatch?format=json"))

    def waiting(self):
        return self.view()["waiting"]

    def load(self, works, connections=3):
        with futures.ThreadPoolExecutor(connections) as pool:
            answers = list(pool.map(lambda work: (call := self.call(work, work))[1].result().id == call[0], works))
        assert all(answers)

    def teach(self, servers):
        works = itertools.cycle(WORKS)
        for _ in range(20):
            self.load(itertools.islice(works, 2 * BATCH * servers), 3 * servers)
            view = lambda: self.view() or {"upstreams": [], "series": []}  # noqa: E731
            is_known = lambda: [one["slots"] for one in view()["upstreams"]] == [1] * servers and any(s["samples"] >= 64 for s in view()["series"])  # noqa: E731
            if await_true(is_known, 2):
                return
        raise AssertionError(self.view())


class Calls(Hedging):
    """The same of gRPC."""

    def sent_twice(self, work=8, send=None):
        self.gate(False)
        call = send() if send else self.callers.call(work)
        servers = self.servers.values()
        assert await_true(lambda: all(server.has(call[0]) for server in servers), 10), (self.callers.view(), self.counts())
        first, second = sorted(servers, key=lambda server: server.copies[call[0]][0][2])
        return call, first, second

    def follows(self):
        self.callers.load([1, 2, 4, 8] * 5, 2)

    def check(self):
        """Returns the ids of calls that reached both, with the same message and metadata."""
        copies = collections.defaultdict(list)
        for server in self.servers.values():
            for tag, of_tag in server.copies.items():
                assert len(of_tag) == 1, f"{server.name} had {tag} {len(of_tag)} times"
                copies[tag] += of_tag
        for tag, of_tag in copies.items():
            assert of_tag[0][0] == self.callers.sent[tag]
            assert len({(message, metadata) for message, metadata, _ in of_tag}) == 1, of_tag
        return {tag for tag, of_tag in copies.items() if len(of_tag) == 2}


@contextlib.contextmanager
def calling(**settings):
    with Server("a") as a, Server("b") as b:
        servers = {"a": a, "b": b}
        urls = {name: server.url for name, server in servers.items()}
        with Sidecar(urls, sections={"dispatch": ON}, workers=1, **settings) as proxy, grpc.insecure_channel(f"127.0.0.1:{proxy.port}") as channel:
            callers = Callers(proxy, channel)
            callers.teach(2)
            proxy.reload(dispatch={**ON, "hedge": HEDGE})
            calls = Calls(proxy, callers, servers)
            yield calls
            calls.gate(True)


def code_of(call):
    with pytest.raises(grpc.RpcError) as told:
        call[1].result(20)
    return told.value.code(), told.value.details()


@pytest.mark.parametrize("who", [0, 1], ids=["first", "second"])
def test_who_answers_first_answers_and_the_other_is_told_to_stop(who):
    with calling() as h:
        call, *both = h.sent_twice()
        winner, loser = both[who], both[1 - who]
        winner.gate(True)
        answer = call[1].result(20)
        assert (answer.id, answer.model_name) == (call[0], winner.name)
        assert await_true(lambda: loser.cancelled == [call[0]]), "its stream is reset"
        h.counted(**{"won" if who else "lost": 1})
        assert await_true(h.is_empty), (h.running(), h.in_flight())
        loser.gate(True)
        h.follows()
        assert call[0] in h.check()
        h.proxy.settled(plain=False, ok=len(h.callers.sent))


FAILURES = [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN]


@pytest.mark.parametrize("who", [0, 1], ids=["first", "second"])
@pytest.mark.parametrize("code", FAILURES, ids=lambda code: code.name)
def test_who_fails_at_once_leaves_it_to_the_other(code, who):
    with calling() as h:
        call, *both = h.sent_twice()
        fails, answers = both[who], both[1 - who]
        fails.instead[call[0]] = code
        fails.gate(True)
        time.sleep(0.3)
        assert not call[1].done(), "its failure is nobody's answer yet"
        answers.gate(True)
        assert call[1].result(20).model_name == answers.name
        h.counted(**{"lost" if who else "won": 1})
        assert await_true(h.is_empty), (h.running(), h.in_flight())
        h.follows()
        assert call[0] in h.check()
        h.proxy.settled(plain=False, ok=len(h.callers.sent))


@pytest.mark.parametrize("who", [0, 1], ids=["first", "second"])
def test_who_fails_gives_its_place_back_while_the_other_works(who):
    with calling() as h:
        call, *both = h.sent_twice()
        fails, answers = both[who], both[1 - who]
        fails.instead[call[0]] = grpc.StatusCode.UNAVAILABLE
        fails.gate(True)
        assert await_true(lambda: h.running() == {fails.name: 0, answers.name: 1}), h.running()
        answers.gate(True)
        assert call[1].result(20).model_name == answers.name


@pytest.mark.parametrize("is_second_first", [False, True], ids=["the first before", "the second before"])
def test_where_both_fail_the_answer_is_that_of_the_first(is_second_first):
    with calling() as h:
        call, first, second = h.sent_twice()
        first.instead[call[0]] = second.instead[call[0]] = grpc.StatusCode.UNAVAILABLE
        one, other = (second, first) if is_second_first else (first, second)
        one.gate(True)
        time.sleep(0.3)
        assert not call[1].done()
        other.gate(True)
        assert code_of(call) == (grpc.StatusCode.UNAVAILABLE, f"{first.name} cannot")
        h.counted(failed=1)
        assert await_true(h.is_empty), (h.running(), h.in_flight())
        h.follows()
        h.check()
        assert await_true(lambda: sum(h.proxy.outcomes().values()) == len(h.callers.sent)), h.proxy.outcomes()


@pytest.mark.parametrize("who", [0, 1], ids=["first", "second"])
@pytest.mark.parametrize("code", [grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND], ids=lambda code: code.name)
def test_that_the_call_is_wrong_is_an_answer(code, who):
    """As 4xx are."""
    with calling() as h:
        call, *both = h.sent_twice()
        both[who].instead[call[0]] = code
        both[who].gate(True)
        assert await_true(call[1].done), "the other server could say nothing else"
        assert code_of(call) == (code, f"{both[who].name} cannot")
        h.counted(**{"won" if who else "lost": 1})
        assert await_true(h.is_empty), (h.running(), h.in_flight())


def test_a_call_that_is_cancelled_is_cancelled_at_both():
    with calling() as h:
        call, first, second = h.sent_twice()
        call[1].cancel()
        assert await_true(lambda: first.cancelled == second.cancelled == [call[0]])
        assert await_true(h.is_empty), (h.running(), h.in_flight())
        h.gate(True)
        h.follows()
        assert call[0] in h.check()
        h.proxy.settled(plain=False, ok=len(h.callers.sent) - 1, cancelled=1)


def test_a_deadline_that_passes_while_both_work():
    with calling() as h:
        call, first, second = h.sent_twice(send=lambda: h.callers.call(8, timeout=3))
        assert code_of(call)[0] == grpc.StatusCode.DEADLINE_EXCEEDED
        assert await_true(lambda: first.cancelled == second.cancelled == [call[0]]), (first.cancelled, second.cancelled)
        assert await_true(h.is_empty), (h.running(), h.in_flight())
        h.gate(True)
        h.follows()


def test_others_on_the_connection_of_a_stream_that_is_reset_are_not_touched():
    with calling() as h:
        call, first, second = h.sent_twice()
        # over the same connections, calls that wait
        others = [h.callers.call(1) for _ in range(6)]
        second.gate(True)
        assert call[1].result(20).model_name == second.name
        assert await_true(lambda: first.cancelled == [call[0]])
        first.gate(True)
        assert [other[1].result(20).id for other in others] == [tag for tag, _ in others]
        h.check()


def test_a_message_that_is_compressed_is_sent_once():
    with calling() as h, Client(h.proxy) as client:
        h.gate(False)
        bare = request_of("raw", 1).SerializeToString()
        packed = gzip.compress(bare)
        h.callers.sent["raw"] = bare
        extra = [("content-type", "application/grpc"), ("grpc-encoding", "gzip"), ("x-takes", "1")]
        stream = client.ask(METHOD, "POST", b"\1" + len(packed).to_bytes(4) + packed, extra=extra)
        assert await_true(lambda: any(server.has("raw") for server in h.servers.values()))
        time.sleep(0.7)
        assert sum(server.has("raw") for server in h.servers.values()) == 1
        h.gate(True)
        client.sock.settimeout(15)
        got = client.await_(stream)
        assert {**got.fields, **got.trailers}["grpc-status"] == "0"
        assert set(h.counts()) <= {"unrepeatable"}
        h.check()
